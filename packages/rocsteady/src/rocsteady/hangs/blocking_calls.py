"""How a blocked system call can end: by which processes, after how long, or by what outside.

This is what a proof rests on, so whatever is not understood has no answer (None), and an answer
names every process that could end the wait, the waiting one included.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rocsteady.hangs import sockets, syscalls
from rocsteady.hangs.descriptor_ends import NESTED, Descriptors
from rocsteady.hangs.outside_processes import Outsiders
from rocsteady.hangs.syscalls import Call, Clock
from rocsteady.hangs.values import GIL, Blocked, Outside
from rocsteady.system import procfs

FUTEX_COMMAND, PRIVATE, REALTIME = 0x7F, 128, 256
WAIT, WAIT_BITSET = 0, 9  # those that locks, semaphores and conditions of the C library use
BY_PID, BY_PIDFD = 1, 3  # kinds of waitid
MOST_POLLED = 4096
POLL_OUT, POLL_IN = 0x004, 0x001
LONGEST_SWITCH = 1.0  # seconds for which a thread asks for the GIL at once; Python's own is 5 ms
NAMED = 3  # objects that are spelled out; the rest is counted
_POLLED = struct.Struct("=iHH")
_TIME = struct.Struct("=qq")
_UNREADABLE = (OSError, OverflowError, ValueError, IndexError, struct.error)
Arguments = Sequence[int]

SIMPLE: Mapping[Call, Blocked] = {  # whatever their arguments are
    Call.SLEEP: Blocked(on="time", left=0.0),
    Call.PAUSE: Blocked(on="a signal"),  # whether there is a handler is seen elsewhere
    Call.SEMAPHORE: Blocked(
        on="a System V semaphore", outside=Outside.SYSTEM, who="any process may change it"
    ),
}


class Blockings:
    """Explains the blocked calls of one tree, at one snapshot."""

    def __init__(self, parents: Mapping[int, int], ends: Descriptors) -> None:
        self._parents = parents
        self._ends = ends
        self._outsiders = Outsiders(parents.keys())
        self._timeouts = syscalls.timeouts()

    def of(self, pid: int, number: int, call: Call | None, arguments: Arguments) -> Blocked | None:
        """Explain one call; None if it is not understood."""
        try:
            return self._explained(pid, number, call, arguments)
        except _UNREADABLE:
            return None

    def _explained(  # noqa: PLR0911 - one a kind of call
        self, pid: int, number: int, call: Call | None, arguments: Arguments
    ) -> Blocked | None:
        if call is Call.FUTEX:
            return self._futex(pid, arguments)
        if call in (Call.READ, Call.WRITE):
            writing, descriptor = call is Call.WRITE, int32(arguments[0])
            found = self._at(pid, descriptor, writing=writing)
            timeout = self._timeout(pid, number, arguments)
            socket = self._ends.kind(pid, descriptor).startswith("socket:")
            if socket and timeout is None and found.outside is None:
                timeout = sockets.own_timeout(pid, descriptor, writing=writing)
            return _timed(found, timeout)
        if call in (Call.POLL, Call.SELECT, Call.EPOLL):
            waited = self._watched(pid, call, arguments)
            return _timed(together(waited), self._timeout(pid, number, arguments))
        if call is Call.WAIT_FOR:
            return self._children(pid, int32(arguments[0]))
        if call is Call.WAIT_ID:
            kind, which = arguments[0], int32(arguments[1])
            if kind == BY_PIDFD:
                return self._process(self._ends.process_number(pid, which))
            return self._children(pid, which if kind == BY_PID else -1)
        if call is Call.FILE_LOCK:
            return _file_lock(pid, int32(arguments[0]))
        return SIMPLE.get(call) if call else None

    def _futex(self, pid: int, arguments: Arguments) -> Blocked | None:
        address, operation, timeout = arguments[0], arguments[1], arguments[3]
        command = operation & FUTEX_COMMAND
        if command not in (WAIT, WAIT_BITSET):
            return None
        left = None
        if timeout:
            left = _seconds(pid, timeout)
            if command == WAIT_BITSET:  # a moment, not a duration
                left -= time.time() if operation & REALTIME else time.monotonic()
        mapping = None if operation & PRIVATE else self._outsiders.mapping(pid, address)
        on = f"lock {address:#x}"
        if mapping is None:
            if left is not None and left < LONGEST_SWITCH:
                on = GIL if self._outsiders.in_pythons_data(pid, address) else on
            return Blocked(on=on, left=left, whole=command == WAIT, pids=(pid,))
        who = self._outsiders.mapper(pid, mapping)
        mapped = (each for each in self._parents if self._outsiders.maps(each, mapping))
        return Blocked(
            on=f"shared {on}",
            left=left,
            whole=command == WAIT,
            pids=tuple(sorted({pid, *mapped})),
            outside=Outside.MEMORY if who else None,
            who=who,
        )

    def _timeout(self, pid: int, number: int, arguments: Arguments) -> float | None:
        """Return the whole duration that the call was given; None: no end."""
        place = self._timeouts.get(number)
        if place is None:
            return None
        value, clock = arguments[place[0]], place[1]
        if clock is Clock.MILLISECONDS:
            return int32(value) / 1e3 if int32(value) >= 0 else None
        return _seconds(pid, value, 1e-9 if clock is Clock.TIMESPEC else 1e-6) if value else None

    def _watched(self, pid: int, call: Call, arguments: Arguments) -> list[Blocked]:
        if call is Call.EPOLL:
            return self._epoll(pid, int32(arguments[0]), 0)
        if call is Call.POLL:
            address, count = arguments[:2]
            content = procfs.memory(pid, address, min(count, MOST_POLLED) * _POLLED.size)
            return [
                self._at(pid, fd, writing=bool(events & POLL_OUT) and not events & POLL_IN)
                for fd, events, _ in _POLLED.iter_unpack(content)
                if fd >= 0
            ]
        count = min(int32(arguments[0]), MOST_POLLED)
        found = []
        for which, address in enumerate(arguments[1:4]):
            if address and count > 0:
                content = procfs.memory(pid, address, (count + 63) // 64 * 8)
                bits = int.from_bytes(content, "little")
                fds = [fd for fd in range(count) if bits >> fd & 1]
                found += [self._at(pid, fd, writing=which == 1) for fd in fds]
        return found

    def _epoll(self, pid: int, number: int, depth: int) -> list[Blocked]:
        targets = self._ends.targets(pid, number)
        return [self._at(pid, target, writing=False, depth=depth + 1) for target in targets]

    def _at(self, pid: int, number: int, *, writing: bool, depth: int = 0) -> Blocked:
        """Explain a wait for one descriptor."""
        kind = self._ends.kind(pid, number)
        if kind.startswith("pipe:"):
            holders = self._ends.pipe_holders(kind, reading=writing)
            return self._held(_spelled(kind), kind, holders)
        if kind.startswith("socket:"):
            peer = self._ends.unix_peer(kind)
            holders = self._ends.holders(peer)
            found = self._held(_spelled(kind), peer, holders | {pid} if holders else set())
            own = self._outsiders.holder(kind)  # who could shut it down
            return _beyond(found.on, Outside.DESCRIPTOR, _holds(own)) if own else found
        if "eventpoll" in kind and depth < NESTED:
            return together(self._epoll(pid, number, depth))
        if "pidfd" in kind:
            return self._process(self._ends.process_number(pid, number))
        return _beyond(kind or f"descriptor {number}", Outside.DESCRIPTOR, "it is not a pipe")

    def _held(self, on: str, kind: str, holders: set[int]) -> Blocked:
        other = self._outsiders.holder(kind)
        if other or not holders:
            who = _holds(other) if other else "its other end is not in the run"
            return _beyond(on, Outside.DESCRIPTOR, who)
        return Blocked(on=on, pids=tuple(sorted(holders)))

    def _process(self, waited_for: int) -> Blocked:
        if waited_for not in self._parents:
            return _beyond(f"process {waited_for}", Outside.PROCESS, "it is not part of the run")
        return Blocked(on=f"process {waited_for}", pids=(waited_for,))

    def _children(self, pid: int, wanted: int) -> Blocked:
        if wanted > 0:
            return self._process(wanted)
        children = sorted(child for child, parent in self._parents.items() if parent == pid)
        if not children:
            return _beyond("a child", Outside.PROCESS, "it is not part of the run")
        return Blocked(on="the end of a child", pids=tuple(children))


def together(found: Iterable[Blocked]) -> Blocked:
    """Explain a wait for any of several things; for none of them, it is a sleep."""
    waits = list(found)
    names = [each.on for each in waits]
    rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    beyond = next((each for each in waits if each.outside), None)
    lefts = [each.left for each in waits if each.left is not None]
    return Blocked(
        on=", ".join(names[:NAMED]) + rest if names else "time",
        left=min(lefts) if lefts else None if waits else 0.0,
        pids=tuple(sorted({pid for each in waits for pid in each.pids})),
        outside=beyond.outside if beyond else None,
        who=beyond.who if beyond else "",
    )


def int32(word: int) -> int:
    """Read a register as the 32-bit number that the call takes."""
    low = word & 0xFFFFFFFF
    return low - 0x100000000 if low & 0x80000000 else low


def _timed(found: Blocked, timeout: float | None) -> Blocked:
    if timeout is None:
        return found
    return Blocked(
        on=found.on, left=timeout, whole=True, pids=found.pids, outside=found.outside, who=found.who
    )


def _seconds(pid: int, address: int, part: float = 1e-9) -> float:
    seconds, parts = _TIME.unpack(procfs.memory(pid, address, _TIME.size))
    return float(seconds + parts * part)


def _spelled(kind: str) -> str:
    """Write "pipe:[12]" as "pipe 12"."""
    return kind.replace(":[", " ").rstrip("]")


def _holds(pid: int | None) -> str:
    return f"process {pid}, which is not part of the run, holds it"


def _beyond(on: str, outside: Outside, who: str) -> Blocked:
    return Blocked(on=on, outside=outside, who=who)


def _file_lock(pid: int, number: int) -> Blocked:
    """Name the holder of a file lock. Who else shares its open file is not known."""
    inode = Path(f"{procfs.PROC}/{pid}/fd/{number}").stat().st_ino
    lines = [
        line.split() for line in procfs.text(f"{procfs.PROC}/locks", procfs.LARGE).splitlines()
    ]
    holders = [
        words[4]
        for words in lines
        if len(words) > 5 and words[1] != "->" and words[5].endswith(f":{inode}")  # noqa: PLR2004
    ]
    who = f"process {holders[0]} holds it" if holders else "its holder is unknown"
    return _beyond("a file lock", Outside.FILE_LOCK, who)
