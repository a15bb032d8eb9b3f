"""The kernel's word on a rank that a signal ended, in torchrun's own message."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
import rocsteady_train
from rocsteady_train.integrations.kernel_faults import MAX_LINES, KernelFaults, concerns

from rocsteady.doctor.knowledge.failures import Where, load_failures

if sys.platform == "win32":
    pytest.skip("there is no kernel log to read on Windows", allow_module_level=True)

from supervised import Project

RANK = 4711  # the process of the samples
# Of the kernel's signatures, what can end a rank; the others explain a machine, or a disk.
ENDS_A_RANK = {
    "kernel-ring-timeout", "kernel-reset", "kernel-mes", "kernel-queue", "kernel-page-fault",
    "kernel-hardware-error", "kernel-xid-memory", "kernel-xid-bus", "kernel-xid-fault",
    "kernel-overheated", "kernel-machine-check", "kernel-aer", "kernel-all-ones", "kernel-oom",
    "kernel-segfault", "kernel-invalid-opcode", "amd-vi", "svm-limit",
}  # fmt: skip


def test_what_the_signatures_know_is_shown() -> None:
    samples = {it.id: it.sample for it in load_failures().signatures if it.where is Where.KERNEL}

    missed = [name for name in ENDS_A_RANK if not concerns(samples[name], {RANK})]

    assert missed == []


@pytest.mark.parametrize(
    "line",
    [
        "usb 1-1: new high-speed USB device number 4 using xhci_hcd",
        "amdgpu 0000:03:00.0: amdgpu: VRAM: 20464M 0x0000008000000000",
        "amdgpu 0000:03:00.0: [drm] fb0: amdgpudrmfb frame buffer device",
        'audit: type=1400 audit(1.2:3): apparmor="DENIED" pid=4711 comm="secret-job"',
        "Out of memory: Killed process 99 (other-job) total-vm:1kB",
        "other-job[99]: segfault at 0 ip 0 sp 0 error 4 in libc.so.6[0+1]",
    ],
)
def test_what_does_not_concern_the_ranks_is_left_out(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rocsteady_train.integrations.kernel_faults.has_the_kernels_numbers", lambda: True
    )

    assert not concerns(line, {RANK})


def record(text: str) -> str:
    return f"3,1234,5678901,-;{text}\n SUBSYSTEM=pci\n"


def test_only_what_was_said_since_the_ranks_started_counts(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(record("amdgpu 0000:03:00.0: amdgpu: GPU reset begin!"))
    kernel = KernelFaults(str(log))
    with log.open("a") as stream:
        stream.write(record("amdgpu 0000:0b:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24)"))
        stream.write(record("amdgpu: \x1b[31m  in page starting at address 0x00007f0000000000"))
        stream.write(record("something else"))

    assert kernel.lines({RANK}) == [
        "amdgpu 0000:0b:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24)",
        "amdgpu: ?[31m  in page starting at address 0x00007f0000000000",
    ]
    with log.open("a") as stream:
        stream.write(record("amdgpu: GPU reset begin!"))
    kernel.forget()
    assert kernel.lines({RANK}) == []


def test_a_flood_of_lines_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.touch()
    kernel = KernelFaults(str(log))
    log.write_text(record("amdgpu 0000:0b:00.0: amdgpu: [gfxhub] page fault") * 10_000)

    assert len(kernel.lines({RANK})) == MAX_LINES


def test_a_log_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    kernel = KernelFaults(str(tmp_path / "none"))

    assert kernel.why_not
    assert kernel.lines({RANK}) == []


RANKS = ("--log-dir", "logs", "--nproc-per-node", "2")
MEMORY = Path("/sys/fs/cgroup/memory")
LIMITED = """
    import os, sys
    import torch.distributed as dist
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        open(os.environ["GROUP"] + "/cgroup.procs", "w").write(str(os.getpid()))
        print("rank", os.getpid(), flush=True)
        held = [bytearray(b"1" * (1 << 24)) for _ in range(1000)]
    dist.barrier()
"""


@pytest.fixture
def limited() -> Iterator[Path]:
    """Give a group of processes that the kernel ends when they use 600 MiB."""
    group = MEMORY / f"rocsteady-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(600 << 20))
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        pytest.skip(f"needs root, cgroup v1 and a kernel log that may be read: {error}")
    yield group
    with contextlib.suppress(OSError):
        group.rmdir()


@pytest.mark.slow
def test_torchrun_says_that_the_kernel_ran_out_of_memory(
    project: Project, torch_python: str, limited: Path
) -> None:
    beside = project.folder / "beside"
    about = beside / "rocsteady_train.dist-info"
    about.mkdir(parents=True)
    (beside / "rocsteady_train").symlink_to(Path(rocsteady_train.__file__).parent)
    for name in ("METADATA", "entry_points.txt"):
        (about / name).write_text(distribution("rocsteady-train").read_text(name) or "")
    script = project.script(LIMITED)

    ended = subprocess.run(
        [torch_python, "-m", "torch.distributed.run", *RANKS, script],
        env={
            **project.environment,
            "GROUP": str(limited),
            "PYTHONPATH": str(beside),
            "PET_RDZV_BACKEND": "rocsteady",
            "ROCSTEADY_RUN": "t",  # nobody watches
        },
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )

    pid = next(line.split()[1] for line in ended.stdout.splitlines() if line.startswith("rank"))
    told = [line for line in ended.stderr.splitlines() if line.startswith("  kernel    : ")]
    assert ended.returncode != 0
    assert any(f"Killed process {pid} (" in line for line in told), ended.stderr[-3000:]
