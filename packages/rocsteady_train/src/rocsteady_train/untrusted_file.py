"""Open and read files that others can write.

A page, a checkpoint, a log or a recording may be anything by the time it is opened: a FIFO without
a writer, a device, a link, a file of 1 TB. Everything here accepts only regular files, never blocks
on anything else, and reads a bounded number of bytes. What is refused is an OSError.

A file on a file system that does not answer (a stuck network mount) can still block: only another
process could wait for it.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_NO_TERMINAL = getattr(os, "O_NOCTTY", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_ACCESS_TIME = getattr(os, "O_NOATIME", 0)


def open_regular(path: Path | str, *, follow: bool = True, writable: bool = False) -> io.FileIO:
    """Open a regular file without a buffer. ``follow``: the path itself may be a link to one."""
    if not stat.S_ISREG(os.stat(path, follow_symlinks=follow).st_mode):  # noqa: PTH116 - or a text
        raise _refused(path)  # not even opened: opening a device or a FIFO can have effects
    flags = (os.O_RDWR if writable else os.O_RDONLY) | _NONBLOCK | _NO_TERMINAL | _BINARY
    descriptor = open_unnoticed(path, flags if follow else flags | _NO_FOLLOW)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was replaced in between
        os.close(descriptor)
        raise _refused(path)
    return io.FileIO(descriptor, "r+" if writable else "r")


def open_unnoticed(path: Path | str, flags: int, folder: int | None = None) -> int:
    """Open a file whose time of access goes on to tell when somebody else read it."""
    try:
        return os.open(path, flags | _NO_ACCESS_TIME, dir_fd=folder)
    except PermissionError:  # only its owner may ask for that
        return os.open(path, flags, dir_fd=folder)


def read_regular(path: Path | str, limit: int, *, follow: bool = True) -> bytes:
    """Return the content of a regular file of at most ``limit`` bytes."""
    content = read_head(path, limit + 1, follow=follow)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit} bytes", str(path))
    return content


def read_head(path: Path | str, limit: int, *, follow: bool = True) -> bytes:
    """Return up to ``limit`` bytes from the start of a regular file."""
    with open_regular(path, follow=follow) as stream:
        return read_exactly(stream, limit)


def read_tail(path: Path | str, limit: int, *, follow: bool = True) -> bytes:
    """Return up to ``limit`` bytes from the end of a regular file."""
    with open_regular(path, follow=follow) as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - limit))
        return read_exactly(stream, limit)


def read_exactly(stream: io.RawIOBase, limit: int) -> bytes:
    """Return ``limit`` bytes from where a stream is, or as many as there are."""
    pieces: list[bytes] = []
    left = limit
    while left and (piece := stream.read(min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _refused(path: Path | str) -> OSError:
    return OSError(errno.EINVAL, "not a regular file", str(path))
