"""Memory, loss and GPUs are measured at their own pace; a GPU that hangs holds up nobody."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rocsteady.run.attempt.gauges import Gauges, host_memory

GIB = 1 << 30


def gpu(root: Path) -> None:
    """Lay out the sysfs files of one AMD GPU."""
    device = root / "sys/class/drm/card1/device"
    (device / "hwmon/hwmon3").mkdir(parents=True)
    for name, text in {
        "vendor": "0x1002",
        "gpu_busy_percent": "97",
        "mem_info_vram_used": str(18 * GIB),
        "hwmon/hwmon3/temp1_input": "61000",
        "hwmon/hwmon3/temp1_label": "edge",
        "hwmon/hwmon3/temp2_input": "71000",
        "hwmon/hwmon3/temp2_label": "junction",
        "hwmon/hwmon3/power1_average": "286000000",
        "hwmon/hwmon3/freq1_input": "2400000000",
    }.items():
        (device / name).write_text(text + "\n")


def test_the_memory_of_this_process_is_about_what_the_kernel_says() -> None:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    resident = int(fields["VmRSS"].split()[0]) * 1024
    assert 0.5 * resident < host_memory([os.getpid()]) < 1.5 * resident
    assert host_memory([2**22 + 1]) == 0


def test_loss_at_once_and_memory_every_ten_seconds() -> None:
    losses = iter([0.5, None, 0.25])
    gauges = Gauges(lambda: next(losses), root=Path("/"))
    pids = [os.getpid()]
    first = gauges.read(100.0, lambda: pids)
    assert first["loss"] == 0.5
    assert first["host memory"] > 0
    assert gauges.read(101.0, lambda: pids) == {}
    later = gauges.read(111.0, lambda: pids)
    assert later["loss"] == 0.25
    assert "host memory" in later


def test_a_gpu_is_read_by_a_child(tmp_path: Path) -> None:
    gpu(tmp_path)
    gauges = Gauges(lambda: None, root=tmp_path)
    deadline = time.monotonic() + 20
    measured: dict[str, float] = {}
    while not measured and time.monotonic() < deadline:
        measured = gauges.read(100.0, list)
        time.sleep(0.05)
    assert measured == {
        "GPU 0 memory": 18.0 * GIB,
        "GPU 0 busy": 97.0,
        "GPU 0 power": 286.0,
        "GPU 0 temperature": 71.0,
        "GPU 0 clock": 2.4e9,
    }


def test_a_gpu_that_does_not_answer_holds_up_nobody(tmp_path: Path) -> None:
    gpu(tmp_path)
    busy = tmp_path / "sys/class/drm/card1/device/gpu_busy_percent"
    busy.unlink()
    os.mkfifo(busy)  # whoever reads it waits
    gauges = Gauges(lambda: None, root=tmp_path)
    before = time.monotonic()
    for second in range(100):
        gauges.read(100.0 + second, list)
    assert time.monotonic() - before < 1.0
