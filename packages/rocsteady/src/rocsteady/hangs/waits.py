"""What a thread waits for, told by its state, its system call and the arguments of that.

Reading the call takes the right to trace. Without it, only the name of the kernel function is left,
which tells a lock and a sleep but not what is at the end of a pipe.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from rocsteady.hangs import syscalls
from rocsteady.hangs.blocking_calls import Blockings, int32
from rocsteady.hangs.descriptor_ends import WORLD, Descriptors, End, together
from rocsteady.hangs.syscalls import Call
from rocsteady.hangs.values import Wait
from rocsteady.system import procfs

LONGEST_POLL = 10.0  # seconds; Python's and torch's loops ask again every 5
PY_SPY = "py-spy"  # as the kernel names it
MOST_POLLED = 4096  # descriptors of one poll or select
REALTIME, FUTEX_COMMAND, WAIT_BITSET = 256, 0x7F, 9  # of a futex operation
BY_PID, BY_PIDFD = 1, 3  # kinds of waitid
POLL_OUT, POLL_IN = 0x004, 0x001
RESTARTED_POLL = 7  # of x86-64; the others keep their number, or have no timeout of this kind
UNKNOWN = End(Wait.UNKNOWN)

_BY_STATE = {
    "R": Wait.NOTHING,
    "D": Wait.DISK,
    "T": Wait.STOPPED,
    "t": Wait.TRACED,
    "Z": Wait.UNKNOWN,
    "X": Wait.UNKNOWN,
}
_POLLED = struct.Struct("=iHH")
_TIME = struct.Struct("=qq")
Arguments = Sequence[int]


class Waits:
    """Tells what the threads of one tree wait for, at one snapshot."""

    def __init__(self, parents: Mapping[int, int]) -> None:
        self._parents = parents  # of each process of the tree
        self._ends = Descriptors(tuple(parents))
        self._blockings = Blockings(parents, self._ends)
        self._table = syscalls.table()

    def of(self, pid: int, tid: int, state: str) -> End:
        """Tell what one thread waits for."""
        folder = f"{procfs.PROC}/{pid}/task/{tid}"
        if state in _BY_STATE:
            return UNKNOWN if state == "t" and _is_being_read(folder) else End(_BY_STATE[state])
        try:
            words = procfs.text(f"{folder}/syscall").split()
        except OSError:
            return self._by_function(pid, folder)
        if words[:1] == ["running"]:
            return End(Wait.NOTHING)
        if len(words) < 7 or words[0] == "-1":  # noqa: PLR2004 - number and six arguments
            return UNKNOWN
        arguments = [int(word, 16) for word in words[1:7]]
        number = int(words[0])
        call = self._table.get(number)
        if call is Call.RESTARTED:  # its arguments are still those of the first call
            number, call = RESTARTED_POLL, self._function(folder)
        end = self._by_call(pid, call, arguments)
        return end._replace(blocked=self._blockings.of(pid, number, call, arguments))

    def _function(self, folder: str) -> Call | None:
        try:
            return syscalls.by_function(procfs.text(f"{folder}/wchan"))
        except OSError:
            return None

    def _by_function(self, pid: int, folder: str) -> End:
        """Tell as much as the kernel function says, where the call itself may not be read."""
        call = self._function(folder)
        without_arguments = {
            Call.FUTEX: End(Wait.LOCK),
            Call.SEMAPHORE: End(Wait.LOCK),
            Call.SLEEP: End(Wait.SLEEP),
            Call.DEVICE: End(Wait.DEVICE),
            Call.OUTSIDE: WORLD,
            Call.WAIT_FOR: self._children(pid),
        }
        return without_arguments.get(call, UNKNOWN) if call else UNKNOWN

    def _by_call(self, pid: int, call: Call | None, arguments: Arguments) -> End:
        reader = self._readers.get(call) if call else None
        return reader(pid, arguments) if reader else UNKNOWN

    @cached_property
    def _readers(self) -> Mapping[Call, Callable[[int, Arguments], End]]:
        ends = self._ends
        return {
            Call.FUTEX: self._futex,
            Call.FUTEX_NEW: lambda _, __: End(Wait.LOCK),
            Call.SEMAPHORE: lambda _, __: End(Wait.LOCK),
            Call.SLEEP: lambda _, __: End(Wait.SLEEP),
            Call.READ: lambda pid, given: ends.at(pid, int32(given[0])),
            Call.WRITE: lambda pid, given: ends.at(pid, int32(given[0]), writing=True),
            Call.POLL: self._poll,
            Call.SELECT: self._select,
            Call.EPOLL: lambda pid, given: ends.watched(pid, int32(given[0])),
            Call.WAIT_FOR: lambda pid, given: self._children(pid, int32(given[0])),
            Call.WAIT_ID: self._wait_id,
            Call.DEVICE: self._device,
            Call.PAUSE: lambda _, __: End(Wait.SIGNAL),
            Call.FILE_LOCK: lambda _, __: WORLD,
            Call.OUTSIDE: lambda _, __: WORLD,
        }

    def _device(self, pid: int, arguments: Arguments) -> End:
        asked = self._ends.at(pid, int32(arguments[0]))
        return asked if asked.wait is Wait.DEVICE else WORLD

    def _futex(self, pid: int, arguments: Arguments) -> End:
        """Tell a lock from a sleep: one that is given up only after a long time ends by itself."""
        operation, timeout = arguments[1], arguments[3]
        command = operation & FUTEX_COMMAND
        if command not in (0, WAIT_BITSET) or not timeout:
            return End(Wait.LOCK)
        try:
            seconds, nanoseconds = _TIME.unpack(procfs.memory(pid, timeout, _TIME.size))
        except (OSError, OverflowError, struct.error):
            return End(Wait.LOCK)
        left = seconds + nanoseconds * 1e-9
        if command == WAIT_BITSET:  # a moment, not a duration
            left -= time.time() if operation & REALTIME else time.monotonic()
        return End(Wait.SLEEP if left > LONGEST_POLL else Wait.LOCK)

    def _poll(self, pid: int, arguments: Arguments) -> End:
        address, count = arguments[:2]
        if count == 0:
            return End(Wait.SLEEP)
        try:
            content = procfs.memory(pid, address, min(count, MOST_POLLED) * _POLLED.size)
            polled = list(_POLLED.iter_unpack(content))
        except (OSError, OverflowError, struct.error):
            return UNKNOWN
        return together(
            self._ends.at(pid, number, writing=bool(events & POLL_OUT) and not events & POLL_IN)
            for number, events, _ in polled
            if number >= 0
        )

    def _select(self, pid: int, arguments: Arguments) -> End:
        count = min(int32(arguments[0]), MOST_POLLED)
        sets = [(which, address) for which, address in enumerate(arguments[1:4]) if address]
        if count <= 0 or not sets:
            return End(Wait.SLEEP)
        ends = []
        try:
            for which, address in sets:
                bits = int.from_bytes(procfs.memory(pid, address, (count + 63) // 64 * 8), "little")
                ends += [
                    self._ends.at(pid, number, writing=which == 1)
                    for number in range(count)
                    if bits >> number & 1
                ]
        except (OSError, OverflowError):
            return UNKNOWN
        return together(ends) if ends else End(Wait.SLEEP)

    def _wait_id(self, pid: int, arguments: Arguments) -> End:
        kind, number = arguments[0], int32(arguments[1])
        if kind == BY_PIDFD:
            return self._ends.process_behind(pid, number)
        return self._children(pid, number if kind == BY_PID else -1)

    def _children(self, pid: int, wanted: int = -1) -> End:
        children = {child for child, parent in self._parents.items() if parent == pid}
        waited_for = {wanted} & self._parents.keys() if wanted > 0 else children
        return End(Wait.CHILD, frozenset(waited_for))


def _is_being_read(folder: str) -> bool:
    """Tell whether py-spy takes the stack of a thread that is traced, or has just let it go."""
    try:
        status = procfs.fields(f"{folder}/status")
        tracer = procfs.leading_number(status["TracerPid"])
        return not status["State"].startswith("t") or procfs.stat(tracer).name == PY_SPY
    except (OSError, KeyError):  # the thread is gone, or the tracer cannot be seen from here
        return False
