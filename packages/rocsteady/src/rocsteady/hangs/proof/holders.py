"""Who else holds what a thread waits for: pipes, sockets and shared memory, inside and outside.

Everything is read when first asked for and then kept, so one instance is one snapshot. Outside the
tree, only processes of the same user that may be read are examined. Others cannot have an unnamed
pipe or a file without links of ours, unless somebody handed it to them.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import socket
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from rocsteady.hangs.proof.open_files import EVENT, OpenFiles, information, open_files
from rocsteady.system import procfs

READ_ONLY, WRITE_ONLY, ACCESS = 0, 1, 3  # as in open(2)
DEVICES = ("/dev/kfd", "/dev/dri/", "/dev/nvidia", "/dev/accel/")
MAX_WATCHED = 4096  # descriptors of one epoll
SHARED_FOLDER = "/dev/shm/"  # noqa: S108 - where POSIX semaphores and shared memory are
MAX_NAMES = 20_000  # in that folder, that are looked through for one file
DELETED = " (deleted)"  # of a path: by this name, but a link of the file may have another one
# Any process of the user attaches System V memory by its number. A memfd is made to be handed to
# others, who may also open it by /proc/PID/fd.
FOR_OTHERS = ("/SYSV", "/memfd:")
NAMELESS = ("/dev/zero (deleted)", "[anon_shmem:")  # never had a link
# Whoever has one of the first may have told the kernel to signal an eventfd: of an io_uring, of a
# virtual machine, of a network card. Of these, the second are known not to, or not to be used so:
# a syncobj of /dev/dri can, but ROCm waits for the GPU by ioctls of /dev/kfd (libhsakmt).
SIGNALS = ("/dev/", "anon_inode:", "/[aio]")
SIGNALS_NOT = (
    *("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"),
    *("/dev/tty", "/dev/pts/", "/dev/ptmx", "/dev/shm/", "/dev/kfd", "/dev/dri/"),  # noqa: S108
    *("anon_inode:[event", "anon_inode:[timerfd]", "anon_inode:[signalfd]"),
    *("anon_inode:[pidfd]", "anon_inode:inotify"),
)
_MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ...([sp]) \S+ (\S+ [0-9]+) *(.*)$", re.MULTILINE)
_TARGET = re.compile(r"^tfd: +([0-9]+)(?:.* ino:([0-9a-f]+))?", re.MULTILINE)
_PYTHON = re.compile(rb"/(?:lib)?python[0-9.]*(?:[a-z]*\.so[0-9.]*)?$")
_UNREADABLE = (OSError, ValueError, IndexError)
UNIX, NETLINK = 1, 16  # address families; Windows lacks the names
SOCK_DIAG, BY_FAMILY = 4, 20  # NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY
DUMP_REQUEST = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
SHOW_PEER, PEER = 0x04, 2  # UDIAG_SHOW_PEER, UNIX_DIAG_PEER
SHOW_PENDING, PENDING = 0x08, 3  # UDIAG_SHOW_ICONS, UNIX_DIAG_ICONS: connections not yet accepted
ALL_STATES = 0xFFFFFFFF
PIDFD_GETFD = 438  # the same number on every architecture
ANSWER_WITHIN = 0.2  # seconds; the kernel answers in less than a millisecond
MAX_ANSWERS = 1000  # of 64 KiB each

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBHIIIII")
_MESSAGE = struct.Struct("=BBBBIII")  # family, type, state, pad, inode, cookie
_ATTRIBUTE = struct.Struct("=HH")
_TIME = struct.Struct("@ll")
_CREDENTIALS = struct.Struct("=iii")
_IPV4_IN_IPV6 = "0000000000000000FFFF0000"


class Descriptors:
    """What all processes of a tree hold open."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = tuple(pids)
        self._files: dict[int, OpenFiles] = {}
        self._named_events: dict[int, list[tuple[str, str]]] = {}

    def kind(self, pid: int, number: int) -> str:
        """Return what a descriptor is: ``pipe:[7]``, a path; "" if it is not known."""
        return self._of(pid).kinds.get(f"fd/{number}", "")

    def is_apart(self, pid: int, tid: int) -> bool:
        """Whether the numbers of a thread's descriptors stand for something else."""
        return tid in self._of(pid).apart

    def targets(self, pid: int, number: int) -> list[int]:
        """Return the descriptors that an epoll watches. Raises OSError if they cannot be read."""
        info = procfs.text(f"{procfs.PROC}/{pid}/fdinfo/{number}", procfs.LARGE)
        targets = [(int(found[1]), int(found[2] or "0", 16)) for found in _TARGET.finditer(info)]
        for target, inode in targets[:MAX_WATCHED]:
            # It is watched under a number that may be closed by now, or stand for something else.
            if inode and Path(f"{procfs.PROC}/{pid}/fd/{target}").stat().st_ino != inode:
                raise FileNotFoundError(target)
        return [target for target, _ in targets[:MAX_WATCHED]]

    def holders(self, kind: str, other_end: str = "") -> set[int]:
        """Return the processes of the tree that hold a pipe or socket, or may."""
        seen = {pid for pid, _ in self._holders.get(kind, ())}
        return seen | self._hidden_since(kind, other_end)

    def pipe_holders(self, kind: str, *, reading: bool) -> set[int]:
        """Return who holds the wanted end of a pipe, or may."""
        other = WRITE_ONLY if reading else READ_ONLY
        seen = {pid for pid, at in self._holders.get(kind, ()) if _access(pid, at) != other}
        return seen | self._hidden_since(kind)

    def submitted(self, pids: Collection[int]) -> bool:
        """Whether one of these has given something to the kernel that is not done yet."""
        return any(self._of(pid).submitted for pid in pids)

    def connections(self) -> Iterator[tuple[int, int, str]]:
        """Yield the connected unix sockets of the tree: process, descriptor, the other end."""
        for kind, places in self._holders.items():
            peer = self.unix_peer(kind) if kind.startswith("socket:") else ""
            if peer and peer not in self._holders:
                yield from ((pid, int(at[3:]), peer) for pid, at in places if at.startswith("fd/"))

    def _hidden_since(self, *kinds: str) -> set[int]:
        """Return who cannot be looked at and may hold one of these: it has what its parent had.

        So it is younger than one of those that hold it still.
        """
        holders = {pid for kind in kinds for pid, _ in self._holders.get(kind, ())}
        first = min((_start(pid, 0) for pid in holders), default=math.inf) if self._hidden else 0
        return {pid for pid in self._hidden if holders and _start(pid, math.inf) >= first}

    @cached_property
    def _hidden(self) -> tuple[int, ...]:
        return tuple(pid for pid in self._pids if self._of(pid).hidden)

    def event(self, pid: int, number: int) -> str:
        """Return the name of an eventfd, the same in all processes; "" if the kernel has none."""
        return next((name for at, name in self._events(pid) if at == f"fd/{number}"), "")

    def event_holders(self, name: str) -> set[int]:
        """Return the processes of the tree that hold an eventfd, or may."""
        return {
            pid
            for pid in self._pids
            if self._of(pid).hidden or any(name == each for _, each in self._events(pid))
        }

    def signals(self, pid: int) -> str:
        """Return a descriptor by which the kernel may have been told to signal an eventfd."""
        return next(filter(may_signal, self._of(pid).kinds.values()), "")

    def unix_peer(self, kind: str) -> str:
        """Return the other end of a unix socket; "" if it has none."""
        return _socket(self._unix_peers.get(_inode(kind)))

    def tcp_peer(self, kind: str) -> str:
        """Return the other end of a TCP connection inside this machine; "" if it has none."""
        return _socket(self._tcp_peers.get(_inode(kind)))

    def unanswered(self, pid: int) -> int:
        """Count the TCP connections of a process that the kernel gets no answer to."""
        if not self._unanswered:
            return 0
        kinds = self._of(pid).kinds.values()
        mine = {_inode(kind) for kind in kinds if kind.startswith("socket:")}
        return len(mine & self._unanswered)

    def process_number(self, pid: int, number: int) -> int:
        """Return the process that a pidfd stands for, 0 if it has ended. Raises OSError."""
        described = procfs.fields(f"{procfs.PROC}/{pid}/fdinfo/{number}").get("Pid", "")
        return procfs.leading_number(described)

    def _of(self, pid: int) -> OpenFiles:
        if pid not in self._files:
            self._files[pid] = open_files(pid)
        return self._files[pid]

    def _events(self, pid: int) -> list[tuple[str, str]]:
        if pid not in self._named_events:
            self._named_events[pid] = list(_events(pid, self._of(pid).kinds))
        return self._named_events[pid]

    @cached_property
    def _holders(self) -> dict[str, list[tuple[int, str]]]:
        holders: dict[str, list[tuple[int, str]]] = {}
        for pid in self._pids:
            for place, kind in self._of(pid).kinds.items():
                if kind.startswith(("pipe:", "socket:")):
                    holders.setdefault(kind, []).append((pid, place))
        return holders

    @cached_property
    def _unix_peers(self) -> dict[int, int]:
        return unix_peers()

    @cached_property
    def _tcp_peers(self) -> dict[int, int]:
        return tcp_peers(self._pids[0]) if self._pids else {}

    @cached_property
    def _unanswered(self) -> set[int]:
        return tcp_unanswered(self._pids[0]) if self._pids else set()


