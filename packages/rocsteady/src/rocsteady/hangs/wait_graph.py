"""From one snapshot to the wait set: from the threads that train to all that could end their waits.

Every rule names all who could end a wait. Three of them know better than the system call does,
each for waits that PyTorch or Python itself makes: loops that repeat for ever, the loader's own
queues, and the collectives of ranks, whose timeout is only a watchdog.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator

from rocsteady.doctor.knowledge.waits import EndedBy
from rocsteady.hangs.stack_facts import KnownWaits
from rocsteady.hangs.stack_place import has_users_code, is_of, is_torchs, place_of
from rocsteady.hangs.values import (
    GIL,
    Blocked,
    Heartbeat,
    ProcessSeen,
    Snapshot,
    ThreadSeen,
    Wait,
)
from rocsteady.hangs.wait_chain import helps, ranks_elsewhere, roots, training
from rocsteady.hangs.wait_set import WAYS, Key, Member, WaitSet, WakeSource, WayOut
from rocsteady.wording import duration

LOADER = "torch/utils/data/dataloader.py"
WORKER = "torch/utils/data/_utils/worker.py"
# What children run that end only with their parent: torch's own handler is there for their crash.
SERVING = (WORKER, "multiprocessing/resource_tracker.py")
PIN_MEMORY = "torch/utils/data/_utils/pin_memory.py"
QUEUES = "multiprocessing/queues.py"
SLACK = 0.5  # seconds by which a timeout may differ from what the loop gives
WATCHDOG = 60.0  # seconds: a timeout of ranks that is nearer is left to fire
ALARMS = {14: "SIGALRM", 26: "SIGVTALRM", 27: "SIGPROF"}
CHILD_ENDED = 17
# No handler of these frees a thread: the ends that users and systems send, faults of the process
# itself, the size of a terminal, the C library's own, and SIGURG, on which we ask for stacks.
HARMLESS = frozenset({2, 15, 4, 5, 6, 7, 8, 11, 31, 13, 25, 28, 23, 32, 33, CHILD_ENDED})


def wait_set(snapshot: Snapshot, heartbeats: tuple[Heartbeat, ...], known: KnownWaits) -> WaitSet:
    """Say who waits for whom in one snapshot."""
    return _Graph(snapshot, heartbeats, known).walked()


class _Graph:
    """One walk over one snapshot."""

    def __init__(
        self, snapshot: Snapshot, heartbeats: tuple[Heartbeat, ...], known: KnownWaits
    ) -> None:
        self._snapshot, self._known = snapshot, known
        self._elsewhere = ranks_elsewhere(heartbeats)
        self._world_known = any(beat.world for beat in heartbeats)
        self._roots = roots(snapshot, heartbeats, known)
        self._processes = {process.pid: process for process in snapshot.processes}
        self._threads = {
            (process.pid, thread.tid): (process, thread)
            for process in snapshot.processes
            for thread in process.threads
        }
        self._exits: list[WakeSource] = []
        for beat in training(heartbeats):
            if (beat.pid, beat.thread) not in self._threads:
                self._out((beat.pid, beat.thread), WayOut.UNKNOWN, "is training but was not seen")

    def walked(self) -> WaitSet:
        members: dict[Key, Member] = {}
        waiting = list(self._roots)
        while waiting:
            key = waiting.pop(0)
            if key in members:
                continue
            members[key] = self._member(key)
            waiting += members[key].enders
        for pid in sorted({pid for pid, _ in members}):
            self._timers(self._processes[pid])
        found = tuple(members.values())
        handlers = tuple(self._handlers(members)) if not self._exits else ()
        return WaitSet(
            at=self._snapshot.at, members=found, exits=tuple(self._exits), handlers=handlers
        )

    def _member(self, key: Key) -> Member:
        process, thread = self._threads[key]
        blocked, until = thread.blocked, None
        enders: list[Key] = []
        loop = self._known.loop(thread.frames or (), thread.native or ())
        if blocked is not None and blocked.on == GIL:
            loop = EndedBy.PROCESS, blocked.left or 0.0
        if key in self._roots and process.python and thread.frames is None:
            self._out(key, WayOut.UNKNOWN, "has no stack that could be read")
        elif thread.wait is Wait.NOTHING:
            self._out(key, WayOut.RUNS, "runs")
        elif blocked is None:
            self._out(key, WayOut.UNKNOWN, f"waits for {thread.wait.value}")
        elif self._in_collective(thread):
            enders = self._ranks(key, blocked)
        elif loop is not None and _is_own(loop[1], blocked):
            enders = self._of_loop(key, loop[0], blocked)
            if blocked.left is not None and not blocked.whole and loop[0] is not EndedBy.PROCESS:
                until = self._snapshot.at + blocked.left
        else:
            enders = self._of_call(key, blocked)
        return Member(
            pid=process.pid,
            tid=thread.tid,
            trains=key in self._roots,
            python=thread.frames is not None,
            place=place_of(thread.frames),
            on=blocked.on if blocked else thread.wait.value,
            enders=tuple(sorted(set(enders))),
            cpu=thread.cpu,
            until=until,
        )

    def _out(self, key: Key, way: WayOut, what: str) -> None:
        self._exits.append(WakeSource(pid=key[0], tid=key[1], way=way, what=what))

    def _of_call(self, key: Key, blocked: Blocked) -> list[Key]:
        """Return who could end a call: any thread of the processes that it depends on."""
        if blocked.left is not None:
            self._out(key, WayOut.TIMEOUT, _gives_up(blocked))
        if blocked.outside is not None:
            self._out(key, WAYS[blocked.outside], f"waits for {blocked.on}: {blocked.who}")
        process, thread = self._threads[key]
        if thread.wait is Wait.SIGNAL and self._usable_handlers(process, {key[0]}):
            self._out(key, WayOut.SIGNAL, "waits for a signal, and has a handler for one")
        if any(_is_feeder(frame) for frame in thread.frames or ()):
            return [other for other in self._putting(key[0]) if other != key]
        return self._all_of(key, blocked.pids)

    def _putting(self, pid: int) -> Iterator[Key]:
        """Yield who fills the loader's queues, whose own threads wait for that.

        A queue of the user's own has such a thread too. It is reached only as one of all threads of
        its process, so that nobody is left out.
        """
        yield pid, pid
        yield from (key for key in self._roots if key[0] == pid)
        yield from self._in_files(pid, LOADER, WORKER)

    def _all_of(self, key: Key, pids: Iterable[int]) -> list[Key]:
        found: list[Key] = []
        for pid in pids:
            process = self._processes.get(pid)
            if process is None:
                self._out(key, WayOut.UNKNOWN, f"depends on process {pid}, which was not seen")
            else:
                found += [other for other in self._able(key, process) if other != key]
        return found

    def _able(self, waiter: Key, process: ProcessSeen) -> Iterator[Key]:
        """Yield the threads of a process that could end a wait: not those that only serve.

        Unless it is their service that is waited for, or they run code of the user's.
        """
        served = helps(self._threads[waiter][1], self._known)
        for thread in process.threads:
            key = process.pid, thread.tid
            left_out = helps(thread, self._known) and not has_users_code(thread.frames)
            if thread.state != "Z" and (served or key in self._roots or not left_out):
                yield key

    def _in_collective(self, thread: ThreadSeen) -> bool:
        blocked = thread.wait in (Wait.LOCK, Wait.SLEEP, Wait.TREE)
        return blocked and self._known.collective(thread.frames or (), thread.native or ())

    def _ranks(self, key: Key, blocked: Blocked) -> list[Key]:
        """Return who could end a collective: every rank. Its timeout is a watchdog's."""
        if self._elsewhere:
            self._out(key, WayOut.PROCESS, "waits for ranks on other machines")
        if blocked.left is not None and blocked.left < WATCHDOG:
            self._out(key, WayOut.TIMEOUT, _gives_up(blocked))
        if blocked.outside is not None and not blocked.on.startswith("socket"):
            self._out(key, WAYS[blocked.outside], f"waits for {blocked.on}: {blocked.who}")
        ranks = {*(pid for pid, _ in self._roots), *blocked.pids}
        if not self._world_known:  # then any program here may be a rank, and others may be outside
            ranks |= {each.pid for each in self._snapshot.processes if self._may_be_rank(each)}
            if len(ranks) == 1:
                self._out(key, WayOut.PROCESS, "waits for ranks that were not seen")
        return self._all_of(key, ranks)

    def _may_be_rank(self, process: ProcessSeen) -> bool:
        return process.python and not any(self._in_files(process.pid, *SERVING))

    def _of_loop(self, key: Key, ended_by: EndedBy, blocked: Blocked) -> list[Key]:
        if blocked.outside is not None:
            self._out(key, WAYS[blocked.outside], f"waits for {blocked.on}: {blocked.who}")
        if ended_by is EndedBy.PROCESS:
            return self._all_of(key, (key[0],))
        others = [pid for pid in blocked.pids if pid != key[0]]
        if ended_by is EndedBy.ITERATOR:
            found = [other for pid in others for other in self._iterating(key, pid)]
        elif blocked.on.startswith("lock"):  # the queue of the thread that pins memory
            found = [other for other in self._in_files(key[0], PIN_MEMORY) if other != key]
        else:
            found = [other for pid in others for other in self._delivering(pid)]
        if not found:
            self._out(key, WayOut.UNKNOWN, f"waits for {blocked.on}; its writer was not seen")
        return found

    def _iterating(self, waiter: Key, pid: int) -> Iterator[Key]:
        """Yield who gives work to workers: not other workers, which only inherited the pipe."""
        process = self._processes.get(pid)
        if process is None or any(self._in_files(pid, WORKER)):
            return
        yield from (key for key in self._roots if key[0] == pid)
        yield from self._in_files(pid, LOADER, QUEUES)
        if not any(key[0] == pid for key in self._roots):
            yield from self._able(waiter, process)

    def _delivering(self, pid: int) -> Iterator[Key]:
        """Yield who delivers batches: the main thread of a worker, and its queue's own thread."""
        if pid in self._processes:
            yield pid, pid
            yield from self._in_files(pid, QUEUES)

    def _in_files(self, pid: int, *files: str) -> Iterator[Key]:
        process = self._processes.get(pid)
        for thread in process.threads if process else ():
            if any(is_of(frame, *files) for frame in thread.frames or ()):
                yield pid, thread.tid

    def _timers(self, process: ProcessSeen) -> None:
        main = process.pid, process.pid
        if process.handlers is None:
            self._out(main, WayOut.UNKNOWN, "has signal handlers that could not be read")
        for number in process.handlers or ():
            if number in ALARMS:
                self._out(main, WayOut.SIGNAL, f"has a handler for {ALARMS[number]}")
        if process.timers:
            self._out(main, WayOut.TIMER, f"has {process.timers} timers")

    def _usable_handlers(self, process: ProcessSeen, members: set[int]) -> set[int]:
        """Return the signals with a handler that somebody outside these processes might send."""
        given = set(process.handlers or ()) - HARMLESS
        children = {each.pid for each in self._snapshot.processes if each.parent == process.pid}
        outside = [pid for pid in children - members if not any(self._in_files(pid, *SERVING))]
        if CHILD_ENDED in (process.handlers or ()) and outside:
            given.add(CHILD_ENDED)
        return given

    def _handlers(self, members: dict[Key, Member]) -> Iterator[str]:
        """Yield handlers that somebody might use, but for threads in PyTorch's own code."""
        pids = {pid for pid, _ in members}
        for pid in sorted(pids):
            process = self._processes[pid]
            if not process.python:
                yield f"process {pid} is {process.name}, whose own alarm could end it"
            main = self._threads.get((pid, pid))
            if (pid, pid) in members and main and is_torchs(main[1].frames):
                continue
            if given := self._usable_handlers(process, pids):
                names = ", ".join(map(_signal_name, sorted(given)))
                yield f"process {pid} has a handler for {names}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _is_feeder(frame: str) -> bool:
    return frame.partition(" (")[0].endswith("_feed") and is_of(frame, QUEUES)


def _is_own(period: float, blocked: Blocked) -> bool:
    """Tell whether a timeout is the loop's own; another one was given by the user."""
    if blocked.left is None:
        return True
    return blocked.left <= period + SLACK and (not blocked.whole or blocked.left >= period - SLACK)


def _gives_up(blocked: Blocked) -> str:
    if blocked.on == "time" or not blocked.left:
        return "sleeps"
    return f"waits for {blocked.on} and gives up after {duration(blocked.left)}"
