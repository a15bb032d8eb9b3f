"""Finds the project that the current folder belongs to, as git does: here, or in a folder above."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from rocsteady.run.job import FILE
from rocsteady.screens.screen import tell
from rocsteady.store.location import has_journal


def find_project(start: Path) -> Path:
    """Return the nearest folder with a job file or a journal; ``start`` if there is none."""
    return _nearest(start, lambda folder: _has_job(folder) or has_journal(folder))


def find_job_folder(start: Path) -> Path:
    """Return the nearest folder with a job file; ``start`` if there is none."""
    return _nearest(start, _has_job)


def enter(folder: Path) -> Path:
    """Make the project's folder the current one, since its command and paths are relative to it."""
    if folder != Path.cwd():
        os.chdir(folder)
        os.environ["PWD"] = str(folder)
        tell(f"rocsteady: project folder: {folder}")
    return folder


def _has_job(folder: Path) -> bool:
    return os.path.lexists(folder / FILE)


def _nearest(start: Path, belongs: Callable[[Path], bool]) -> Path:
    return next((folder for folder in _upwards(start) if belongs(folder)), start)


def _upwards(start: Path) -> Iterator[Path]:
    """Yield a folder and those above it, up to one in which anybody may create files."""
    yield start
    for folder in start.parents:
        try:
            if folder.stat().st_mode & stat.S_IWOTH and os.name != "nt":
                return
        except OSError:
            return
        yield folder
