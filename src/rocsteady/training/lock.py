"""One training a folder: two in one would remove each other's checkpoints."""

from __future__ import annotations

import os
from pathlib import Path

from rocsteady.checkpoint_folder import CheckpointError

NAME = ".lock"


def locked(folder: Path) -> int | None:
    """Keep others out of a folder until the descriptor that is returned is closed.

    It is a record lock: it goes with this process, and children do not have it. Where there is none
    (Windows, some network file systems) the folder is used without.
    """
    try:
        import fcntl  # noqa: PLC0415 - Windows has none
    except ImportError:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[attr-defined, unused-ignore]
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        raise CheckpointError(f"{folder} is in use by another training process") from None
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
