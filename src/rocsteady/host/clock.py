"""The clock that goes on while the machine sleeps."""

from __future__ import annotations

import time


def boot_clock() -> float:
    """Return its seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
