"""What is in a project's folder: to see that it stays as it is, and to know what to copy."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from rocsteady.model import Value

MOST_ENTRIES = 200_000  # looked at; more is not looked over in reasonable time
CACHES = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules"}
PASSED_OVER = {*CACHES, ".rocsteady"}  # a run may be going on there meanwhile
OF_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")  # a folder with one of these is an environment


class FolderEntry(Value, frozen=True, kw_only=True):
    """One file, folder or link, as it was at one moment. Of a folder, what is in it tells."""

    mode: int
    size: int
    written: int  # nanoseconds
    inode: int
    user: int
    group: int


class FolderTree(Value, frozen=True, kw_only=True):
    """All that is in a folder, by path from there."""

    entries: dict[str, FolderEntry]
    environments: tuple[str, ...]  # folders that were not entered
    whole: bool  # False: there is more

    def files(self) -> Iterator[tuple[str, FolderEntry]]:
        """Yield the plain files."""
        return ((path, it) for path, it in self.entries.items() if stat.S_ISREG(it.mode))

    def folders(self) -> Iterator[str]:
        """Yield the folders."""
        return (path for path, it in self.entries.items() if stat.S_ISDIR(it.mode))

    def links(self) -> Iterator[str]:
        """Yield the links."""
        return (path for path, it in self.entries.items() if stat.S_ISLNK(it.mode))


def read_folder_tree(folder: Path) -> FolderTree:
    """Look at everything in a folder; what cannot be read has nothing in it."""
    entries: dict[str, FolderEntry] = {}
    environments: list[str] = []
    waiting = [""]
    while waiting and len(entries) < MOST_ENTRIES:
        place = waiting.pop()
        try:
            with os.scandir(folder / place) as found:
                inside = sorted(found, key=lambda it: it.name)
        except OSError:
            continue
        if place and any(it.name in OF_ENVIRONMENT for it in inside):
            environments.append(place)
            del entries[place]
            continue
        for it in inside:
            path = os.path.join(place, it.name)  # noqa: PTH118 - a Path for each is slow
            is_folder = it.is_dir(follow_symlinks=False)
            if is_folder and it.name in PASSED_OVER:
                continue
            entries[path] = _entry(it, is_folder=is_folder)
            if is_folder:
                waiting.append(path)
    return FolderTree(entries=entries, environments=tuple(environments), whole=not waiting)


def differences(before: FolderTree, after: FolderTree) -> tuple[str, ...]:
    """Name what is not as it was, by path."""
    paths = before.entries.keys() | after.entries.keys()
    return tuple(
        sorted(path for path in paths if before.entries.get(path) != after.entries.get(path))
    )


def _entry(found: os.DirEntry[str], *, is_folder: bool) -> FolderEntry:
    try:
        facts = found.stat(follow_symlinks=False)
    except OSError:  # gone, just now
        return FolderEntry(mode=0, size=0, written=0, inode=0, user=0, group=0)
    return FolderEntry(
        mode=facts.st_mode,
        size=0 if is_folder else facts.st_size,
        written=0 if is_folder else facts.st_mtime_ns,
        inode=facts.st_ino,
        user=facts.st_uid,
        group=facts.st_gid,
    )
