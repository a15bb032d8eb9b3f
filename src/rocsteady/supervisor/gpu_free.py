"""Waits until processes that are gone have left the GPU too. Unconfirmed: no AMD GPU here."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

KFD_PROCESSES = Path("/sys/class/kfd/kfd/proc")
LOOK_EVERY = 0.1  # seconds


def wait_until_free(
    pids: tuple[int, ...], within: timedelta, listed: Path = KFD_PROCESSES
) -> tuple[int, ...]:
    """Return the processes that KFD still lists at the deadline; none is good."""
    deadline = time.monotonic() + within.total_seconds()
    while True:
        left = tuple(pid for pid in pids if (listed / str(pid)).exists())
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(LOOK_EVERY)
