"""Who waits for whom: from the threads that train to everything that could free them.

A thread in a lock waits for any other thread of its process; at a pipe or for a child, for other
processes; in a collective, for the other ranks. Helpers that only serve are left out. Where it is
not known who could free a thread, more is reached rather than less: whatever is reached and moves,
or waits for the world, keeps a run from being called hung.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from rocsteady.hangs.stack_facts import KnownWaits
from rocsteady.hangs.stack_place import is_of
from rocsteady.hangs.values import Heartbeat, ProcessSeen, Snapshot, ThreadSeen, Wait

LOADER = "data/dataloader.py"  # torch's: snapshots keep only the last folder of a path


class Ending(Enum):
    """How far what one thread waits for can be followed."""

    STOPPED = "stopped"  # by a signal
    HELD = "held"  # by a debugger, or by somebody at its prompt
    RUNS = "runs"
    OUTSIDE = "outside"  # the world, time, the disk, or what could not be seen
    DEVICE = "device"  # in a known device wait
    LOCKED = "locked"  # a lock or a pipe inside the tree


class Reached(NamedTuple):
    """One thread that the training depends on."""

    process: ProcessSeen
    thread: ThreadSeen
    trains: bool
    ending: Ending

    @property
    def key(self) -> tuple[int, int]:
        """Return what it is called in every snapshot."""
        return self.process.pid, self.thread.tid

    @property
    def main(self) -> bool:
        """Tell whether this is the thread that its process began with."""
        return self.thread.tid == self.process.pid


def training(heartbeats: tuple[Heartbeat, ...]) -> tuple[Heartbeat, ...]:
    """Return those that train: of each rank the ones that beat; not launchers, not the ended.

    Where the code of all is done, those that have not exited yet take their place.
    """
    going = [heartbeat for heartbeat in heartbeats if not heartbeat.ended]
    beat = [heartbeat for heartbeat in going if heartbeat.beats or heartbeat.step]
    told = {heartbeat.rank for heartbeat in beat}
    silent = [one for one in going if one.rank is not None and one.rank not in told]
    return tuple(beat + silent or going or heartbeats)


def finished(heartbeats: tuple[Heartbeat, ...]) -> bool:
    """Tell whether the code of all that trained is done; a launcher may still wait for them."""
    trained = [beat for beat in heartbeats if beat.beats or beat.step or beat.rank is not None]
    return bool(heartbeats) and all(beat.ended for beat in trained or heartbeats)


def ranks_elsewhere(heartbeats: tuple[Heartbeat, ...]) -> bool:
    """Tell whether ranks train that have no page here, such as those of another machine."""
    ranks = {heartbeat.rank for heartbeat in heartbeats if heartbeat.rank is not None}
    return any((heartbeat.world or 1) > max(1, len(ranks)) for heartbeat in heartbeats)


def reach(
    snapshot: Snapshot, heartbeats: tuple[Heartbeat, ...], known: KnownWaits
) -> tuple[Reached, ...]:
    """Return every thread that the training depends on, those that train first."""
    return _Walk(snapshot, heartbeats, known).walked()


def roots(
    snapshot: Snapshot, heartbeats: tuple[Heartbeat, ...], known: KnownWaits
) -> dict[tuple[int, int], tuple[ProcessSeen, ThreadSeen]]:
    """Return the threads that train: as pages tell, else the main threads of Python programs."""
    threads = {
        (process.pid, thread.tid): (process, thread)
        for process in snapshot.processes
        for thread in process.threads
    }
    told = [(it.pid, it.pid if it.ended else it.thread) for it in training(heartbeats)]
    keys = told if heartbeats else _main_threads(snapshot, known)
    return {key: threads[key] for key in keys if key in threads}


def _main_threads(snapshot: Snapshot, known: KnownWaits) -> Iterator[tuple[int, int]]:
    """Yield, where no page tells, the main threads of the topmost Python programs."""
    processes = {process.pid: process for process in snapshot.processes}
    able = {pid for pid, process in processes.items() if _could_train(process, known)}
    for pid in able:
        parent = processes[pid].parent
        seen = {pid}
        while parent in processes and parent not in able and parent not in seen:
            seen.add(parent)
            parent = processes[parent].parent
        if parent not in able:
            yield pid, pid


def _could_train(process: ProcessSeen, known: KnownWaits) -> bool:
    main = [thread for thread in process.threads if thread.tid == process.pid]
    return process.python and not any(helps(thread, known) for thread in main)


def helps(thread: ThreadSeen, known: KnownWaits) -> bool:
    """Tell whether a thread only serves."""
    return known.helper(thread.name, thread.frames or (), thread.native or ())


class _Walk:
    """One walk over one snapshot."""

    def __init__(
        self, snapshot: Snapshot, heartbeats: tuple[Heartbeat, ...], known: KnownWaits
    ) -> None:
        self._stacks = snapshot.stacks
        self._known = known
        self._elsewhere = ranks_elsewhere(heartbeats)
        self._processes = {process.pid: process for process in snapshot.processes}
        self._roots = roots(snapshot, heartbeats, known)

    def walked(self) -> tuple[Reached, ...]:
        found: dict[tuple[int, int], Reached] = {}
        waiting = list(self._roots.values())
        while waiting:
            process, thread = waiting.pop(0)
            key = process.pid, thread.tid
            if key in found or thread.state == "Z":
                continue
            one = Reached(process, thread, key in self._roots, self._ending(process, thread))
            found[key] = one
            if one.ending is Ending.LOCKED:
                waiting += self._next(one)
        return tuple(found.values())

    def _ending(self, process: ProcessSeen, thread: ThreadSeen) -> Ending:  # noqa: PLR0911 - one a rule
        frames, native = thread.frames or (), thread.native or ()
        leads = (process.pid, thread.tid) in self._roots or thread.tid == process.pid
        if thread.wait is Wait.STOPPED:
            return Ending.STOPPED
        if thread.wait is Wait.TRACED or (leads and self._known.person(frames)):
            return Ending.HELD
        if self._known.device(native) is not None:
            return Ending.DEVICE
        if thread.wait is Wait.NOTHING:
            return Ending.RUNS
        if leads and process.python and (thread.frames is None or not self._stacks):
            return Ending.OUTSIDE
        if self._in_collective(thread):
            return Ending.OUTSIDE if self._elsewhere else Ending.LOCKED
        return Ending.LOCKED if self._followed(process, thread) else Ending.OUTSIDE

    def _followed(self, process: ProcessSeen, thread: ThreadSeen) -> bool:
        """Tell whether all that this wait is for is in the tree."""
        if thread.wait is Wait.LOCK:
            return not self._elsewhere or bool(thread.frames and _in_python_lock(thread.frames))
        if thread.wait is Wait.SIGNAL:
            return True
        if thread.wait in (Wait.TREE, Wait.CHILD):
            named = thread.waits_for or tuple(self._children(process.pid))
            known = all(pid in self._processes for pid in named)
            return known and (bool(named) or thread.wait is Wait.TREE)
        return False

    def _in_collective(self, thread: ThreadSeen) -> bool:
        blocked = thread.wait in (Wait.LOCK, Wait.SLEEP)  # a timeout of 30 minutes is a sleep
        return blocked and self._known.collective(thread.frames or (), thread.native or ())

    def _next(self, one: Reached) -> Iterator[tuple[ProcessSeen, ThreadSeen]]:
        process, thread = one.process, one.thread
        if self._in_collective(thread):
            yield from self._roots.values()
        if thread.wait in (Wait.LOCK, Wait.SLEEP):
            yield from self._beside(process, thread)
        for pid in self._waited_for(one):
            yield from self._threads(self._processes[pid])

    def _waited_for(self, one: Reached) -> Iterable[int]:
        thread, pid = one.thread, one.process.pid
        if thread.waits_for:
            return [other for other in thread.waits_for if other in self._processes]
        if thread.wait is Wait.TREE:
            return list(self._processes)
        shared = one.trains and any(
            is_of(frame, "multiprocessing/synchronize.py") for frame in (thread.frames or ())[:2]
        )
        return self._children(pid) if shared or thread.wait is Wait.CHILD else []

    def _children(self, pid: int) -> list[int]:
        return [other.pid for other in self._processes.values() if other.parent == pid]

    def _beside(
        self, process: ProcessSeen, thread: ThreadSeen
    ) -> Iterator[tuple[ProcessSeen, ThreadSeen]]:
        """Yield who could free a lock: for one that only Python code frees, only such threads."""
        only_python = _in_python_lock(thread.frames or ()) and any(
            "_try_get_data (" in frame and is_of(frame, LOADER) for frame in thread.frames or ()
        )
        for owner, other in self._threads(process):
            if other.tid != thread.tid and (other.frames is not None or not only_python):
                yield owner, other

    def _threads(self, process: ProcessSeen) -> Iterator[tuple[ProcessSeen, ThreadSeen]]:
        for thread in process.threads:
            if (process.pid, thread.tid) in self._roots or not helps(thread, self._known):
                yield process, thread


def _in_python_lock(frames: tuple[str, ...]) -> bool:
    return bool(frames) and is_of(frames[0], "threading.py", "queue.py")
