"""A copy of a project's folder, for a drill where nothing better can be had."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path, PurePath
from typing import NamedTuple

from rocsteady.errors import RocsteadyError
from rocsteady.plan.sandbox.folder_tree import CACHES, FolderTree, read_folder_tree
from rocsteady.wording import size as written_size

MOST_BYTES = 4 << 30  # that are copied where blocks cannot be shared
RESERVE = 1 << 30  # bytes that stay free
NOT_COPIED = {*CACHES, ".git"}
FICLONE = 0x40049409  # an ioctl that makes two files share their blocks until one is written to
NAMED = 3  # large files in a refusal


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
    """A file to be copied."""

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
    files = list(_files(project, "", tree, without, {os.path.realpath(project)}))
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
    place, real = os.path.realpath(project / path), os.path.realpath(project)
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
        target = os.path.realpath(folder / link)
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
    """Make the links that lead to something inside the project."""
    inside = os.path.realpath(project)
    for link in tree.links():
        target = PurePath(os.path.realpath(project / link))
        if target.is_relative_to(inside) and not is_left_out(link):
            (copy / link).symlink_to(copy / target.relative_to(inside))


def is_left_out(path: str) -> bool:
    """Tell what no copy needs: caches, and the repository."""
    return not NOT_COPIED.isdisjoint(PurePath(path).parts)


def _check_room(files: list[FileToCopy], copy: Path) -> None:
    size = sum(file.size for file in files)
    free = shutil.disk_usage(copy).free - RESERVE
    if size <= min(MOST_BYTES, free):
        return
    largest = sorted(files, key=lambda file: -file.size)[:NAMED]
    names = ", ".join(f"{file.path} ({written_size(file.size)})" for file in largest)
    limit = max(0, min(MOST_BYTES, free))
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
