"""How long ago, by a clock that nobody sets: the wall clock may be set back or forward any time."""

from __future__ import annotations

import time


def boot_clock() -> float:
    """Return the seconds of a clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Stopwatch:
    def __init__(self) -> None:
        self.wall = time.time()
        self._boot = boot_clock()

    @property
    def seconds(self) -> float:
        return boot_clock() - self._boot

    @property
    def now(self) -> float:
        """The time now by the wall clock as it was set then."""
        return self.wall + self.seconds

    def earliest(self, began: float) -> float:
        """Return a time no file is older than that was written since ``began``.

        Both are by the wall clock. If that was set back meanwhile, so is this.
        """
        return min(began, began + time.time() - self.now)
