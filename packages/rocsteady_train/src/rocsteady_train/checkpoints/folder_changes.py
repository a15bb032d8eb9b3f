"""What is done to a folder of checkpoints: lock, publish, point to, set aside, make room."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from rocsteady_train.checkpoints import folder as folders
from rocsteady_train.checkpoints.folder import (
    ASIDE,
    LATEST,
    MANIFEST,
    UNFINISHED,
    BrokenError,
    CheckpointError,
    FileFact,
)
from rocsteady_train.checkpoints.tensor_files import sync_folder, write_file

LOCK = ".lock"
FREE_SHARE = 0.02  # share of the disk that is left free
MAX_SPARE = 2 * 1024**3  # bytes
FULL = (errno.ENOSPC, errno.EDQUOT)


def publish(unfinished: Path, step: int, number: int, facts: list[FileFact]) -> None:
    """Make a checkpoint visible, once everything in it is on the disk."""
    text = folders.manifest_text(step, number, facts)
    write_file(unfinished / MANIFEST, [memoryview(text)])
    sync_folder(unfinished)
    unfinished.rename(unfinished.with_name(folders.name_of(step)))
    sync_folder(unfinished.parent)


def point_to(path: Path) -> None:
    pointer = path.with_name(f".{LATEST}")
    pointer.unlink(missing_ok=True)
    write_file(pointer, [memoryview(f"{path.name}\n".encode())])
    pointer.replace(path.with_name(LATEST))
    sync_folder(path.parent)


def set_aside(path: Path) -> None:
    """Keep a checkpoint that is not used, out of the way, under a name that is free."""
    with contextlib.suppress(OSError):  # a disk that cannot be written: it stays
        aside = path.parent / ASIDE
        aside.mkdir(exist_ok=True)
        target, number = aside / path.name, 2
        while target.exists():
            target, number = aside / f"{path.name}-{number}", number + 1
        path.rename(target)


def locked(folder: Path) -> int | None:
    """Keep others out of a folder until the descriptor that is returned is closed.

    Two trainings in one folder would remove each other's checkpoints.

    It is a record lock: it goes with this process, and children do not have it. Where there is none
    (Windows, some network file systems) the folder is used without.
    """
    try:
        import fcntl  # noqa: PLC0415 - Windows has none
    except ImportError:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[attr-defined, unused-ignore]
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        raise CheckpointError(f"{folder} is in use by another training process") from None
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


class Room:
    """Makes room in a folder: the oldest checkpoint makes way, if a newer one is complete."""

    def __init__(self, folder: Path, keep_every: int, say: Callable[[str], None]) -> None:
        self._folder, self._keep_every, self._say = folder, keep_every, say
        self._is_full_reported = False  # that the disk is full

    def make(self, size: int, newest: int | None) -> None:
        """Free ``size`` bytes, or refuse: a full disk takes down more than this training.

        Only checkpoints older than the step ``newest`` may go: that one is complete.
        """
        self._is_full_reported = self._is_full_reported and bool(self._missing(size))
        while (missing := self._missing(size)) and self.remove_oldest(newest):
            pass
        if missing:
            raise CheckpointError(missing)

    def remove_oldest(self, newest: int | None) -> bool:
        """Remove the oldest checkpoint, if the newest is complete; False: nothing may go."""
        if newest is None:
            return False
        there = folders.steps(self._folder)
        older = [path for step, path in there if step < newest and not self.is_kept(path)]
        if not older or folders.what_is_wrong(self._folder / folders.name_of(newest)):
            return False
        if not self._is_full_reported:
            self._say(
                f"the disk is full: removing {older[-1].name} to make room, and from now on the"
                " oldest checkpoint at each save"
            )
            self._is_full_reported = True
        remove(older[-1])
        return not older[-1].exists()

    def is_kept(self, path: Path) -> bool:
        """Return whether a checkpoint must not be removed: it is kept for good, or not complete."""
        try:
            number = folders.read_manifest(path).number
        except BrokenError:
            return True  # restore looks at it, and sets it aside
        return bool(self._keep_every) and number % self._keep_every == 0

    def _missing(self, size: int) -> str:
        """Return that there is not enough room; "" if there is."""
        folder = next(
            path for path in (self._folder, *self._folder.absolute().parents) if path.exists()
        )
        usage = shutil.disk_usage(folder)
        spare = min(MAX_SPARE, int(usage.total * FREE_SHARE))
        if usage.free >= size + spare:
            return ""
        return (
            f"it needs {_readable(size)}, and {folder} has {_readable(usage.free)} free,"
            f" of which {_readable(spare)} are left to others"
        )


def is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in FULL


def remove(path: Path) -> None:
    """Delete a checkpoint; it stops being one at once, whenever we are killed."""
    doomed = path.with_name(f"{UNFINISHED}{path.name}-removed")
    with contextlib.suppress(OSError):
        path.rename(doomed)
        shutil.rmtree(doomed)


def _readable(size: float) -> str:
    """Format a number of bytes: 512 B, 1.5 MiB."""
    units: tuple[str, ...] = ("B", "KiB", "MiB", "GiB")
    while size >= 1024 and len(units) > 1:  # noqa: PLR2004 - the next unit
        size, units = size / 1024, units[1:]
    return f"{size:,.0f} B" if units[0] == "B" else f"{size:,.1f} {units[0]}"
