"""What a thread waits for, and all that could end the wait: each system call is decoded once.

A proof rests on this, so an answer names every process that could end the wait, the waiting one
included, and whatever is not understood has a way out. Reading the call takes the right to trace.
Without it only the name of the kernel function is left: it tells a lock from a sleep, but not what
is at the other end of a pipe.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from rocsteady.hangs.proof import syscalls
from rocsteady.hangs.proof.holders import DEVICES, Descriptors, Outsiders, own_timeout
from rocsteady.hangs.proof.syscalls import Call, Clock
from rocsteady.hangs.values import GIL, Blocked, Wait, WayOut
from rocsteady.system import procfs

PY_SPY = "py-spy"  # as the kernel names it
# A lock that is given up after more than this is a sleep: Python's and torch's own loops ask again
# after 5 s at most, so a longer timeout is somebody's decision to wait that long.
LONGEST_POLL = 10.0
LONGEST_SWITCH = 1.0  # seconds for which a thread asks for the GIL at once; Python's own is 5 ms
FUTEX_COMMAND, PRIVATE, REALTIME = 0x7F, 128, 256  # of a futex operation
WAIT, WAIT_BITSET = 0, 9  # those that locks, semaphores and conditions of the C library use
BY_PID, BY_PIDFD = 1, 3  # kinds of waitid
POLL_OUT, POLL_IN = 0x004, 0x001
MAX_POLLED = 4096  # descriptors of one poll or select
NESTED = 2  # how deep an epoll inside an epoll is followed
OBJECTS_NAMED = 3  # objects that are spelled out; the rest is counted
RESTARTED_POLL = 7  # of x86-64; the others keep their number, or have no timeout of this kind
_POLLED = struct.Struct("=iHH")
_TIME = struct.Struct("=qq")
_UNREADABLE = (OSError, OverflowError, ValueError, IndexError, struct.error)
Arguments = Sequence[int]


class Decoded(NamedTuple):
    """One wait: its kind, and how it can end. ``blocked`` is None if that is not known at all."""

    wait: Wait
    blocked: Blocked | None = None


UNKNOWN = Decoded(Wait.UNKNOWN)
WORLD = Decoded(Wait.WORLD)
_BY_STATE = {
    "R": Decoded(Wait.NOTHING),
    "D": Decoded(Wait.DISK),
    "T": Decoded(Wait.STOPPED),
    "t": Decoded(Wait.TRACED),
    "Z": UNKNOWN,
    "X": UNKNOWN,
}
# Of several descriptors, the one that says least about the end decides what the wait is called.
_VAGUEST_FIRST = (Wait.WORLD, Wait.DEVICE, Wait.TREE, Wait.CHILD, Wait.SLEEP)


class Waits:
    def __init__(self, parents: Mapping[int, int]) -> None:
        self._parents = parents  # of each process of the tree
        self._descriptors = Descriptors(tuple(parents))
        self._outsiders = Outsiders(parents.keys())
        # By the file of the memory, and its name.
        self._mapped: dict[tuple[bytes, str], tuple[str, frozenset[int]]] = {}

    def of(self, pid: int, tid: int, state: str) -> Decoded:
        folder = f"{procfs.PROC}/{pid}/task/{tid}"
        if state in _BY_STATE:
            return UNKNOWN if state == "t" and _is_being_read(folder) else _BY_STATE[state]
        try:
            words = procfs.text(f"{folder}/syscall").split()
        except OSError:
            return self._without_arguments(pid, _kernel_function(folder))
        if words[:1] == ["running"]:
            return Decoded(Wait.NOTHING)
        if len(words) < 7 or words[0] == "-1":  # noqa: PLR2004 - number and six arguments
            return UNKNOWN
        arguments = [int(word, 16) for word in words[1:7]]
        number = int(words[0])
        call = syscalls.CALLS.get(number)
        if call in _OF_DESCRIPTORS and self._descriptors.is_apart(pid, tid):
            return WORLD
        if call is Call.RESTARTED:  # its arguments are still those of the first call
            number, call = RESTARTED_POLL, _kernel_function(folder)
        return self._decoded(pid, number, call, arguments)

    def unanswered(self, pid: int) -> int:
        """Count the TCP connections of a process whose other end does not answer."""
        return self._descriptors.unanswered(pid)

    def _without_arguments(self, pid: int, call: Call | None) -> Decoded:
        """Return as much as the kernel function says, where the call itself may not be read."""
        why = "its system call may not be read"
        if call is Call.WAIT_FOR:
            return _with_way_out(self._children(pid, -1), why)
        kinds = {
            Call.FUTEX: Wait.LOCK,
            Call.SEMAPHORE: Wait.LOCK,
            Call.SLEEP: Wait.SLEEP,
            Call.DEVICE: Wait.DEVICE,
            Call.OUTSIDE: Wait.WORLD,
        }
        kind = kinds.get(call, Wait.UNKNOWN) if call else Wait.UNKNOWN
        return _lock(pid, why, WayOut.UNREAD) if kind is Wait.LOCK else Decoded(kind)

    def _decoded(self, pid: int, number: int, call: Call | None, arguments: Arguments) -> Decoded:
        decoders: Mapping[Call, Callable[[], Decoded]] = {
            Call.FUTEX: lambda: self._futex(pid, arguments),
            Call.FUTEX_NEW: lambda: _lock(pid, "it is of a newer kind"),
            Call.SEMAPHORE: lambda: _semaphore(pid),
            Call.SLEEP: lambda: _SLEEP,
            Call.READ: lambda: self._transfer(pid, number, arguments, writing=False),
            Call.WRITE: lambda: self._transfer(pid, number, arguments, writing=True),
            Call.POLL: lambda: self._watch(pid, number, arguments, self._polled(pid, arguments)),
            Call.SELECT: lambda: self._watch(
                pid, number, arguments, self._selected(pid, arguments)
            ),
            Call.EPOLL: lambda: self._watch(
                pid, number, arguments, self._epoll(pid, int32(arguments[0]), 0)
            ),
            Call.WAIT_FOR: lambda: self._children(pid, int32(arguments[0])),
            Call.WAIT_ID: lambda: self._wait_id(pid, arguments),
            Call.DEVICE: lambda: self._ioctl(pid, int32(arguments[0])),
            Call.PAUSE: lambda: _PAUSE,
            Call.FILE_LOCK: lambda: _file_lock(pid, int32(arguments[0])),
            Call.OUTSIDE: lambda: WORLD,
        }
        decode = decoders.get(call) if call else None
        if decode is None:
            return UNKNOWN
        try:
            return decode()
        except _UNREADABLE:
            if call is Call.FUTEX:
                return _lock(pid, "the memory of the process could not be read")
            return WORLD if call in _OF_THE_WORLD else UNKNOWN

    def _futex(self, pid: int, arguments: Arguments) -> Decoded:
        address, operation, timeout = arguments[0], arguments[1], arguments[3]
        command = operation & FUTEX_COMMAND
        if command not in (WAIT, WAIT_BITSET):
            return _lock(pid, "its kind is not known")
        left = None
        if timeout:
            left = _seconds(pid, timeout)
            if command == WAIT_BITSET:  # a moment, not a duration
                left -= time.time() if operation & REALTIME else time.monotonic()
        mapping = None if operation & PRIVATE else self._outsiders.mapping(pid, address)
        kind = Wait.SLEEP if left is not None and left > LONGEST_POLL else Wait.LOCK
        on = f"lock {address:#x}"
        if mapping is None:
            asks_at_once = left is not None and left < LONGEST_SWITCH
            if asks_at_once and self._outsiders.in_pythons_data(pid, address):
                on = GIL
            return Decoded(kind, Blocked(on=on, left=left, whole=command == WAIT, pids=(pid,)))
        if mapping[:2] not in self._mapped:
            who = self._outsiders.mapper(pid, mapping) or self._stranger
            mapped = frozenset(
                each for each in self._parents if self._outsiders.maps(each, mapping)
            )
            self._mapped[mapping[:2]] = who, mapped
        who, mapped = self._mapped[mapping[:2]]
        blocked = Blocked(
            on=f"shared {on}",
            left=left,
            whole=command == WAIT,
            pids=tuple(sorted({pid} | mapped)),
            way_out=WayOut.MEMORY if who else None,
            who=who,
        )
        return Decoded(kind, blocked)

    def _transfer(self, pid: int, number: int, arguments: Arguments, *, writing: bool) -> Decoded:
        descriptor = int32(arguments[0])
        found = self._at(pid, descriptor, writing=writing)
        try:
            timeout = self._timeout(pid, number, arguments)
            socket = self._descriptors.kind(pid, descriptor).startswith("socket:")
            if socket and timeout is None and found.blocked and not found.blocked.way_out:
                timeout = own_timeout(pid, descriptor, writing=writing)
        except _UNREADABLE:
            return _with_way_out(found, "its timeout could not be read")
        return _timed(found, timeout)

    def _watch(
        self, pid: int, number: int, arguments: Arguments, watched: Iterable[Decoded]
    ) -> Decoded:
        found = together(pid, watched)
        try:
            return _timed(found, self._timeout(pid, number, arguments))
        except _UNREADABLE:
            return _with_way_out(found, "its timeout could not be read")

    def _timeout(self, pid: int, number: int, arguments: Arguments) -> float | None:
        """Return the whole duration that the call was given; None: no end."""
        place = syscalls.TIMEOUTS.get(number)
        if place is None:
            return None
        value, clock = arguments[place[0]], place[1]
        if clock is Clock.MILLISECONDS:
            return int32(value) / 1e3 if int32(value) >= 0 else None
        return _seconds(pid, value, 1e-9 if clock is Clock.TIMESPEC else 1e-6) if value else None

    def _polled(self, pid: int, arguments: Arguments) -> list[Decoded]:
        address, count = arguments[:2]
        if not count:
            return []
        content = procfs.memory(pid, address, min(count, MAX_POLLED) * _POLLED.size)
        return [
            self._at(pid, fd, writing=bool(events & POLL_OUT) and not events & POLL_IN)
            for fd, events, _ in _POLLED.iter_unpack(content)
            if fd >= 0
        ]

    def _selected(self, pid: int, arguments: Arguments) -> list[Decoded]:
        count = min(int32(arguments[0]), MAX_POLLED)
        found = []
        for which, address in enumerate(arguments[1:4]):
            if address and count > 0:
                content = procfs.memory(pid, address, (count + 63) // 64 * 8)
                bits = int.from_bytes(content, "little")
                fds = [fd for fd in range(count) if bits >> fd & 1]
                found += [self._at(pid, fd, writing=which == 1) for fd in fds]
        return found

    def _epoll(self, pid: int, number: int, depth: int) -> list[Decoded]:
        targets = self._descriptors.targets(pid, number)
        return [self._at(pid, target, writing=False, depth=depth + 1) for target in targets]

    def _at(self, pid: int, number: int, *, writing: bool, depth: int = 0) -> Decoded:  # noqa: PLR0911 - one a kind
        kind = self._descriptors.kind(pid, number)
        if kind.startswith("pipe:"):
            return self._held(pid, kind, self._descriptors.pipe_holders(kind, reading=writing))
        if kind.startswith("socket:"):
            return self._socket(pid, kind)
        try:
            if "eventpoll" in kind and depth < NESTED:
                return together(pid, self._epoll(pid, number, depth))
            if "pidfd" in kind:
                return self._process(self._descriptors.process_number(pid, number))
        except OSError:
            return _beyond(Wait.WORLD, kind, "it could not be read")
        if "eventfd" in kind:
            return self._event(pid, number)
        wait = Wait.WORLD
        if "timerfd" in kind:
            wait = Wait.SLEEP
        elif kind.startswith(DEVICES):
            wait = Wait.DEVICE
        return _beyond(wait, kind or f"descriptor {number}", "it is not a pipe")

    def _socket(self, pid: int, kind: str) -> Decoded:
        peer = self._descriptors.unix_peer(kind)
        holders = self._descriptors.holders(peer, kind)
        if holders:
            # Any other thread of the waiting process could shut its own end down.
            return self._held(pid, kind, holders | {pid}, peer)
        # A timeout of a TCP connection's own (SO_RCVTIMEO, keepalive) is not read: a way out.
        tcp = self._descriptors.holders(self._descriptors.tcp_peer(kind))
        if tcp:
            found = self._held(pid, kind, tcp)
            return _with_way_out(found, "it is a TCP connection", WayOut.DESCRIPTOR)
        return self._held(pid, kind, set(), peer)

    def _event(self, pid: int, number: int) -> Decoded:
        """Decode a wait for an eventfd: whoever holds it ends it, or the kernel if told to."""
        name = self._descriptors.event(pid, number)
        if not name:
            return _beyond(Wait.TREE, "an eventfd", "its holders are not known", pids=(pid,))
        found = self._held(pid, name, self._descriptors.event_holders(name))
        for holder in found.blocked.pids if found.blocked else ():
            try:
                by = self._descriptors.signals(holder) or self._outsiders.signals(holder)
            except OSError:
                by = "what could not be read"
            if by:
                return _with_way_out(found, f"the kernel may signal it for {by}", WayOut.DESCRIPTOR)
        return found

    def _held(self, pid: int, kind: str, holders: set[int], peer: str = "") -> Decoded:
        """Decode a wait that the holders of the other end could end."""
        on = _spelled(kind)
        outsider = self._outsiders.holder(kind, peer)
        if outsider is not None:
            who = f"process {outsider}, which is not part of the run, holds it"
        elif self._descriptors.submitted(holders):
            who = "the kernel may do what was submitted to an io_uring"
        else:
            who = self._stranger or ("" if holders else "its other end is not in the run")
        inherited = pid in holders and len(holders) > 1 and "eventfd" not in kind  # by a fork
        blocked = Blocked(on=on, pids=tuple(sorted(holders)), holds_both=inherited)
        found = Decoded(Wait.TREE if holders else Wait.WORLD, blocked)
        return _with_way_out(found, who, WayOut.DESCRIPTOR) if who else found

    @cached_property
    def _stranger(self) -> str:
        """Say who outside may hold anything of the run; "" if nobody does."""
        pid = self._outsiders.stranger(self._descriptors.connections())
        if pid is None:
            return ""
        return (
            f"process {pid or 'of the same user'} cannot be looked at, and has a socket of the run"
        )

    def _wait_id(self, pid: int, arguments: Arguments) -> Decoded:
        kind, which = arguments[0], int32(arguments[1])
        if kind == BY_PIDFD:
            return self._process(self._descriptors.process_number(pid, which))
        return self._children(pid, which if kind == BY_PID else -1)

    def _children(self, pid: int, wanted: int) -> Decoded:
        if wanted in self._parents:
            return self._process(wanted)
        children = tuple(sorted(child for child, of in self._parents.items() if of == pid))
        if wanted > 0 or not children:
            on = f"process {wanted}" if wanted > 0 else "a child"
            return Decoded(Wait.CHILD, _not_seen(on, children))
        return Decoded(Wait.CHILD, Blocked(on="the end of a child", pids=children))

    def _process(self, waited_for: int) -> Decoded:
        on = f"process {waited_for}"
        if waited_for not in self._parents:
            return Decoded(Wait.WORLD, _not_seen(on))
        return Decoded(Wait.CHILD, Blocked(on=on, pids=(waited_for,)))

    def _ioctl(self, pid: int, number: int) -> Decoded:
        kind = self._descriptors.kind(pid, number)
        return Decoded(Wait.DEVICE) if kind.startswith(DEVICES) else WORLD


_OF_DESCRIPTORS = (
    *(Call.READ, Call.WRITE, Call.POLL, Call.SELECT, Call.EPOLL),
    *(Call.WAIT_ID, Call.DEVICE, Call.FILE_LOCK),
)
_OF_THE_WORLD = (Call.EPOLL, Call.WAIT_ID, Call.FILE_LOCK)  # where what is unreadable is outside
_SLEEP = Decoded(Wait.SLEEP, Blocked(on="time", left=0.0))
_PAUSE = Decoded(Wait.SIGNAL, Blocked(on="a signal"))  # handlers are seen elsewhere


def together(pid: int, watched: Iterable[Decoded]) -> Decoded:
    """Decode a wait of a process for any of several things; for none of them, it is a sleep."""
    found = list(watched)
    if not found:
        return _SLEEP
    calls = [each.blocked or Blocked(on=each.wait.value, way_out=WayOut.UNKNOWN) for each in found]
    kinds = {each.wait for each in found}
    own = [call for call in calls if pid in call.pids]
    names = [call.on for call in calls]
    rest = f" and {len(names) - OBJECTS_NAMED} more" if len(names) > OBJECTS_NAMED else ""
    beyond = next((call for call in calls if call.way_out), None)
    lefts = [call.left for call in calls if call.left is not None]
    blocked = Blocked(
        on=", ".join(names[:OBJECTS_NAMED]) + rest,
        left=min(lefts) if lefts else None,
        pids=tuple(sorted({pid for call in calls for pid in call.pids})),
        holds_both=bool(own) and all(call.holds_both for call in own),
        way_out=beyond.way_out if beyond else None,
        who=beyond.who if beyond else "",
    )
    return Decoded(next((kind for kind in _VAGUEST_FIRST if kind in kinds), Wait.WORLD), blocked)


def int32(word: int) -> int:
    """Read a register as the 32-bit number that the call takes."""
    low = word & 0xFFFFFFFF
    return low - 0x100000000 if low & 0x80000000 else low


def _timed(found: Decoded, timeout: float | None) -> Decoded:
    if timeout is None or found.blocked is None:
        return found
    return found._replace(blocked=replace(found.blocked, left=timeout, whole=True))


def _with_way_out(found: Decoded, who: str, way: WayOut = WayOut.UNKNOWN) -> Decoded:
    """Add a way out, unless it has one: not all of the call was understood, or is in the tree."""
    blocked = found.blocked
    if blocked is None or blocked.way_out:
        return found
    return found._replace(blocked=replace(blocked, way_out=way, who=who))


def _lock(pid: int, why: str, way: WayOut = WayOut.UNKNOWN) -> Decoded:
    """Return a lock of which no more is known: not even that it is private to the process."""
    return Decoded(Wait.LOCK, Blocked(on="a lock", pids=(pid,), way_out=way, who=why))


def _semaphore(pid: int) -> Decoded:
    who = "any process may change it"
    on = "a System V semaphore"
    return Decoded(Wait.LOCK, Blocked(on=on, pids=(pid,), way_out=WayOut.SYSTEM, who=who))


def _beyond(wait: Wait, on: str, who: str, pids: tuple[int, ...] = ()) -> Decoded:
    return Decoded(wait, Blocked(on=on, pids=pids, way_out=WayOut.DESCRIPTOR, who=who))


def _not_seen(on: str, pids: tuple[int, ...] = ()) -> Blocked:
    return Blocked(on=on, pids=pids, way_out=WayOut.PROCESS, who="it is not part of the run")


def _file_lock(pid: int, number: int) -> Decoded:
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
    return Decoded(Wait.WORLD, Blocked(on="a file lock", way_out=WayOut.FILE_LOCK, who=who))


def _seconds(pid: int, address: int, part: float = 1e-9) -> float:
    seconds, parts = _TIME.unpack(procfs.memory(pid, address, _TIME.size))
    return float(seconds + parts * part)


def _spelled(kind: str) -> str:
    """Write "pipe:[12]" as "pipe 12"."""
    return kind.replace(":[", " ").rstrip("]")


def _kernel_function(folder: str) -> Call | None:
    try:
        return syscalls.by_function(procfs.text(f"{folder}/wchan"))
    except OSError:
        return None


def _is_being_read(folder: str) -> bool:
    """Whether py-spy takes the stack of a thread that is traced, or has just let it go."""
    try:
        status = procfs.fields(f"{folder}/status")
        tracer = procfs.leading_number(status["TracerPid"])
        return not status["State"].startswith("t") or procfs.stat(tracer).name == PY_SPY
    except (OSError, KeyError):  # the thread is gone, or the tracer cannot be seen from here
        return False
