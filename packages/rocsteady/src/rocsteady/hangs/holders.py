"""Who else holds what a thread waits for: pipes, sockets and shared memory, inside and outside.

Everything is read when first asked for and then kept, so one instance is one snapshot. Outside the
tree, only processes of the same user that may be read are examined. Others cannot have an unnamed
pipe or a deleted file of ours, unless somebody handed it to them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from rocsteady.hangs import sockets
from rocsteady.system import procfs

READ_ONLY, WRITE_ONLY, ACCESS = 0, 1, 3  # as in open(2)
MAX_WATCHED = 4096  # descriptors of one epoll
SHARED_FOLDER = "/dev/shm/"  # noqa: S108 - where POSIX semaphores and shared memory are
OTHERS = 0o077  # permissions of group and others
_MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ...([sp]) \S+ (\S+ [0-9]+) *(.*)$", re.MULTILINE)
_PYTHON = re.compile(rb"/(?:lib)?python[0-9.]*(?:[a-z]*\.so[0-9.]*)?$")
_UNREADABLE = (OSError, ValueError, IndexError)


class Descriptors:
    """The descriptors of all processes of a tree."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = tuple(pids)
        self._by_process: dict[int, dict[int, str]] = {}

    def kind(self, pid: int, number: int) -> str:
        """Return what a descriptor is: ``pipe:[7]``, a path; "" if it is not known."""
        return self._of(pid).get(number, "")

    def targets(self, pid: int, number: int) -> list[int]:
        """Return the descriptors that an epoll watches. Raises OSError if they cannot be read."""
        info = procfs.text(f"{procfs.PROC}/{pid}/fdinfo/{number}", procfs.LARGE)
        lines = [line.split() for line in info.splitlines() if line.startswith("tfd:")]
        targets = [int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()]
        return targets[:MAX_WATCHED]

    def holders(self, kind: str) -> set[int]:
        """Return the processes of the tree that hold a pipe or socket."""
        return {pid for pid, _ in self._holders.get(kind, ())}

    def pipe_holders(self, kind: str, *, reading: bool) -> set[int]:
        """Return who holds the wanted end of a pipe."""
        other = WRITE_ONLY if reading else READ_ONLY
        return {
            pid
            for pid, number in self._holders.get(kind, ())
            if _access(pid, number) not in (other, None)
        }

    def unix_peer(self, kind: str) -> str:
        """Return the other end of a unix socket; "" if it has none."""
        return _socket(self._unix_peers.get(_inode(kind)))

    def tcp_peer(self, kind: str) -> str:
        """Return the other end of a TCP connection inside this machine; "" if it has none."""
        return _socket(self._tcp_peers.get(_inode(kind)))

    def process_number(self, pid: int, number: int) -> int:
        """Return the process that a pidfd stands for, 0 if it has ended. Raises OSError."""
        described = procfs.fields(f"{procfs.PROC}/{pid}/fdinfo/{number}").get("Pid", "")
        return procfs.leading_number(described)

    def _of(self, pid: int) -> dict[int, str]:
        if pid not in self._by_process:
            try:
                self._by_process[pid] = procfs.descriptors(pid)
            except OSError:
                self._by_process[pid] = {}
        return self._by_process[pid]

    @cached_property
    def _holders(self) -> dict[str, list[tuple[int, int]]]:
        holders: dict[str, list[tuple[int, int]]] = {}
        for pid in self._pids:
            for number, kind in self._of(pid).items():
                if kind.startswith(("pipe:", "socket:")):
                    holders.setdefault(kind, []).append((pid, number))
        return holders

    @cached_property
    def _unix_peers(self) -> dict[int, int]:
        return sockets.unix_peers()

    @cached_property
    def _tcp_peers(self) -> dict[int, int]:
        return sockets.tcp_peers(self._pids[0]) if self._pids else {}


class Mapping(NamedTuple):
    """One shared mapping: what it is of, as the kernel spells device and inode."""

    file: bytes
    name: str


