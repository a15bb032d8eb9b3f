"""``rocsteady`` on a machine whose clock is a day ahead, and is set right while it runs."""

from __future__ import annotations

import time

from rocsteady.cli.main import main

DAY = 86400.0  # seconds
REAL, BEGAN = time.time, time.monotonic()


def clock() -> float:
    """Tell the time, a day ahead for the first two seconds."""
    return REAL() + (DAY if time.monotonic() - BEGAN < 2.0 else 0.0)


if __name__ == "__main__":
    time.time = clock
    main()
