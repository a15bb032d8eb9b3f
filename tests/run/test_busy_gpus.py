"""GPUs that did work are counted once each; none that answers is "not known"."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

from rocsteady.run.attempt.gauges import BusyGpus

SOON = timedelta(milliseconds=50)


def add_card(root: Path, number: int, busy: int, status: str = "active") -> Path:
    """Lay out a card as the kernel does."""
    device = root / f"sys/devices/0000:0{number}:00.0"
    (device / "power").mkdir(parents=True)
    files = {"vendor": "0x1002", "power/runtime_status": status, "gpu_busy_percent": str(busy)}
    for name, content in files.items():
        (device / name).write_text(f"{content}\n")
    card = root / f"sys/class/drm/card{number}"
    card.mkdir(parents=True)
    (card / "device").symlink_to(device)
    return device


def counted(gpus: BusyGpus, wanted: int | None) -> bool:
    deadline = time.monotonic() + 20
    while gpus.count != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    gpus.close()
    return gpus.count == wanted


def test_busy_ones_are_counted_and_idle_or_sleeping_ones_are_not(tmp_path: Path) -> None:
    for number, busy in enumerate((97, 3, 100)):
        add_card(tmp_path, number, busy)
    add_card(tmp_path, 3, 100, status="suspended")

    assert counted(BusyGpus(every=SOON, root=tmp_path), 2)


def test_one_that_was_busy_once_stays_counted(tmp_path: Path) -> None:
    device = add_card(tmp_path, 0, 100)
    gpus = BusyGpus(every=SOON, root=tmp_path)
    while gpus.count != 1:
        time.sleep(0.02)
    (device / "gpu_busy_percent").write_text("0\n")
    time.sleep(0.3)

    assert counted(gpus, 1)


def test_without_a_gpu_nothing_is_known(tmp_path: Path) -> None:
    gpus = BusyGpus(every=SOON, root=tmp_path)
    time.sleep(0.2)

    assert counted(gpus, None)
