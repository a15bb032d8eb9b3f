"""What is at the other end of a descriptor: another process of the tree, a device, or the world.

Everything is read when first asked for and then kept, so one instance is one snapshot. Where
it is unsure, the answer is the world: whoever waits for the world is given more time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from rocsteady.hangs import sockets
from rocsteady.hangs.values import Blocked, Wait
from rocsteady.system import procfs

READ_ONLY, WRITE_ONLY, ACCESS = 0, 1, 3  # as in open(2)
DEVICES = ("/dev/kfd", "/dev/dri/", "/dev/nvidia", "/dev/accel/")
NESTED = 2  # how deep an epoll inside an epoll is followed
MOST_WATCHED = 4096  # descriptors of one epoll


class End(NamedTuple):
    """What is waited for, and the processes that could end the wait."""

    wait: Wait
    pids: frozenset[int] = frozenset()
    blocked: Blocked | None = None


WORLD = End(Wait.WORLD)


class Descriptors:
    """The descriptors of all processes of a tree."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = tuple(pids)
        self._descriptors: dict[int, dict[int, str]] = {}

    def at(self, pid: int, number: int, *, writing: bool = False, depth: int = 0) -> End:
        """Tell what the holder of a descriptor waits for when it waits for that."""
        kind = self.kind(pid, number)
        if kind.startswith("pipe:"):
            return self._among(pid, self.pipe_holders(kind, reading=writing))
        if kind.startswith("socket:"):
            return self._socket(pid, kind)
        if kind.startswith("anon_inode:"):
            return self._nameless(pid, number, kind, depth)
        return End(Wait.DEVICE) if kind.startswith(DEVICES) else WORLD

    def watched(self, pid: int, number: int, *, depth: int = 0) -> End:
        """Tell what an epoll waits for: the sum of what it watches."""
        try:
            targets = self.targets(pid, number)
        except OSError:
            return WORLD
        return together(self.at(pid, target, depth=depth + 1) for target in targets)

    def targets(self, pid: int, number: int) -> list[int]:
        """Return the descriptors that an epoll watches. Raises OSError if they cannot be read."""
        info = procfs.text(f"{procfs.PROC}/{pid}/fdinfo/{number}", procfs.LARGE)
        lines = [line.split() for line in info.splitlines() if line.startswith("tfd:")]
        targets = [int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()]
        return targets[:MOST_WATCHED]

    def kind(self, pid: int, number: int) -> str:
        """Return what a descriptor is: ``pipe:[7]``, a path; "" if it is not known."""
        return self._of(pid).get(number, "")

    def holders(self, kind: str) -> set[int]:
        """Return the processes of the tree that hold a pipe or socket."""
        return {pid for pid, _ in self._holders.get(kind, ())}

    def unix_peer(self, kind: str) -> str:
        """Return the other end of a unix socket; "" if it has none.

        A TCP connection has none here: a timeout of its own (SO_RCVTIMEO) cannot be seen.
        """
        peer = self._unix_peers.get(_inode(kind))
        return f"socket:[{peer}]" if peer else ""

    def _nameless(self, pid: int, number: int, kind: str, depth: int) -> End:
        if "pidfd" in kind:
            return self.process_behind(pid, number)
        if "eventpoll" in kind:
            return self.watched(pid, number, depth=depth) if depth < NESTED else WORLD
        if "eventfd" in kind:  # another thread wakes it
            return End(Wait.TREE, frozenset({pid}))
        return End(Wait.SLEEP) if "timerfd" in kind else WORLD

    def process_behind(self, pid: int, number: int) -> End:
        """Tell which process a pidfd stands for."""
        try:
            waited_for = self.process_number(pid, number)
        except OSError:
            return WORLD
        return End(Wait.CHILD, frozenset({waited_for})) if waited_for in self._pids else WORLD

    def process_number(self, pid: int, number: int) -> int:
        """Return the process that a pidfd stands for, 0 if it has ended. Raises OSError."""
        told = procfs.fields(f"{procfs.PROC}/{pid}/fdinfo/{number}").get("Pid", "")
        return procfs.leading_number(told)

    def _of(self, pid: int) -> dict[int, str]:
        if pid not in self._descriptors:
            try:
                self._descriptors[pid] = procfs.descriptors(pid)
            except OSError:
                self._descriptors[pid] = {}
        return self._descriptors[pid]

    @cached_property
    def _holders(self) -> dict[str, list[tuple[int, int]]]:
        holders: dict[str, list[tuple[int, int]]] = {}
        for pid in self._pids:
            for number, kind in self._of(pid).items():
                if kind.startswith(("pipe:", "socket:")):
                    holders.setdefault(kind, []).append((pid, number))
        return holders

    def pipe_holders(self, kind: str, *, reading: bool) -> set[int]:
        """Return who holds the wanted end of a pipe."""
        other = WRITE_ONLY if reading else READ_ONLY
        return {
            pid
            for pid, number in self._holders.get(kind, ())
            if _access(pid, number) not in (other, None)
        }

    @cached_property
    def _unix_peers(self) -> dict[int, int]:
        return sockets.unix_peers()

    @cached_property
    def _peers(self) -> dict[int, int]:
        tcp = sockets.tcp_peers(self._pids[0]) if self._pids else {}
        return {**self._unix_peers, **tcp}

    def _socket(self, pid: int, kind: str) -> End:
        peer = self._peers.get(_inode(kind))
        return self._among(pid, self.holders(f"socket:[{peer}]") if peer else set())

    def _among(self, pid: int, holders: set[int]) -> End:
        """Leave out the waiting process itself, which after a fork often holds both ends."""
        others = frozenset(holders - {pid} or holders)
        return End(Wait.TREE, others) if others else WORLD


def together(ends: Iterable[End]) -> End:
    """Tell what a thread waits for that waits for any of several things."""
    found = list(ends)
    waits = {end.wait for end in found}
    pids = frozenset().union(*(end.pids for end in found))
    for wait in (Wait.WORLD, Wait.DEVICE, Wait.TREE, Wait.CHILD, Wait.SLEEP):
        if wait in waits:
            return WORLD if wait is Wait.WORLD else End(wait, pids)
    return WORLD


def _inode(kind: str) -> int:
    return procfs.leading_number(kind[len("socket:[") :].rstrip("]"))


def _access(pid: int, number: int) -> int | None:
    try:
        flags = procfs.fields(f"{procfs.PROC}/{pid}/fdinfo/{number}").get("flags", "")
        return int(flags, 8) & ACCESS
    except (OSError, ValueError):
        return None