class Mapping(NamedTuple):
    """One shared mapping: what it is of, as the kernel spells device and inode, and where it is."""

    file: bytes
    name: str
    start: int
    end: int

    @property
    def inode(self) -> tuple[int, int]:
        """Device and inode, as ``stat`` has them."""
        device, inode = self.file.split()
        major, minor = (int(number, 16) for number in device.split(b":"))
        return os.makedev(major, minor), int(inode)


class Outsiders:
    """All processes of this user that are not in the tree."""

    def __init__(self, tree: Collection[int]) -> None:
        self._tree = frozenset(tree)
        self._maps: dict[int, bytes] = {}
        self._opened: dict[int, dict[tuple[int, int], int]] = {}

    def holder(self, *kinds: str) -> int | None:
        """Return a process outside that holds one of these: pipes, sockets, eventfds."""
        return next((self._held[kind] for kind in kinds if kind in self._held), None)

    def stranger(self, connections: Iterable[tuple[int, int, str]]) -> int | None:
        """Return who outside has a connection to the tree and cannot be looked at.

        It may hold whatever was sent through that. Of what belongs to other users nothing is known.
        """
        hidden = {pid for pid, files in self._files.items() if files.hidden}
        for pid, number, peer in connections if hidden else ():
            holder = self.holder(peer)
            if holder is None:
                holder, user = peer_credentials(pid, number)
                if holder in self._tree or user not in (_user(), -1):
                    continue
            if holder in hidden or holder == 0:
                return holder
        return None

    def signals(self, pid: int) -> str:
        """Return mapped memory by which the kernel may have been told to signal an eventfd.

        Raises OSError if the memory of the process cannot be described.
        """
        names = (_text(found[5]) for found in _MAPPING.finditer(self._map(pid)))
        return next(filter(may_signal, names), "")

    def mapping(self, pid: int, address: int) -> Mapping | None:
        """Return the shared mapping that an address lies in; None: it is private memory.

        Raises OSError if the memory of the process cannot be described.
        """
        for found in _MAPPING.finditer(self._map(pid)):
            start, end = int(found[1], 16), int(found[2], 16)
            if start <= address < end:
                shared = found[3] == b"s"
                return Mapping(found[4], _text(found[5]), start, end) if shared else None
        raise ProcessLookupError(pid)

    def in_pythons_data(self, pid: int, address: int) -> bool:
        """Return whether an address lies in the variables of the interpreter itself."""
        before, ends = b"", 0
        for found in _MAPPING.finditer(self._map(pid)):
            start, end = int(found[1], 16), int(found[2], 16)
            name = found[5] or (before if start == ends else b"")  # what is zero at first follows
            if start <= address < end:
                return _PYTHON.search(name) is not None
            before, ends = name, end
        return False

    def maps(self, pid: int, mapping: Mapping) -> bool:
        """Whether a process of the tree has the memory mapped or open, or that is unknown."""
        return self._has(pid, mapping) is not False

    def mapper(self, pid: int, mapping: Mapping) -> str:
        """Name who outside the tree has the memory, or could open it; "" if nobody can."""
        if self._can_be_opened(pid, mapping):
            return f"other processes may open {mapping.name}"
        other = next((each for each in self._pids if self._has(each, mapping)), None)
        return f"process {other}, which is not part of the run, has it" if other else ""

    def _has(self, pid: int, mapping: Mapping) -> bool | None:
        """Whether a process has mapped the memory, or has a descriptor by which it can."""
        try:
            mapped = b" " + mapping.file + b" " in self._map(pid)
            return mapped or mapping.inode in self._deleted_files(pid)
        except _UNREADABLE:
            return None

    def _can_be_opened(self, pid: int, mapping: Mapping) -> bool:
        """Whether the memory has a name or a key, so that any process may come to it later.

        Neither a path that ends in "(deleted)" nor a mode of 0600 shows that it has none: the C
        library makes a named semaphore under another name, removes that one and keeps the link.
        Only an inode without links is out of reach. What cannot be found out counts as open.
        """
        if mapping.name.startswith(FOR_OTHERS):
            return True
        if not mapping.name or mapping.name.startswith(NAMELESS):
            return False
        if not mapping.name.endswith(DELETED):
            return True
        links = self._links(pid, mapping)
        return links is None or links > 0

    def _links(self, pid: int, mapping: Mapping) -> int | None:
        """Count the names of a file that is mapped; None if that cannot be known.

        Only the superuser may look at the mapping itself. Others look at a descriptor of the file,
        or for its name, where all names that it can have are in one folder.
        """
        place = f"{procfs.PROC}/{pid}/map_files/{mapping.start:x}-{mapping.end:x}"
        with contextlib.suppress(OSError):
            return Path(place).stat().st_nlink
        for each in self._tree:
            with contextlib.suppress(*_UNREADABLE):
                if mapping.inode in (files := self._deleted_files(each)):
                    return files[mapping.inode]
        if mapping.name.startswith(SHARED_FOLDER):
            return links_below(f"{procfs.PROC}/{pid}/root{SHARED_FOLDER}", mapping.inode)
        return None

    def _deleted_files(self, pid: int) -> dict[tuple[int, int], int]:
        """Return the links of the files that a process has open, of those whose path is gone."""
        if pid not in self._opened:
            self._opened[pid] = {}
            for place, kind in open_files(pid).kinds.items():
                if kind.endswith(DELETED):
                    with contextlib.suppress(OSError):
                        about = Path(f"{procfs.PROC}/{pid}/{place}").stat()
                        self._opened[pid][about.st_dev, about.st_ino] = about.st_nlink
        return self._opened[pid]

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
    def _files(self) -> dict[int, OpenFiles]:
        return {pid: open_files(pid) for pid in self._pids}

    @cached_property
    def _held(self) -> dict[str, int]:
        held = {
            name: pid for pid, its in self._files.items() for _, name in _events(pid, its.kinds)
        }
        for pid, files in self._files.items():
            held |= {
                kind: pid for kind in files.kinds.values() if kind.startswith(("pipe:", "socket:"))
            }
        return held


