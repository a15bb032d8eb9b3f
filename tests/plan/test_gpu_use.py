"""A trial sees how busy the GPU is, from files as the kernel has them."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from rocsteady.plan.trials import LEAST_ANSWERS, GpuUse, Use

if sys.platform == "win32":
    pytest.skip("the files are those of Linux", allow_module_level=True)


def lay_out(root: Path, busy: int, memory: int) -> Path:
    device = root / "sys/devices/pci0000:00/0000:03:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x1002\n")
    (device / "gpu_busy_percent").write_text(f"{busy}\n")
    (device / "mem_info_vram_used").write_text(f"{memory}\n")
    card = root / "sys/class/drm/card0"
    card.mkdir(parents=True)
    (card / "device").symlink_to(device)
    return device


def look(use: GpuUse) -> None:
    use.look()
    assert use._asking is not None
    use._asking.join(20)


def test_the_mean_of_how_busy_it_was_and_the_most_memory(tmp_path: Path) -> None:
    device = lay_out(tmp_path, busy=90, memory=100)
    use = GpuUse(tmp_path)
    look(use)  # while the job was still starting
    began = time.time()
    for busy, memory in ((20, 300), (40, 500), (30, 400)):
        (device / "gpu_busy_percent").write_text(f"{busy}\n")
        (device / "mem_info_vram_used").write_text(f"{memory}\n")
        assert use.since(began) is None, f"fewer than {LEAST_ANSWERS} answers say nothing"
        look(use)

    assert use.since(began) == Use(busy=30.0, memory=500)


def test_a_machine_without_counters_says_nothing(tmp_path: Path) -> None:
    use = GpuUse(tmp_path)
    look(use)

    assert use.since(0.0) is None
