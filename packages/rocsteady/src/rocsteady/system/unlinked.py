"""Files that are copied or moved without following a link, in any part of their paths."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rocsteady_train.untrusted_file import open_unnoticed

FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_PATH", 0)
FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


@contextlib.contextmanager
def parent_of(path: Path, *, make: bool = False) -> Iterator[int]:
    """Open the folder of an absolute path, part by part."""
    folder = os.open(path.anchor, FOLDER)
    try:
        for part in path.parent.parts[1:]:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=folder)
            inner = os.open(part, FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def copy_file(source: Path, target: Path) -> None:
    """Copy a regular file with its mode and times, in place of what is there."""
    part = f".{target.name}.part"
    with parent_of(source) as there, parent_of(target, make=True) as here:
        opened = open_unnoticed(source.name, os.O_RDONLY | FILE, there)
        with os.fdopen(opened, "rb") as content:
            about = os.fstat(content.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(source))
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part, dir_fd=here)
            created = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=here)
            with os.fdopen(created, "wb") as copy:
                _copy_content(content, copy, about.st_size)
                os.fchmod(created, stat.S_IMODE(about.st_mode))
                os.utime(created, ns=(about.st_atime_ns, about.st_mtime_ns))
        os.rename(part, target.name, src_dir_fd=here, dst_dir_fd=here)


def _copy_content(content: BinaryIO, copy: BinaryIO, size: int) -> None:
    """Copy what a file has: holes stay holes, and a file system that can share blocks does."""
    if not hasattr(os, "copy_file_range"):
        shutil.copyfileobj(content, copy, 1 << 20)
        copy.flush()
        return
    source, target, at = content.fileno(), copy.fileno(), 0
    while at < size:
        begin, end = _next_data(source, at, size)
        os.lseek(target, begin, os.SEEK_SET)
        try:
            copied = os.copy_file_range(source, target, end - begin, begin)
        except OSError:  # to another file system
            copied = os.sendfile(target, source, begin, end - begin)
        at = begin + copied if copied else size  # it became shorter meanwhile
    os.ftruncate(target, size)


def _next_data(source: int, at: int, size: int) -> tuple[int, int]:
    """Return where the next data begins and ends; all the rest, where holes are not known."""
    try:
        begin = os.lseek(source, at, os.SEEK_DATA)
        return begin, min(os.lseek(source, begin, os.SEEK_HOLE), size)
    except OSError as error:
        return (size if error.errno == errno.ENXIO else at), size


def move_file(source: Path, target: Path) -> None:
    """Move a file, also to another file system."""
    with parent_of(source) as there, parent_of(target, make=True) as here:
        try:
            os.rename(source.name, target.name, src_dir_fd=there, dst_dir_fd=here)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            copy_file(source, target)
            os.unlink(source.name, dir_fd=there)
