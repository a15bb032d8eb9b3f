"""Write a file so that it is either whole or not there."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

PRIVATE = 0o600


def open_own(path: Path, flags: int) -> int:
    """Open a file to write to, perhaps a new one: no link or pipe, and only this user's to read."""
    flags |= os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), PRIVATE)
    try:
        _make_own(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _make_own(descriptor: int, path: Path) -> None:
    about = os.fstat(descriptor)
    if stat.S_ISFIFO(about.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe", str(path))
    if os.name != "nt" and stat.S_ISREG(about.st_mode):
        if about.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
        os.fchmod(descriptor, PRIVATE)


def write_whole(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Write beside ``path``, flush to disk, then rename over it."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    unfinished = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if mode != PRIVATE:
            unfinished.chmod(mode)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
