"""Where a path leads."""

from __future__ import annotations

import os


def real_path(path: str | os.PathLike[str]) -> str:
    """Follow links as far as they may be read; those of /proc are often not."""
    try:
        return os.path.realpath(path)
    except OSError as error:
        return str(error.filename)


def time_and_size(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    try:
        about = os.stat(path)  # noqa: PTH116 - a text will do
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size
