"""The epochs that a script has printed."""

from __future__ import annotations

import re
from pathlib import Path

from rocsteady_train.untrusted_file import open_regular, read_tail

LOG_CHUNK = 1024 * 1024  # bytes
TAIL_BYTES = 4 * 1024 * 1024  # bytes
OVERLAP = 64  # bytes; longer than what is looked for
# In the singular: "epochs = 3" is what was asked for, not what was done.
_EPOCH = re.compile(rb"(?i)\bepoch['\"]?[ \t]*[:=#\[(]?[ \t]*([0-9]{1,6})(\.[0-9]+)?(?![0-9])")


def last_epoch_printed(log: Path) -> int | None:
    """Return the highest epoch in the last of a log; None if that speaks of none."""
    try:
        tail = read_tail(log, TAIL_BYTES, follow=False)
    except OSError:
        return None
    return max((int(whole) for whole, _ in _EPOCH.findall(tail)), default=None)


def epochs_printed(log: Path) -> int | None:
    """Return the highest epoch in a log, counted from 1; None if it speaks of none.

    A script that begins with epoch 0 has made one more than it says. One that counts in fractions,
    as "epoch: 2.37", has made as many as are whole.
    """
    highest, from_zero, fractions = -1, False, False
    try:
        with open_regular(log, follow=False) as stream:
            window = b""
            while chunk := stream.read(LOG_CHUNK):
                window += chunk
                for whole, fraction in _EPOCH.findall(window):
                    highest = max(highest, int(whole))
                    fractions = fractions or bool(fraction)
                    from_zero = from_zero or int(whole) == 0
                window = window[-OVERLAP:]
    except OSError:
        return None
    if highest < 0:
        return None
    return highest + 1 if from_zero and not fractions else highest
