"""A copy that shares its blocks with the original until one of the two is written to."""

from __future__ import annotations

import fcntl
from pathlib import Path

FICLONE = 0x40049409


def clone(source: Path, target: Path) -> bool:
    """Make such a copy, where there is no file yet. False, and none: this file system cannot."""
    with source.open("rb") as original, target.open("xb") as copy:
        try:
            fcntl.ioctl(copy.fileno(), FICLONE, original.fileno())
        except OSError:
            target.unlink()
            return False
    return True
