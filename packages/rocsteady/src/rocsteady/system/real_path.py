"""Where a path leads."""

from __future__ import annotations

import os


def real_path(path: str | os.PathLike[str]) -> str:
    """Follow links as far as they may be read; those of /proc are often not."""
    try:
        return os.path.realpath(path)
    except OSError as error:
        return str(error.filename)
