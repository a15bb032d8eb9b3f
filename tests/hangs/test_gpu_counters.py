"""Each GPU is asked by a child that may hang; a sleeping one is not asked."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

from rocsteady.hangs.looking.gpu_counters import GpuCounters, GpuReading, read_gpu_counters

SOON = timedelta(seconds=5)


def add_card(root: Path, card: int, *, vendor: str = "0x1002", status: str = "active") -> Path:
    """Lay out a card as the kernel does: a link from the class to the device."""
    device = root / f"sys/devices/pci0000:00/0000:0{card + 3}:00.0"
    monitor = device / "hwmon/hwmon3"
    monitor.mkdir(parents=True)
    (device / "power").mkdir()
    for name, content in {
        "vendor": vendor,
        "power/runtime_status": status,
        "gpu_busy_percent": "100",
        "mem_info_vram_used": "1024",
        "mem_info_vram_total": "2048",
        "hwmon/hwmon3/temp1_input": "45000",
        "hwmon/hwmon3/temp1_label": "edge",
        "hwmon/hwmon3/temp2_input": "61000",
        "hwmon/hwmon3/power1_average": "107000000",
    }.items():
        (device / name).write_text(f"{content}\n")
    folder = root / f"sys/class/drm/card{card}"
    folder.mkdir(parents=True)
    (folder / "device").symlink_to(device)
    (root / f"sys/class/drm/card{card}-HDMI-A-1").mkdir()
    return device


def test_a_card_tells_load_memory_temperature_and_power(tmp_path: Path) -> None:
    add_card(tmp_path, 0)
    add_card(tmp_path, 1, vendor="0x10de")

    assert read_gpu_counters(within=SOON, root=tmp_path) == (
        GpuCounters(
            card="card0",
            pci_address="0000:03:00.0",
            asleep=False,
            reading=GpuReading(
                busy_percent=100,
                vram_used_bytes=1024,
                vram_total_bytes=2048,
                power_watts=107.0,
                temperatures_celsius={"edge": 45.0, "temp2": 61.0},
            ),
        ),
    )


def test_a_sleeping_card_is_left_asleep(tmp_path: Path) -> None:
    device = add_card(tmp_path, 0, status="suspended")
    (device / "gpu_busy_percent").unlink()
    os.mkfifo(device / "gpu_busy_percent")  # whoever reads it is stuck

    (gpu,) = read_gpu_counters(within=SOON, root=tmp_path)

    assert (gpu.asleep, gpu.reading) == (True, None)


def test_a_card_that_hangs_costs_its_own_answer_only(tmp_path: Path) -> None:
    device = add_card(tmp_path, 0)
    (device / "mem_info_vram_used").unlink()
    os.mkfifo(device / "mem_info_vram_used")
    add_card(tmp_path, 1)

    began = time.monotonic()
    stuck, well = read_gpu_counters(within=timedelta(seconds=1), root=tmp_path)

    assert time.monotonic() - began < 2
    assert (stuck.reading, stuck.why_not) == (None, "the process that queried it: timed out")
    assert well.reading is not None


def test_no_card_is_an_answer(tmp_path: Path) -> None:
    assert read_gpu_counters(within=SOON, root=tmp_path) == ()
