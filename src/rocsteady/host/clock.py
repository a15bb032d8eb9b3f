"""The clock that goes on while the machine sleeps."""

from __future__ import annotations

import sys
import time


def boot_clock() -> float:
    """Read it; on Windows the monotonic clock is such a one."""
    if sys.platform == "win32":
        return time.monotonic()
    else:  # noqa: RET505 - mypy must see that this is for the other systems
        return time.clock_gettime(time.CLOCK_BOOTTIME)
