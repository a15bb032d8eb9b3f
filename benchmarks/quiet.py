"""Refuses a machine that has other things to do: on it, everything looks slower than it is."""

from __future__ import annotations

import time
from pathlib import Path

QUIET_FOR, MAX_BUSY = 5.0, 0.1  # seconds, and the part of the processors that may be in use


def cpu_times() -> tuple[int, int]:
    """Return the time that all processors were idle, and all of their time."""
    line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    times = [int(word) for word in line.split()[1:]]
    return times[3] + times[4], sum(times[:8])


def main() -> None:
    """Look at it for some seconds."""
    before = cpu_times()
    time.sleep(QUIET_FOR)
    after = cpu_times()
    busy = 1 - (after[0] - before[0]) / max(1, after[1] - before[1])
    if busy > MAX_BUSY:
        raise SystemExit(f"the machine is busy: {busy:.0%} of its processors are in use")


if __name__ == "__main__":
    main()
