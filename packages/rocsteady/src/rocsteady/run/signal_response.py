"""Whether anything in a hung tree reacts to the request to end, so that waiting for it has a point.

A process that handles the signal runs: it saves, prints, or waits for a disk, a child or the
network. One whose threads all lie where the proof found them, or wait without a timeout for each
other, and that did not run once since, has nothing left to do.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from rocsteady.hangs.snapshot import take_snapshot
from rocsteady.hangs.values import ProcessSeen, Snapshot, ThreadSeen, Wait
from rocsteady.hangs.wait_set import Key, WaitSet
from rocsteady.system import procfs

STILL = 0.3  # seconds without a single run of any thread
SNAPSHOT_WITHIN = timedelta(seconds=1)
SIGNALS = 1 << 1 | 1 << 14  # SIGINT and SIGTERM, as the kernel writes them
LAUNCHERS = (b"torchrun", b"torch.distributed.run", b"torch/distributed/run.py")


class SignalResponse:
    """Compares snapshots of a tree that was proven to be stuck, from the first signal on."""

    def __init__(self, tree: Callable[[], tuple[int, ...]], proof: WaitSet, seen: Snapshot) -> None:
        self._tree = tree
        self._proven = {member.key: member.on for member in proof.members}
        self._native = set(_native_threads(seen))
        self._before: tuple[float, dict[Key, int]] | None = None  # since when nothing ran

    def none(self) -> bool:
        """Tell whether nothing has run for a while, and nothing is about to."""
        now = take_snapshot(self._tree(), stacks=False, within=SNAPSHOT_WITHIN)
        processes = [process for process in now.processes if not _is_launcher(process)]
        runs = {
            (process.pid, thread.tid): thread.switches
            for process in processes
            for thread in process.threads
        }
        done = runs and all(self._waits(process) for process in processes)
        if not done or self._before is None or self._before[1] != runs:
            self._before = (now.at, runs) if done else None
            return False
        return now.at - self._before[0] >= STILL

    def _waits(self, process: ProcessSeen) -> bool:
        return not _has_to_hear(process.pid) and all(
            self._lies_still((process.pid, thread.tid), thread) for thread in process.threads
        )

    def _lies_still(self, key: Key, thread: ThreadSeen) -> bool:
        """Tell whether a thread will not run by itself; one without Python code must only wait."""
        if not thread.switches or thread.state != "S" or thread.wait is Wait.NOTHING:
            return False
        if key in self._native:
            return True
        blocked = thread.blocked
        if blocked is None:
            return False
        if self._proven.get(key) == blocked.on:
            return True
        return blocked.left is None and blocked.way_out is None


def _native_threads(seen: Snapshot) -> list[Key]:
    """Return threads that run no Python code, of processes whose stacks could be read."""
    return [
        (process.pid, thread.tid)
        for process in seen.processes
        if any(thread.frames for thread in process.threads)
        for thread in process.threads
        if thread.frames is None
    ]


def _has_to_hear(pid: int) -> bool:
    """Tell whether a signal has been sent that the process has not taken yet, and will."""
    try:
        status = procfs.fields(f"{procfs.PROC}/{pid}/status")
        waiting = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
        return bool(waiting & ~int(status["SigBlk"], 16) & SIGNALS)
    except (OSError, KeyError, ValueError):
        return True


def _is_launcher(process: ProcessSeen) -> bool:
    """Tell whether this is torchrun, which only waits for its ranks."""
    try:
        words = procfs.read(f"{procfs.PROC}/{process.pid}/cmdline").split(b"\0")[:4]
    except OSError:
        return False
    return any(word.endswith(LAUNCHERS) for word in words)
