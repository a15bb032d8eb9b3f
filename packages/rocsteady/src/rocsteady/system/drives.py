"""Drives, which may be gone, or may not answer."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from rocsteady.system.parallel import run_all

ANSWERS_WITHIN = timedelta(seconds=2)  # a path; a dead server never does


def responds(path: Path) -> bool:
    """Return whether a drive answers, be it that there is no such path on it."""
    found: list[bool] = []

    def look() -> None:
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            return
        found.append(True)

    run_all({"path": look}, within=ANSWERS_WITHIN, at_once=1)
    return bool(found)
