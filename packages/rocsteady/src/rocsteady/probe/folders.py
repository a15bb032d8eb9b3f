"""What is in a project's folder: to see that it stays as it is, and to know what to copy."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path, PurePath
from typing import NamedTuple

from msgspec import field
from msgspec.structs import replace

from rocsteady.errors import RocsteadyError
from rocsteady.model import Value
from rocsteady.system.real_path import real_path
from rocsteady.wording import size as written_size

if sys.platform != "win32":
    import fcntl

MAX_ENTRIES = 200_000  # looked at; more is not looked over in reasonable time
CACHES = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules"}
CHANGES_NAMED = 5  # paths
PASSED_OVER = {*CACHES, ".rocsteady"}  # a run may be going on there meanwhile
# Names in a folder that is an environment; an empty pyvenv.cfg among other files makes none.
OF_ENVIRONMENT = ({"conda-meta"}, {"pyvenv.cfg", "bin"}, {"pyvenv.cfg", "Scripts"})


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
    environments: tuple[str, ...]  # folders that are not copied
    whole: bool  # False: there is more
    in_environments: dict[str, FolderEntry] | None = field(default_factory=dict)  # None: too many

    def files(self) -> Iterator[tuple[str, FolderEntry]]:
        return ((path, it) for path, it in self.entries.items() if stat.S_ISREG(it.mode))

    def folders(self) -> Iterator[str]:
        return (path for path, it in self.entries.items() if stat.S_ISDIR(it.mode))

    def links(self) -> Iterator[str]:
        return (path for path, it in self.entries.items() if stat.S_ISLNK(it.mode))


def read_folder_tree(folder: Path) -> FolderTree:
    """Look at everything in a folder; what cannot be read has nothing in it."""
    entries, environments, whole = _read(folder, [""], entered=False)
    return FolderTree(entries=entries, environments=tuple(environments), whole=whole)


def read_to_compare(folder: Path) -> FolderTree:
    """Look at the environments in a folder, too: a copy has links to them."""
    tree = read_folder_tree(folder)
    inside, _, whole = _read(folder, list(tree.environments), entered=True)
    return replace(tree, in_environments=inside if whole else None)


def _read(
    folder: Path, waiting: list[str], *, entered: bool
) -> tuple[dict[str, FolderEntry], list[str], bool]:
    entries: dict[str, FolderEntry] = {}
    environments: list[str] = []
    while waiting and len(entries) < MAX_ENTRIES:
        place = waiting.pop()
        try:
            with os.scandir(folder / place) as found:
                inside = sorted(found, key=lambda it: it.name)
        except OSError:
            continue
        names = {it.name for it in inside}
        if place and not entered and any(names >= own for own in OF_ENVIRONMENT):
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
    return entries, environments, not waiting


def differences(before: FolderTree, after: FolderTree) -> tuple[str, ...] | None:
    """Return the paths that are not as they were; None: there is too much to compare."""
    if not (before.whole and after.whole):
        return None
    if before.in_environments is None or after.in_environments is None:
        return None
    old = before.entries | before.in_environments
    new = after.entries | after.in_environments
    return tuple(sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)))


def changes_in_words(changes: tuple[str, ...] | None) -> str:
    if changes is None:
        return "this folder has too many files to check whether any was changed"
    if not changes:
        return "nothing in this folder was changed"
    more = len(changes) - CHANGES_NAMED
    named = ", ".join(changes[:CHANGES_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"files in this folder were changed: {named}"


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


MAX_COPIED_BYTES = 4 << 30  # that are copied where blocks cannot be shared
RESERVE = 1 << 30  # bytes that stay free
NOT_COPIED = {*CACHES, ".git"}
FICLONE = 0x40049409  # an ioctl that makes two files share their blocks until one is written to
FILES_NAMED = 3  # large files in a refusal


def clone(source: Path, target: Path) -> bool:
    """Copy by sharing blocks, to where there is no file yet; False if this file system cannot."""
    with source.open("rb") as original, target.open("xb") as copy:
        try:
            fcntl.ioctl(copy.fileno(), FICLONE, original.fileno())
        except OSError:
            target.unlink()
            return False
    return True


class FileToCopy(NamedTuple):
    source: Path
    path: str  # from the folder of the copy
    size: int


def copy_project(
    project: Path, copy: Path, tree: FolderTree, without: Collection[str], *, link: bool = True
) -> None:
    """Copy a folder; refuse what is too large. Links that lead out of it are followed.

    Environments in it are not copied: there are links to them, or with ``link`` false empty folders
    in which they can be shown.
    """
    if not tree.whole:
        raise RocsteadyError(f"{project} has too many files to be copied")
    files = list(_files(project, "", tree, without, {real_path(project)}))
    copy.mkdir(parents=True)
    try:
        shares = bool(files) and _copied(files[0], copy, shares=True)
        if not shares:
            _check_room(files, copy)
        for path in tree.folders():
            if not is_left_out(path):
                (copy / path).mkdir(parents=True, exist_ok=True)
        for wanted in islice(files, int(shares), None):
            _copied(wanted, copy, shares=shares)
        for path in tree.environments:
            if link:
                (copy / path).symlink_to(project / path)
            else:
                (copy / path).mkdir(parents=True)
        _link(project, copy, tree)
    except OSError as error:
        raise RocsteadyError(f"copying failed: {error.filename}: {error.strerror}") from None


def moved(word: str, project: Path, copy: Path) -> str:
    """Return a word of a command in which a path into the project leads into its copy."""
    option, equals, text = word.rpartition("=") if word.startswith("-") else ("", "", word)
    path = PurePath(text)
    if not (path.is_absolute() or ".." in path.parts):
        return word
    place, real = real_path(project / path), real_path(project)
    if PurePath(place).is_relative_to(real):
        return f"{option}{equals}{copy / PurePath(place).relative_to(real)}"
    return word if path.is_absolute() else f"{option}{equals}{place}"


def _files(
    folder: Path, at: str, tree: FolderTree, without: Collection[str], known: set[str]
) -> Iterator[FileToCopy]:
    for path, entry in tree.files():
        if not is_left_out(path) and path not in without:
            yield FileToCopy(folder / path, os.path.join(at, path), entry.size)  # noqa: PTH118
    for link in tree.links():
        target = real_path(folder / link)
        out = not any(PurePath(target).is_relative_to(each) for each in known)
        if not out or is_left_out(link) or not os.path.exists(target):  # noqa: PTH110
            continue
        behind, shown = Path(target), os.path.join(at, link)  # noqa: PTH118
        if behind.is_file():
            yield FileToCopy(behind, shown, behind.stat().st_size)
        elif behind.is_dir():
            inner = read_folder_tree(behind)
            if not inner.whole:
                raise RocsteadyError(f"{link} leads to too many files to be copied")
            yield from _files(behind, shown, inner, (), known | {target})


def _link(project: Path, copy: Path, tree: FolderTree) -> None:
    inside = real_path(project)
    for link in tree.links():
        target = PurePath(real_path(project / link))
        if target.is_relative_to(inside) and not is_left_out(link):
            (copy / link).symlink_to(copy / target.relative_to(inside))


def is_left_out(path: str) -> bool:
    return not NOT_COPIED.isdisjoint(PurePath(path).parts)


def _check_room(files: list[FileToCopy], copy: Path) -> None:
    size = sum(file.size for file in files)
    free = shutil.disk_usage(copy).free - RESERVE
    if size <= min(MAX_COPIED_BYTES, free):
        return
    largest = sorted(files, key=lambda file: -file.size)[:FILES_NAMED]
    names = ", ".join(f"{file.path} ({written_size(file.size)})" for file in largest)
    limit = max(0, min(MAX_COPIED_BYTES, free))
    raise RocsteadyError(
        f"{written_size(size)} would have to be copied, but only {written_size(limit)} can be:"
        f" {names}. No copy is needed if the kernel allows unprivileged overlay mounts, or with a"
        " --scratch folder on the same Btrfs or XFS file system"
    )


def _copied(wanted: FileToCopy, copy: Path, *, shares: bool) -> bool:
    """Copy one file. False: its blocks could not be shared."""
    target = copy / wanted.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if shares and clone(wanted.source, target):
        shutil.copystat(wanted.source, target)
        return True
    if not shares:
        shutil.copy2(wanted.source, target)
    return False
