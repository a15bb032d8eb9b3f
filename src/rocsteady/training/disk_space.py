"""Room on the disk for the next checkpoint."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Callable
from pathlib import Path

from rocsteady import checkpoint_folder as folders
from rocsteady.checkpoint_folder import UNFINISHED, BrokenError, CheckpointError

SPARE = 0.02  # share of the disk that is left free
MOST_SPARE = 2 * 1024**3  # bytes
FULL = (errno.ENOSPC, errno.EDQUOT)


class Room:
    """Makes room in a folder: the oldest checkpoint makes way, if a newer one is complete."""

    def __init__(self, folder: Path, keep_every: int, say: Callable[[str], None]) -> None:
        self._folder, self._keep_every, self._say = folder, keep_every, say
        self._is_said = False  # that the disk is full

    def make(self, size: int, newest: int | None) -> None:
        """Free ``size`` bytes, or refuse: a full disk takes down more than this training.

        Only checkpoints older than the step ``newest`` may go: that one is complete.
        """
        self._is_said = self._is_said and bool(self._missing(size))
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
        if not self._is_said:
            self._say(
                f"the disk is full: removing {older[-1].name} to make room, and from now on the"
                " oldest checkpoint at each save"
            )
            self._is_said = True
        remove(older[-1])
        return not older[-1].exists()

    def is_kept(self, path: Path) -> bool:
        """Tell whether a checkpoint must not be removed: it is kept for good, or not complete."""
        try:
            number = folders.read_manifest(path).number
        except BrokenError:
            return True  # restore looks at it, and sets it aside
        return bool(self._keep_every) and number % self._keep_every == 0

    def _missing(self, size: int) -> str:
        """Say that there is not enough room, or nothing."""
        folder = next(
            path for path in (self._folder, *self._folder.absolute().parents) if path.exists()
        )
        usage = shutil.disk_usage(folder)
        spare = min(MOST_SPARE, int(usage.total * SPARE))
        if usage.free >= size + spare:
            return ""
        return (
            f"it needs {_readable(size)}, and {folder} has {_readable(usage.free)} free,"
            f" of which {_readable(spare)} are left to others"
        )


def is_full(error: BaseException) -> bool:
    """Tell whether a save failed because the disk, or a quota, is full."""
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
