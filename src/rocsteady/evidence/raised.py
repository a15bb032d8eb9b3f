"""The exceptions that ended training processes, as those processes told them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from rocsteady.inside import wire
from rocsteady.vocabulary import Value

LIMIT = 256 * 1024  # bytes of one
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


class RaisedException(Value, frozen=True, kw_only=True):
    """What one process told of its end."""

    at: float  # seconds of the monotonic clock
    rank: str  # as the launcher told it; "" if it did not
    type: str  # qualified, as "torch.OutOfMemoryError"; built-in ones without a module
    bases: tuple[str, ...]
    message: str
    place: str  # "train.py:88 step": the innermost frame of the user's own code
    traceback: str


class _Told(RaisedException, frozen=True, kw_only=True):
    version: int


def read_raised(folder: Path) -> tuple[RaisedException, ...]:
    """Return what was told, the first in time first. What is not ours is passed over."""
    found = []
    try:
        paths = sorted(folder.glob(f"*{wire.RAISED_SUFFIX}"))
    except OSError:
        return ()
    for path in paths:
        try:
            told = msgspec.json.decode(_content(path), type=_Told)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if told.version == wire.RAISED_VERSION:
            found.append(told)
    return tuple(sorted(found, key=lambda told: told.at))


def _content(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW)
    try:
        return os.read(descriptor, LIMIT)
    finally:
        os.close(descriptor)