def may_signal(name: str) -> bool:
    """Return whether the kernel signals an eventfd for what a descriptor or a mapping is of."""
    return name.startswith(SIGNALS) and not name.startswith(SIGNALS_NOT)


def _events(pid: int, kinds: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the eventfds of a process by their names, which Linux 5.2 and later tell."""
    for place, kind in kinds.items():
        if kind == EVENT:
            with contextlib.suppress(OSError):
                described = procfs.fields(information(pid, place))
                if (identity := described.get("eventfd-id", "")).isdecimal():
                    yield place, f"eventfd {identity}"


def links_below(folder: str, inode: tuple[int, int]) -> int | None:
    """Count the names of a file in a folder and all below it; None if not all could be read.

    Folders of other users are left out: they cannot link a file that they may not write.
    """
    links = looked = 0
    ahead = [folder]
    while ahead:
        try:
            entries = list(os.scandir(ahead.pop()))
            for entry in entries:
                about = entry.stat(follow_symlinks=False)
                links += (about.st_dev, about.st_ino) == inode
                if entry.is_dir(follow_symlinks=False) and about.st_uid == _user():
                    ahead.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        looked += len(entries)
        if looked > MAX_NAMES:
            return None
    return links


def _is_examined(pid: int, user: int) -> bool:
    """Return whether a process is this user's; for root, any but the kernel's own."""
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


def _access(pid: int, place: str) -> int | None:
    """Return how a file was opened; None if that is not known."""
    try:
        return int(procfs.fields(information(pid, place)).get("flags", ""), 8) & ACCESS
    except (OSError, ValueError):
        return None


def _start(pid: int, unknown: float) -> float:
    try:
        return procfs.stat(pid).start
    except _UNREADABLE:
        return unknown


# Which sockets of this machine are connected to each other, by inode.
#
# TCP from the kernel's table, where both ends stand if both are here. Unix sockets have no such
# table that pairs them, but the kernel answers the question that ``ss`` asks it (``unix_diag``);
# where it does not, a socket has no known peer.


def tcp_peers(pid: int) -> dict[int, int]:
    """Return the other end of each TCP connection whose ends are both in the net of ``pid``."""
    inodes = {(_plain(words[1]), _plain(words[2])): int(words[9]) for words in _connections(pid)}
    return {
        inode: inodes[there, here]
        for (here, there), inode in inodes.items()
        if (there, here) in inodes
    }


def tcp_unanswered(pid: int) -> set[int]:
    """Return the connections in the net of ``pid`` on which the kernel waits for an answer.

    It sends data again (timer 1) that was not acknowledged, or asks a peer that has no room or is
    silent (timers 2 and 4) more than once. Where the peer answers, both counts go back to 0.
    """
    return {
        int(words[9])
        for words in _connections(pid)
        if (words[5][:2] == "01" and int(words[6], 16) > 0)
        or (words[5][:2] in ("02", "04") and int(words[8]) > 1)
    }


def _connections(pid: int) -> Iterator[list[str]]:
    """Yield the lines of the kernel's tables that belong to a socket, as words."""
    for name in ("tcp", "tcp6"):
        try:
            table = procfs.text(f"{procfs.PROC}/{pid}/net/{name}", procfs.LARGE)
        except OSError:
            continue
        for line in table.splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[9] != "0":  # noqa: PLR2004 - the column of the inode
                yield words


def _plain(address: str) -> str:
    """Spell an IPv4 address inside IPv6 as IPv4: the two ends of a connection may differ in it."""
    return address.removeprefix(_IPV4_IN_IPV6)


def unix_peers() -> dict[int, int]:
    """Return the other end of each unix socket of our own net.

    That of a connection which was never accepted is the socket that listens: only its holder can
    answer.
    """
    try:
        with socket.socket(NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
            kernel.settimeout(ANSWER_WITHIN)
            request = _REQUEST.pack(UNIX, 0, 0, ALL_STATES, 0, SHOW_PEER | SHOW_PENDING, 0, 0)
            size = _HEADER.size + len(request)
            kernel.send(_HEADER.pack(size, BY_FAMILY, DUMP_REQUEST, 1, 0) + request)
            return {inode: peer for inode, peer in _answers(kernel) if inode and peer}
    except (OSError, struct.error):
        return {}


def _answers(kernel: socket.socket) -> Iterator[tuple[int, int]]:
    for _ in range(MAX_ANSWERS):
        answer = kernel.recv(64 * 1024)
        at = 0
        while at + _HEADER.size <= len(answer):
            size, kind, *_ = _HEADER.unpack_from(answer, at)
            if kind != BY_FAMILY or size < _HEADER.size:  # the end, or an error
                return
            yield from _peer(answer[at + _HEADER.size : at + size])
            at += _aligned(size)


def _peer(message: bytes) -> Iterator[tuple[int, int]]:
    inode = _MESSAGE.unpack_from(message)[4]
    at = _MESSAGE.size
    while at + _ATTRIBUTE.size <= len(message):
        size, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind in (PEER, PENDING):
            content = message[at + _ATTRIBUTE.size : at + size]
            numbers = [number for (number,) in struct.iter_unpack("=I", content)]
            yield from ((inode, n) if kind == PEER else (n, inode) for n in numbers)
        at += _aligned(max(size, _ATTRIBUTE.size))


def _aligned(size: int) -> int:
    return (size + 3) & ~3


def own_timeout(pid: int, number: int, *, writing: bool) -> float | None:
    """Return after how many seconds a socket of another process gives up; None: never.

    A timeout that was set on the socket (SO_RCVTIMEO) shows in no file. Raises OSError.
    """
    option = socket.SO_SNDTIMEO if writing else socket.SO_RCVTIMEO
    seconds, microseconds = _asked_socket(pid, number, option, _TIME)
    return float(seconds + microseconds * 1e-6) or None


def peer_credentials(pid: int, number: int) -> tuple[int, int]:
    """Return process and user that a unix socket was connected to; 0 and -1 if nobody tells."""
    try:
        process, user, _ = _asked_socket(pid, number, socket.SO_PEERCRED, _CREDENTIALS)
    except (OSError, struct.error):
        return 0, -1
    return process, user


def _asked_socket(pid: int, number: int, option: int, kind: struct.Struct) -> tuple[int, ...]:
    """Ask a socket of another process, through a second descriptor of it.

    Raises OSError where that is not permitted.
    """
    open_process = getattr(os, "pidfd_open", None)
    if open_process is None:
        raise OSError("this system cannot tell")
    process = open_process(pid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = libc.syscall(PIDFD_GETFD, process, number, 0)
    finally:
        os.close(process)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "the socket may not be asked")
    with socket.socket(fileno=descriptor) as one:
        return kind.unpack(one.getsockopt(socket.SOL_SOCKET, option, kind.size))
