"""How much of the processor the host gave to others, which no test can help.

``processor.py stolen`` prints the jiffies used, idle and withheld so far, to be handed to
``processor.py share BEFORE``, which prints how many percent of what was wanted since then the host
withheld. ``processor.py wait SECONDS`` ends once two busy loops get four fifths of their time.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

STAT = Path("/proc/stat")  # the first line: user nice system idle iowait irq softirq steal ...
ENOUGH = 0.8


def stolen() -> tuple[int, int]:
    """Return the time in which the processors worked, and the time in which they were withheld."""
    if not STAT.exists():
        return 0, 0
    user, nice, system, _idle, _wait, irq, soft, steal = STAT.read_text().split()[1:9]
    return sum(map(int, (user, nice, system, irq, soft))), int(steal)


def share(before: tuple[int, int]) -> int:
    """Return how many percent of the time that was wanted since then were withheld."""
    worked, withheld = (now - then for now, then in zip(stolen(), before, strict=True))
    return round(100 * withheld / max(worked + withheld, 1))


def spin(seconds: float = 2.0) -> None:
    """Want all of every processor for a moment."""
    for _ in range((os.cpu_count() or 1) - 1):
        if os.fork() == 0:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                pass
            os._exit(0)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    for _ in range((os.cpu_count() or 1) - 1):
        os.wait()


def wait(most: float) -> None:
    """Wait until little is withheld, but not for ever."""
    until = time.monotonic() + most
    while time.monotonic() < until:
        before = stolen()
        spin()
        if share(before) <= 100 * (1 - ENOUGH):
            return
        time.sleep(5)


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "stolen":
        sys.stdout.write(" ".join(map(str, stolen())) + "\n")
    elif verb == "share":
        sys.stdout.write(f"{share((int(rest[0]), int(rest[1])))}\n")
    else:
        wait(float(rest[0]))
