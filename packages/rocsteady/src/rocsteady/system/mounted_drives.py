"""Drives, which may be gone, or may not answer."""

from __future__ import annotations

import contextlib
import re
from datetime import timedelta
from pathlib import Path

from rocsteady.system.parallel import in_time

MOUNTS = Path("/proc/self/mounts")
CLOCK_GRAIN = 0.02  # seconds; a file's time comes from a coarser clock than ours
ANSWERS_WITHIN = timedelta(seconds=2)  # a path; a dead server never does


def mounts(table: Path | None = None) -> dict[Path, str]:
    """Return the kind of file system at each place where a drive is mounted."""
    try:
        text = (table or MOUNTS).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return {}
    lines = (line.split(" ") for line in text.split("\n"))
    return {Path(unescaped(line[1])): line[2] for line in lines if len(line) > 2}  # noqa: PLR2004


def unescaped(place: str) -> str:
    """Return a path as it is: the kernel writes its spaces and backslashes as octal numbers."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda found: chr(int(found[1], 8)), place)


def responds(path: Path) -> bool:
    """Return whether a drive answers, be it that there is no such path on it."""

    def look() -> bool:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.stat()
        return True

    return in_time(look, otherwise=False, within=ANSWERS_WITHIN)
