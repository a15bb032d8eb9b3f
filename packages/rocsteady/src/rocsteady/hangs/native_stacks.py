"""Native stacks that need not be read again, because the thread has not run since.

Reading them pauses a process and, with a library of torch's size, takes a second of processor time.
A thread that waits and was not scheduled in between is where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rocsteady.hangs.stacks import Stacks, ThreadStack
from rocsteady.hangs.values import ProcessSeen, ThreadSeen, Wait
from rocsteady.model import Value


class _Read(Value, frozen=True, kw_only=True):
    """What was read of one thread, and by what it is known again."""

    switches: int  # after it was read: the pause itself makes a thread run
    where: tuple[Wait, str, tuple[str, ...]]
    stack: ThreadStack


class NativeStacks:
    """The native stacks of one process tree, as far as they still hold."""

    def __init__(self) -> None:
        self._read: dict[int, dict[int, _Read]] = {}  # by process and thread

    def still(self, process: ProcessSeen, threads: Iterable[ThreadSeen]) -> bool:
        """Tell whether these threads of a process are where they were when they were read."""
        return all(self._holds(process.pid, thread) for thread in threads)

    def of(self, pids: Iterable[int]) -> Stacks:
        """Return what was read of these processes."""
        return Stacks(
            threads={
                pid: tuple(read.stack for read in self._read.get(pid, {}).values()) for pid in pids
            },
            missing={},
        )

    def keep(
        self, processes: Sequence[ProcessSeen], taken: Stacks, switches: Callable[[int, int], int]
    ) -> None:
        """Remember what was just read."""
        for process in processes:
            found = {stack.tid: stack for stack in taken.threads.get(process.pid, ())}
            self._read[process.pid] = {
                thread.tid: _Read(
                    switches=switches(process.pid, thread.tid),
                    where=_where(thread),
                    stack=found[thread.tid],
                )
                for thread in process.threads
                if thread.tid in found and thread.wait is not Wait.NOTHING
            }

    def _holds(self, pid: int, thread: ThreadSeen) -> bool:
        read = self._read.get(pid, {}).get(thread.tid)
        return (
            read is not None and read.switches == thread.switches and read.where == _where(thread)
        )


def _where(thread: ThreadSeen) -> tuple[Wait, str, tuple[str, ...]]:
    on = thread.blocked.on if thread.blocked else ""
    return thread.wait, on, tuple(thread.frames or ())
