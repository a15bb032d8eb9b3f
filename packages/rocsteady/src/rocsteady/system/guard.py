"""The guard: ends what is left of a run when its supervisor and its keeper were both killed.

Started as ``python -I -S guard.py PIPE NAME SUPERVISOR BORN``. It waits until the pipe ends, which
happens when the supervisor dies, lets the keeper end the tree, and then ends what is left. A byte
in the pipe says that the supervisor has done so itself.
Until then it imports nothing but these modules: it lives as long as the run.
"""

from __future__ import annotations

import os
import signal
import sys
import time

KEEPERS_TIME = 4.0  # seconds, a little more than the keeper needs
LOOK_EVERY = 0.2
DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main(pipe: int, name: str, supervisor: int, born: int) -> None:
    """Wait for the supervisor's end, then for the keeper's work, then end what is left."""
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    if os.read(pipe, 1):
        return
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))  # noqa: PTH100 - no pathlib here
    from rocsteady.system.leftovers import Leftovers, end_leftovers  # noqa: PLC0415 - see above

    family = Leftovers(name, supervisor, born)
    deadline = time.monotonic() + KEEPERS_TIME
    while family.members():
        if time.monotonic() > deadline:
            end_leftovers(name, supervisor, born)
            break
        time.sleep(LOOK_EVERY)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
