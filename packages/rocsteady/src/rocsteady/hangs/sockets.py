"""Which sockets of this machine are connected to each other, by inode.

TCP from the kernel's table, where both ends stand if both are here. Unix sockets have no such table
that pairs them, but the kernel answers the question that ``ss`` asks it (``unix_diag``); where it
does not, a socket has no known peer.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator

from rocsteady.system import procfs

UNIX, NETLINK = 1, 16  # address families; Windows lacks the names
SOCK_DIAG, BY_FAMILY = 4, 20  # NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY
DUMP_REQUEST = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
SHOW_PEER, PEER = 0x04, 2  # UDIAG_SHOW_PEER, UNIX_DIAG_PEER
SHOW_PENDING, PENDING = 0x08, 3  # UDIAG_SHOW_ICONS, UNIX_DIAG_ICONS: connections not yet accepted
ALL_STATES = 0xFFFFFFFF
PIDFD_GETFD = 438  # the same number on every architecture
PATIENCE = 0.2  # seconds; the kernel answers in less than a millisecond
MOST_ANSWERS = 1000  # of 64 KiB each

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBHIIIII")
_MESSAGE = struct.Struct("=BBBBIII")  # family, type, state, pad, inode, cookie
_ATTRIBUTE = struct.Struct("=HH")
_TIME = struct.Struct("@ll")
_IPV4_IN_IPV6 = "0000000000000000FFFF0000"


def tcp_peers(pid: int) -> dict[int, int]:
    """Return the other end of each TCP connection whose ends are both in the net of ``pid``."""
    inodes = dict(entry for name in ("tcp", "tcp6") for entry in _connections(pid, name))
    return {
        inode: inodes[there, here]
        for (here, there), inode in inodes.items()
        if (there, here) in inodes
    }


def _connections(pid: int, name: str) -> Iterator[tuple[tuple[str, str], int]]:
    try:
        table = procfs.text(f"{procfs.PROC}/{pid}/net/{name}", procfs.LARGE)
    except OSError:
        return
    for line in table.splitlines()[1:]:
        words = line.split()
        if len(words) > 9 and words[9] != "0":  # noqa: PLR2004 - the column of the inode
            yield (_plain(words[1]), _plain(words[2])), int(words[9])


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
            kernel.settimeout(PATIENCE)
            request = _REQUEST.pack(UNIX, 0, 0, ALL_STATES, 0, SHOW_PEER | SHOW_PENDING, 0, 0)
            size = _HEADER.size + len(request)
            kernel.send(_HEADER.pack(size, BY_FAMILY, DUMP_REQUEST, 1, 0) + request)
            return {inode: peer for inode, peer in _answers(kernel) if inode and peer}
    except (OSError, struct.error):
        return {}


def _answers(kernel: socket.socket) -> Iterator[tuple[int, int]]:
    for _ in range(MOST_ANSWERS):
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

    A timeout that was set on the socket (SO_RCVTIMEO) shows in no file: the socket itself is asked,
    through a second descriptor of it. Raises OSError where that is not permitted.
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
        option = socket.SO_SNDTIMEO if writing else socket.SO_RCVTIMEO
        seconds, microseconds = _TIME.unpack(one.getsockopt(socket.SOL_SOCKET, option, _TIME.size))
    return float(seconds + microseconds * 1e-6) or None