class Outsiders:
    """All processes of this user that are not in the tree."""

    def __init__(self, tree: Collection[int]) -> None:
        self._tree = frozenset(tree)
        self._maps: dict[int, bytes] = {}

    def holder(self, kind: str) -> int | None:
        """Return a process outside that holds this pipe or socket, if there is one."""
        return self._held.get(kind)

    def mapping(self, pid: int, address: int) -> Mapping | None:
        """Return the shared mapping that an address lies in; None: it is private memory.

        Raises OSError if the memory of the process cannot be described.
        """
        for found in _MAPPING.finditer(self._map(pid)):
            if int(found[1], 16) <= address < int(found[2], 16):
                return Mapping(found[4], _text(found[5])) if found[3] == b"s" else None
        raise ProcessLookupError(pid)

    def in_pythons_data(self, pid: int, address: int) -> bool:
        """Tell whether an address lies in the variables of the interpreter itself."""
        before, ends = b"", 0
        for found in _MAPPING.finditer(self._map(pid)):
            start, end = int(found[1], 16), int(found[2], 16)
            name = found[5] or (before if start == ends else b"")  # what is zero at first follows
            if start <= address < end:
                return _PYTHON.search(name) is not None
            before, ends = name, end
        return False

    def maps(self, pid: int, mapping: Mapping) -> bool:
        """Tell whether a process of the tree has the same memory mapped, or if that is unknown."""
        return self._has(pid, mapping) is not False

    def mapper(self, pid: int, mapping: Mapping) -> str:
        """Say who outside the tree has the memory mapped, or could; "" if nobody does."""
        if not self._is_ours_alone(pid, mapping):
            return f"other processes may use {mapping.name}"
        other = next((each for each in self._pids if self._has(each, mapping)), None)
        return f"process {other}, which is not part of the run, has mapped it" if other else ""

    def _has(self, pid: int, mapping: Mapping) -> bool | None:
        try:
            return b" " + mapping.file + b" " in self._map(pid)
        except _UNREADABLE:
            return None

    def _is_ours_alone(self, pid: int, mapping: Mapping) -> bool:
        """Tell a file that has no name, or that only this user may open, from one that others may.

        A file on a disk counts as open to others: programs in other containers may have it too.
        """
        if mapping.name.endswith(" (deleted)") or not mapping.name:
            return True
        if not mapping.name.startswith(SHARED_FOLDER):
            return False
        try:
            about = Path(f"{procfs.PROC}/{pid}/root{mapping.name}").stat()
        except OSError:
            return False
        same = mapping.file.endswith(b" %d" % about.st_ino)
        return same and about.st_uid == _user() and not about.st_mode & OTHERS

    def _map(self, pid: int) -> bytes:
        if pid not in self._maps:
            if procfs.stat(pid).state == "D":  # its map may be locked
                raise ProcessLookupError(pid)
            self._maps[pid] = procfs.read(f"{procfs.PROC}/{pid}/maps", procfs.LARGE)
        return self._maps[pid]

    @cached_property
    def _pids(self) -> tuple[int, ...]:
        return tuple(
            pid
            for pid in procfs.numbers(procfs.PROC)
            if pid not in self._tree and _is_examined(pid, _user())
        )

    @cached_property
    def _held(self) -> dict[str, int]:
        held: dict[str, int] = {}
        for pid in self._pids:
            try:
                kinds = procfs.descriptors(pid).values()
            except OSError:
                continue
            held.update((kind, pid) for kind in kinds if kind.startswith(("pipe:", "socket:")))
        return held


def _is_examined(pid: int, user: int) -> bool:
    """Tell a process of this user; for the superuser, any that is not the kernel's own."""
    try:
        ours = user in (0, Path(f"{procfs.PROC}/{pid}").stat().st_uid)
        return ours and not procfs.stat(pid).flags & procfs.KERNEL_THREAD
    except _UNREADABLE:
        return False


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else -1


def _socket(inode: int | None) -> str:
    return f"socket:[{inode}]" if inode else ""


def _inode(kind: str) -> int:
    return procfs.leading_number(kind[len("socket:[") :].rstrip("]"))


def _access(pid: int, number: int) -> int | None:
    try:
        flags = procfs.fields(f"{procfs.PROC}/{pid}/fdinfo/{number}").get("flags", "")
        return int(flags, 8) & ACCESS
    except (OSError, ValueError):
        return None
