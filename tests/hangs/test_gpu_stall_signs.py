"""A wait for the GPU is cut short only if the kernel log or idle counters say so too."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest

from rocsteady.hangs.looking.gpu_counters import GpuSigns
from rocsteady.hangs.looking.process_tree import Members

SOON = timedelta(seconds=4)
OURS = Members(
    ids=frozenset({7}),
    gpus=frozenset({"0000:03:00"}),
    all_gpus=frozenset({"0000:03:00", "0000:0a:00"}),
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Make a machine with one GPU, on which process 7 has work."""
    device = tmp_path / "sys/devices/0000:03:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x1002\n")
    (device / "gpu_busy_percent").write_text("0\n")
    card = tmp_path / "sys/class/drm/card0"
    card.mkdir(parents=True)
    (card / "device").symlink_to(device)
    stats = tmp_path / "sys/class/kfd/kfd/proc/7/stats_51"
    stats.mkdir(parents=True)
    (stats / "cu_occupancy").write_text("0\n")
    (stats.parent / "sdma_51").write_text("4096\n")
    (tmp_path / "kmsg").write_text("")
    return tmp_path


def signs(machine: Path, *, members: Members = OURS, times: int = 4) -> tuple[str, ...]:
    found = GpuSigns(time.monotonic(), root=machine, kmsg=machine / "kmsg")
    return [found.read((7,), members, SOON) for _ in range(times)][-1]


def test_a_gpu_that_is_idle_in_three_readings_is_a_sign(machine: Path) -> None:
    assert signs(machine) == ("the GPU is idle while the process waits for it",)
    assert signs(machine, times=3) == ()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("sys/devices/0000:03:00.0/gpu_busy_percent", "100"),
        ("sys/devices/0000:03:00.0/gpu_busy_percent", ""),
        ("sys/class/kfd/kfd/proc/7/stats_51/cu_occupancy", "12"),
        ("sys/class/kfd/kfd/proc/7/stats_51/cu_occupancy", ""),
        ("sys/class/kfd/kfd/proc/7/sdma_51", ""),
    ],
)
def test_a_gpu_that_works_or_does_not_say_is_none(machine: Path, path: str, text: str) -> None:
    (machine / path).write_text(text)

    assert signs(machine) == ()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=5", True),
        ("amdgpu 0000:03:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE", True),
        ("amdgpu 0000:03:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24)", True),
        ("amdgpu 0000:0a:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=5", False),
        ("amdgpu 0000:03:00.0: amdgpu: PSP is resuming...", False),
    ],
)
def test_a_line_of_the_kernels_about_this_gpu_is_a_sign(
    machine: Path, line: str, expected: object
) -> None:
    now = int(time.monotonic() * 1e6) + 1000
    (machine / "kmsg").write_text(f"3,1,{now},-;{line}\n")

    said = signs(machine, times=1)

    assert bool(said) is expected
    assert not said or said[0].startswith("the kernel says: amdgpu 0000:03:00.0")


def test_without_a_gpu_there_is_none(machine: Path) -> None:
    assert signs(machine, members=Members()) == ()
