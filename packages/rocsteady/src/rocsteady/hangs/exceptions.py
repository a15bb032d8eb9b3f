"""The exceptions that ended training processes, as those processes told them."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rocsteady_train.inside import wire
from rocsteady_train.untrusted_file import read_regular

from rocsteady.hangs.heartbeat_pages import numbered
from rocsteady.model import Value

LIMIT = 256 * 1024  # bytes of one


class RaisedException(Value, frozen=True, kw_only=True):
    """What one process told of its end."""

    at: float  # seconds of the monotonic clock
    rank: str  # as the launcher told it; "" if it did not
    type: str  # qualified, as "torch.OutOfMemoryError"; built-in ones without a module
    bases: tuple[str, ...]
    message: str
    place: str  # "train.py:88 step": the innermost frame of the user's own code
    traceback: str


class _RaisedFile(RaisedException, frozen=True, kw_only=True):
    version: int


def read_raised(folder: Path) -> tuple[RaisedException, ...]:
    """Return what was told, the first in time first. What is not ours is passed over."""
    found = []
    for _, path in numbered(folder, wire.RAISED_SUFFIX):
        try:
            told = msgspec.json.decode(read_regular(path, LIMIT, follow=False), type=_RaisedFile)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if told.version == wire.RAISED_VERSION:
            found.append(told)
    return tuple(sorted(found, key=lambda told: told.at))
