"""Copies aside what a run wrote, before the same work is done again over it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rocsteady.errors import RocsteadyError
from rocsteady.vocabulary import Value

MOST_FILES = 20_000  # looked at; more is not a folder of outputs
PASSED_OVER = {".git", ".rocsteady", "__pycache__", ".venv", "node_modules"}
RESERVE = 1 << 30  # bytes that stay free


class Aside(Value, frozen=True, kw_only=True):
    """What was copied."""

    folder: str
    files: int
    bytes: int


def copy_aside(folder: Path, since: float, target: Path) -> Aside:
    """Copy every file below ``folder`` that was written since then; refuse to fill the disk."""
    wanted = list(_written(folder, since))
    size = sum(path.stat().st_size for path in wanted)
    if size + RESERVE > shutil.disk_usage(target.parent).free:
        raise RocsteadyError(
            f"{size >> 20} MiB that the run wrote would have to be copied aside first, and the disk"
            " has no room for it."
        )
    for path in wanted:
        copy = target / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    return Aside(folder=str(target), files=len(wanted), bytes=size)


def _written(folder: Path, since: float) -> Iterator[Path]:
    seen = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in PASSED_OVER]
        for name in names:
            seen += 1
            if seen > MOST_FILES:
                raise RocsteadyError(
                    f"{folder} has more than {MOST_FILES} files; what the run wrote cannot be told"
                    " from the rest in reasonable time."
                )
            path = Path(place) / name
            if not path.is_symlink() and path.is_file() and path.stat().st_mtime >= since:
                yield path
