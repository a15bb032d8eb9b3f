"""Which processes hold a GPU, as KFD lists everyone who computes, whoever they belong to.

Unconfirmed on AMD hardware.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

KFD_PROCESSES = Path("/sys/class/kfd/kfd/proc")
POLL_EVERY = 0.1  # seconds


def held_by_others(pids: Collection[int], processes: Path = KFD_PROCESSES) -> int:
    """Return the bytes of device memory, of the fullest GPU, that other processes hold."""
    held: dict[str, int] = {}
    try:
        for file in processes.glob("*/vram_*"):
            if not file.parent.name.isdecimal() or int(file.parent.name) in pids:
                continue
            held[file.name] = held.get(file.name, 0) + int(file.read_text())
    except (OSError, ValueError):
        return 0
    return max(held.values(), default=0)


def wait_until_free(
    pids: tuple[int, ...], within: timedelta, listed: Path = KFD_PROCESSES
) -> tuple[int, ...]:
    """Return the processes that KFD still lists at the deadline; none is good."""
    deadline = time.monotonic() + within.total_seconds()
    while True:
        left = tuple(pid for pid in pids if (listed / str(pid)).exists())
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(POLL_EVERY)
