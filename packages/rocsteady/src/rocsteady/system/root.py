"""Where facts are read from: the live machine, a folder that looks like one, or a recording.

Paths are absolute and written with forward slashes on every system (``/sys/...``, ``C:/Users/...``,
and ``/HKLM/...`` for the Windows registry), so that a machine can be replayed on another one.
Every operation either answers or raises ``OSError``; absence is ``FileNotFoundError``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from typing import Protocol

from rocsteady.model import Value

TEXT_LIMIT = 64 * 1024  # bytes; no fact we read is longer
HIPINFO = "hipInfo.exe"  # the HIP SDK's tool for Windows
LINK_LIMIT = 40  # as Linux: more is a loop
PATH_LIMIT = 4096  # characters; as Linux, and no path is longer once its links are followed


class Device(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device node, and what the user who looks may do with it."""

    mode: str  # octal, as chmod takes it
    uid: int
    gid: int
    access: str  # "rw", "r", "w" or ""


class Disk(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    total: int  # bytes
    free: int  # bytes that an ordinary user may still take
    filesystem: str  # "ext4", "nfs4"; "" where it is not known
    writable: bool


class User(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uid: int
    groups: dict[str, str]  # gid to name; the gid again where the name is not known


class Root(Protocol):
    @property
    def platform(self) -> str:
        """The system, named as ``sys.platform`` does: "linux", "win32"."""

    @property
    def folder(self) -> str:
        """The working folder."""

    @property
    def python(self) -> str | None:
        """The interpreter that the user named."""

    @property
    def own_prefix(self) -> str:
        """The environment that rocsteady itself runs in; "" if that is elsewhere."""

    @property
    def environment(self) -> Mapping[str, str] | None:
        """The variables in force; None if that cannot be known."""

    @property
    def user(self) -> User | None:
        """Who looks; None if that cannot be known."""

    def text(self, path: str) -> str:
        """Return the text of a regular file."""

    def piece(self, path: str, offset: int, size: int) -> bytes:
        """Return some bytes of a regular file."""

    def names(self, path: str) -> tuple[str, ...]:
        """Return what a folder holds."""

    def is_folder(self, path: str) -> bool:
        """Whether it is a folder; an error if nothing is there."""

    def resolve(self, path: str) -> str:
        """Return the path without links."""

    def device(self, path: str) -> Device:
        """Describe a device node."""

    def disk(self, path: str) -> Disk:
        """Describe the file system below a folder."""

    def answer(self, path: str) -> str:
        """Return what a program says: an interpreter of itself, hipinfo of the GPUs."""


def resolve_inside(path: str, readlink: Callable[[str], str | None]) -> str:
    """Follow links as a process locked into the root would: ``..`` never climbs above it."""
    pending = _parts(path)
    if ".." in pending:
        raise OSError(errno.EINVAL, "'..' is refused", path)
    done: list[str] = []
    links, length = 0, len(path)
    while pending:
        if length > PATH_LIMIT:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        part = pending.pop(0)
        if part == "..":  # from a link's target
            del done[-1:]
            continue
        here = _joined([*done, part])
        target = readlink(here)
        if target is None:
            done.append(part)
            continue
        links += 1
        if links > LINK_LIMIT:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        length += len(target)
        if is_absolute(target):
            done = []
        pending = _parts(target) + pending
    return _joined(done)


def well_formed(text: str) -> str:
    """Replace bytes that are not UTF-8, which Python keeps as lone surrogates in names."""
    return text.encode("utf-8", "replace").decode()


def is_absolute(path: str) -> bool:
    """Whether a path is absolute on either system."""
    return path.startswith("/") or path[1:3] == ":/"


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _joined(parts: list[str]) -> str:
    path = "/".join(parts)
    return path if path[1:2] == ":" and path[2:3] in ("", "/") else f"/{path}"
