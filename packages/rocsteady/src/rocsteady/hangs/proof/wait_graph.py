"""Who waits for whom in one snapshot: one walk, from the threads that train to all they depend on.

Everything that is said about a hang comes from this walk: the verdict, the proof, the place and the
culprit. Each rule names *all* threads that could end a wait, and every other way in which it could
end. Where that is not known, there is a way out: a mistake here then costs time, never a healthy
run. Three rules know better than the system call does, each for waits that PyTorch or Python itself
makes: loops that repeat for ever, the loader's own queues, and the collectives of ranks, whose
timeout is only a watchdog.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from rocsteady.doctor.knowledge.waits import EndedBy, WaitKnowledge
from rocsteady.hangs.proof.stack_frames import (
    below_users_code,
    has_users_code,
    in_collective,
    in_python_lock,
    is_of,
    is_torchs,
    place_of,
)
from rocsteady.hangs.proof.wait_set import Activity, Key, Member, WaitSet, WakeSource
from rocsteady.hangs.values import (
    GIL,
    Blocked,
    Heartbeat,
    ProcessSeen,
    Snapshot,
    ThreadSeen,
    Wait,
    WayOut,
    ranks_elsewhere,
    trainers,
)
from rocsteady.wording import duration, signal_name

LOADER = "torch/utils/data/dataloader.py"
WORKER = "torch/utils/data/_utils/worker.py"
# What children run that end only with their parent: torch's own handler is there for their crash.
SERVING = (
    WORKER,
    "multiprocessing/resource_tracker.py",
    "multiprocess/resource_tracker.py",  # of datasets
)
KERNEL = "ipykernel/kernelbase.py"
PIN_MEMORY = "torch/utils/data/_utils/pin_memory.py"
QUEUES = "multiprocessing/queues.py"
# Seconds by which a timeout may differ from what the loop gives: it is read a moment later.
SLACK = 0.5
# Seconds. The timeouts of ranks are watchdogs of half an hour. One that fires within a minute is
# worth waiting for: the script may handle it, and says more about the fault than we can.
WATCHDOG = 60.0
ALARMS = {14: "SIGALRM", 26: "SIGVTALRM", 27: "SIGPROF"}
CHILD_ENDED = 17
# Of the process itself, and the C library's own.
FAULTS = frozenset({4, 5, 6, 7, 8, 11, 31, 32, 33})
# No handler of these frees a thread: the ends that users and systems send, faults of the process
# itself, the size of a terminal, and the C library's own.
HARMLESS = FAULTS | {2, 15, 13, 25, 28, CHILD_ENDED}
# These count for a thread that waits to be told of something: SIGTERM, SIGWINCH, and SIGINT if its
# handler is not the one that every Python has.
TO_BE_TOLD = frozenset({15, 28})
INTERRUPT = 2
# What GNU sort and the like have a handler for, which removes their files and ends them.
CLEANING_UP = frozenset({1, 2, 13, 14, 15, 24, 25, 26, 27, 29})


def wait_set(
    snapshot: Snapshot,
    heartbeats: tuple[Heartbeat, ...],
    known: WaitKnowledge,
    *,
    apart: bool = False,
) -> WaitSet:
    """Return who waits for whom in one snapshot; ``apart``: as if other hosts had no ranks."""
    return _Graph(snapshot, heartbeats, known, apart=apart).walked()


class _ThreadActivity(NamedTuple):
    activity: Activity
    enders: Iterable[Key] = ()
    until: float | None = None
    expected: Iterable[Key] | None = None  # of the enders, those that are expected to; None: all


class _Graph:
    """One walk over one snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        heartbeats: tuple[Heartbeat, ...],
        known: WaitKnowledge,
        *,
        apart: bool,
    ) -> None:
        self._snapshot, self._known, self._apart = snapshot, known, apart
        self._elsewhere = ranks_elsewhere(heartbeats)
        self._interrupted = {beat.pid for beat in heartbeats if beat.interrupted}
        self._world_known = any(beat.world for beat in heartbeats)
        self._processes = {process.pid: process for process in snapshot.processes}
        self._threads = {
            (process.pid, thread.tid): (process, thread)
            for process in snapshot.processes
            for thread in process.threads
        }
        self._exits: list[WakeSource] = []
        self._needs_process = False  # a wait would end with the process that is waited for
        self._helping: dict[Key, bool] = {}
        self._waking: dict[tuple[int, ...], tuple[Key, ...]] = {}
        self._holding: dict[int, set[Wait]] = {}
        self._roots = self._training_threads(heartbeats)

    def walked(self) -> WaitSet:
        members: dict[Key, Member] = {}
        expected: dict[Key, Iterable[Key]] = {}
        waiting, ahead, followed = deque(self._roots), set(self._roots), set[int]()
        while waiting:
            key = waiting.popleft()
            members[key], expected[key] = self._member(key)
            if id(members[key].enders) not in followed:
                followed.add(id(members[key].enders))
                waiting += (fresh := [each for each in members[key].enders if each not in ahead])
                ahead.update(fresh)
        for pid in sorted({pid for pid, _ in members}):
            self._timers(self._processes[pid])
        for key in self._roots if self._apart else ():  # in a lock of torch's as well
            if self._processes[key[0]].unanswered:
                self._out(key, WayOut.NETWORK, "sends again what another host has not confirmed")
        # Handlers only lengthen the limit of a closed set, so they matter only if it is closed.
        handlers = tuple(self._handlers(members)) if not self._exits else ()
        involved = _closure(self._roots, expected)
        return WaitSet(
            at=self._snapshot.at,
            members=tuple(
                member
                if key in involved and not self._looks_in_on_training(key)
                else replace(member, bystander=True)
                for key, member in members.items()
            ),
            exits=tuple(self._exits),
            handlers=handlers,
        )

    # Where the walk begins.

    def _training_threads(self, heartbeats: tuple[Heartbeat, ...]) -> dict[Key, None]:
        """Return the threads that train: as pages tell, else the main threads of Python programs.

        A script whose own code is done has no training thread any more: its main thread, which
        must exit, takes that place.
        """
        if not heartbeats:
            return dict.fromkeys(self._topmost_pythons())
        keys: dict[Key, None] = {}
        for beat in trainers(heartbeats):
            key, training = (
                (beat.pid, beat.pid if beat.ended else beat.thread),
                (beat.pid, beat.thread),
            )
            if training not in self._threads:
                self._out(training, WayOut.UNKNOWN, "is training but was not seen")
            if key in self._threads:
                if self._threads[key][1].state == "Z":
                    self._out(key, WayOut.UNKNOWN, "has ended, but its process has not")
                else:
                    keys[key] = None
        return keys

    def _topmost_pythons(self) -> Iterator[Key]:
        able = {pid for pid, process in self._processes.items() if self._could_train(process)}
        for pid in able:
            parent, seen = self._processes[pid].parent, {pid}
            while parent in self._processes and parent not in able and parent not in seen:
                seen.add(parent)
                parent = self._processes[parent].parent
            main = self._threads.get((pid, pid))
            if parent not in able and main and main[1].state != "Z":
                yield pid, pid

    def _could_train(self, process: ProcessSeen) -> bool:
        main = self._threads.get((process.pid, process.pid))
        return process.python and not (main and self._serves((process.pid, process.pid)))

    # One thread.

    def _member(self, key: Key) -> tuple[Member, Iterable[Key]]:
        """Return a member, and who is expected to end its wait."""
        process, thread = self._threads[key]
        found = len(self._exits)
        answer = self._answer(key, process, thread)
        if answer.activity is not Activity.WAITS_INSIDE and len(self._exits) == found:
            # What py-spy has just stopped says nothing of its wait; a debugger's is Wait.TRACED.
            is_read = thread.state == "t" and thread.wait is Wait.UNKNOWN
            way = WayOut.UNREAD if is_read else WayOut.UNKNOWN
            self._out(key, way, f"waits for {thread.wait.value}")
        member = Member(
            process=process,
            thread=thread,
            trains=key in self._roots,
            activity=answer.activity,
            place=place_of(thread.frames),
            enders=answer.enders if isinstance(answer.enders, tuple) else _ordered(answer.enders),
            until=answer.until,
            for_ranks=in_collective(thread, self._known),
        )
        return member, member.enders if answer.expected is None else answer.expected

    def _answer(self, key: Key, process: ProcessSeen, thread: ThreadSeen) -> _ThreadActivity:  # noqa: PLR0911 - one a rule
        """Apply the first rule that fits.

        The order is from what needs no further question to what needs most. A stopped process goes
        first: nothing else that is seen of it means anything. A device wait goes before "runs", for
        ROCm spins in it. A missing stack goes before the system call, which by itself cannot tell a
        deadlock from a collective or from torch's own loops.
        """
        leads = key in self._roots or thread.tid == process.pid
        if process.pid not in self._holding:
            able = (each for each in process.threads if not self._serves((process.pid, each.tid)))
            self._holding[process.pid] = {each.wait for each in able}
        held = self._holding[process.pid]
        if Wait.STOPPED in held:  # all its threads are: one that was read before is too by now
            return _ThreadActivity(Activity.STOPPED)
        if Wait.TRACED in held or (leads and self._known.person(thread.frames or ())):
            return _ThreadActivity(Activity.DEBUGGED)
        if self._known.device(thread.native or ()) is not None:
            self._out(key, WayOut.DEVICE, "waits for the GPU")
            return _ThreadActivity(Activity.WAITS_FOR_GPU)
        if thread.wait is Wait.NOTHING:
            self._out(key, WayOut.RUNS, "runs")
            return _ThreadActivity(Activity.RUNS)
        if leads and process.python and (thread.frames is None or not self._snapshot.stacks):
            self._out(key, WayOut.UNREAD, "has no stack that could be read")
            return _ThreadActivity(Activity.WAITS_OUTSIDE)
        if thread.blocked is None:
            return _ThreadActivity(Activity.WAITS_OUTSIDE)
        if thread.wait in (Wait.LOCK, Wait.SLEEP, Wait.TREE) and in_collective(thread, self._known):
            activity = Activity.WAITS_OUTSIDE if self._elsewhere else Activity.WAITS_INSIDE
            return _ThreadActivity(activity, self._ranks(key, thread.blocked))
        ended_by = self._loop(thread, thread.blocked)
        if ended_by is not None:
            return self._of_loop(key, ended_by, thread.blocked)
        return self._of_call(key, thread.blocked)

    def _loop(self, thread: ThreadSeen, blocked: Blocked) -> EndedBy | None:
        """Recognise a wait that PyTorch or Python repeats for ever; return who ends it."""
        if blocked.on == GIL:
            return EndedBy.PROCESS
        ended_by, period = self._known.loop(thread.frames or (), thread.native or ()) or (None, 0.0)
        if ended_by is EndedBy.PROCESS and thread.wait is not Wait.LOCK:
            return None  # the native stack is a little younger than the system call
        return ended_by if _is_own(period, blocked) else None

    def _out(self, key: Key, way: WayOut, what: str) -> None:
        self._exits.append(WakeSource(pid=key[0], tid=key[1], way=way, what=what))

    def _out_of(self, key: Key, blocked: Blocked) -> None:
        if blocked.way_out is not None:
            self._out(key, blocked.way_out, f"waits for {blocked.on}: {blocked.who}")

    # Who could end a wait.

    def _of_call(self, key: Key, blocked: Blocked) -> _ThreadActivity:
        """Any thread of the processes that the call depends on could end it."""
        process, thread = self._threads[key]
        if blocked.left is not None:
            self._out(key, WayOut.TIMEOUT, _gives_up(blocked))
        self._out_of(key, blocked)
        if thread.wait is Wait.SIGNAL and self._may_be_woken(process, thread):
            self._out(key, WayOut.SIGNAL, "waits for a signal")
        if thread.wait is Wait.LOCK and any(map(_is_feeder, thread.frames or ())):
            # It has nothing to write. One that cannot write waits for those who read, as any other.
            return _ThreadActivity(self._by_kind(key, blocked), set(self._putting(key[0])) - {key})
        pids = {*blocked.pids}
        expected = self._expected(key, blocked, self._all_of(key, pids))
        if thread.wait in (Wait.TREE, Wait.CHILD):
            # A thread beside it may end the process at the other end: a timer that kills a child.
            self._needs_process = True
            pids.add(key[0])
        enders = self._all_of(key, pids)
        return _ThreadActivity(self._by_kind(key, blocked), enders, expected=expected)

    def _may_be_woken(self, process: ProcessSeen, thread: ThreadSeen) -> bool:
        """Whether a signal may come to a process that waits for any of them.

        A script may wait for the ^C of a person, or for an alarm that ends it; a loader worker is
        not the one to be sent one.
        """
        if any(is_of(frame, WORKER) for frame in thread.frames or ()):
            return bool(self._usable_handlers(process, {process.pid}))
        return True

    def _expected(self, key: Key, blocked: Blocked, enders: Iterable[Key]) -> Iterable[Key]:
        """Leave out threads that could end a wait, but that nobody expects to.

        A process often holds both ends of its pipes, and all processes of a tree share the locks of
        multiprocessing. The proof counts all their threads. But whoever reads from a worker waits
        for the worker, and a worker in a shared lock is where a person should look: threads beside
        them, such as a progress bar's, say nothing about how the work goes.
        """
        if blocked.holds_both:
            return [other for other in enders if other[0] != key[0]]
        if self._threads[key][1].wait is Wait.LOCK and {*blocked.pids} - {key[0]}:
            if key not in self._roots:
                return [other for other in enders if other[0] == key[0]]
            # Of several that are at the same line, at most one could hold the lock: they are idle.
            places = {other: place_of(self._threads[other][1].frames) for other in enders}
            alike = Counter({(other[0], place): 1 for other, place in places.items()})
            at_place = Counter(place for _, place in alike)
            return [other for other in enders if other[0] == key[0] or at_place[places[other]] == 1]
        return enders

    def _looks_in_on_training(self, key: Key) -> bool:
        """Whether this main thread polls, while another thread of its process trains."""
        thread = self._threads[key][1]
        polls = thread.wait is Wait.SLEEP or (thread.blocked is not None and thread.blocked.left)
        main = key[0] == key[1] and key not in self._roots
        return main and bool(polls) and any(pid == key[0] for pid, _ in self._roots)

    def _by_kind(self, key: Key, blocked: Blocked) -> Activity:
        thread = self._threads[key][1]
        if thread.wait is Wait.LOCK:
            # Below a lock of native code there may be a collective that only native stacks show.
            if self._elsewhere and not in_python_lock(thread):
                self._out(key, WayOut.PROCESS, "may wait for ranks on other machines")
                return Activity.WAITS_OUTSIDE
            return Activity.WAITS_INSIDE
        if thread.wait in (Wait.TREE, Wait.CHILD):
            seen = blocked.pids and all(pid in self._processes for pid in blocked.pids)
            return Activity.WAITS_INSIDE if seen else Activity.WAITS_OUTSIDE
        return Activity.WAITS_INSIDE if thread.wait is Wait.SIGNAL else Activity.WAITS_OUTSIDE

    def _putting(self, pid: int) -> Iterator[Key]:
        """Yield who fills the loader's queues, whose own threads wait for that.

        A queue of the user's own has such a thread too. It is found only as one of all threads of
        its process, so that nobody is left out.
        """
        if (pid, pid) in self._threads:
            yield pid, pid
        yield from (key for key in self._roots if key[0] == pid)
        yield from self._in_files(pid, LOADER, WORKER)

    def _all_of(self, key: Key, pids: Iterable[int]) -> tuple[Key, ...]:
        """Return the threads of processes that could end a wait, its own among them.

        It is one and the same tuple for all who wait for the same: they may be thousands.
        """
        group = (*sorted({*pids}), self._serves(key))
        if group not in self._waking:
            seen = [self._processes[pid] for pid in group[:-1] if pid in self._processes]
            able = (other for process in seen for other in self._able(key, process))
            self._waking[group] = tuple(able)
        for pid in pids:
            if pid not in self._processes:
                self._out(key, WayOut.UNKNOWN, f"depends on process {pid}, which was not seen")
        return self._waking[group]

    def _able(self, waiter: Key, process: ProcessSeen) -> tuple[Key, ...]:
        """Return the threads of a process that could end a wait: not those that only serve.

        Unless it is their service that is waited for, or they run code of the user's.
        """
        served = self._serves(waiter)
        return tuple(
            key
            for thread in process.threads
            if thread.state != "Z"
            and ((key := (process.pid, thread.tid)) in self._roots or served or self._acts(key))
        )

    def _acts(self, key: Key) -> bool:
        return not self._serves(key) or has_users_code(self._threads[key][1].frames)

    def _serves(self, key: Key) -> bool:
        if key not in self._helping:
            thread = self._threads[key][1]
            frames, native = thread.frames or (), thread.native or ()
            # A notebook's kernel runs its cells below its own frames, in its main thread.
            in_kernel = key[0] == key[1] and any(is_of(frame, KERNEL) for frame in frames)
            runs_a_cell = in_kernel and has_users_code(frames)
            self._helping[key] = not runs_a_cell and self._known.helper(thread.name, frames, native)
        return self._helping[key]

    def _ranks(self, key: Key, blocked: Blocked) -> tuple[Key, ...]:
        """Return who could end a collective: every rank. Its timeout is a watchdog's."""
        if self._elsewhere:
            self._out(key, WayOut.PROCESS, "waits for ranks on other machines")
        if blocked.left is not None and blocked.left < WATCHDOG:
            self._out(key, WayOut.TIMEOUT, _gives_up(blocked))
        if not blocked.on.startswith("socket"):  # at the other end of these are the ranks
            self._out_of(key, blocked)
        ranks = {*(pid for pid, _ in self._roots), *blocked.pids}
        if not self._world_known:  # then any program here may be a rank, and others may be outside
            ranks |= {each.pid for each in self._snapshot.processes if self._may_be_rank(each)}
            if len(ranks) == 1:
                self._out(key, WayOut.PROCESS, "waits for ranks that were not seen")
        return self._all_of(key, ranks)

    def _may_be_rank(self, process: ProcessSeen) -> bool:
        return process.python and not any(self._in_files(process.pid, *SERVING))

    def _of_loop(self, key: Key, ended_by: EndedBy, blocked: Blocked) -> _ThreadActivity:
        """Look at the object that a loop of PyTorch or Python waits for, not at its timeout."""
        self._out_of(key, blocked)
        if ended_by is EndedBy.PROCESS:
            return _ThreadActivity(self._by_kind(key, blocked), self._all_of(key, (key[0],)))
        others = [pid for pid in blocked.pids if pid != key[0]]
        if ended_by is EndedBy.ITERATOR:
            found = [other for pid in others for other in self._iterating(key, pid)]
        elif blocked.on.startswith("lock"):  # the queue of the thread that pins memory
            found = [other for other in self._in_files(key[0], PIN_MEMORY) if other != key]
        else:
            found = [other for pid in others for other in self._delivering(key, pid)]
        if not found:
            self._out(key, WayOut.UNKNOWN, f"waits for {blocked.on}; its writer was not seen")
            return _ThreadActivity(Activity.WAITS_OUTSIDE, self._all_of(key, blocked.pids))
        remains = None if blocked.whole else blocked.left
        until = None if remains is None else self._snapshot.at + remains
        return _ThreadActivity(self._by_kind(key, blocked), found, until)

    def _iterating(self, waiter: Key, pid: int) -> Iterator[Key]:
        """Yield who gives work to workers: not other workers, which only inherited the pipe."""
        process = self._processes.get(pid)
        if process is None or any(self._in_files(pid, WORKER)):
            return
        yield from (key for key in self._roots if key[0] == pid)
        yield from self._in_files(pid, LOADER, QUEUES)
        if not any(key[0] == pid for key in self._roots):
            yield from self._able(waiter, process)

    def _delivering(self, waiter: Key, pid: int) -> Iterator[Key]:
        """Yield who delivers batches: the main thread of a worker, and its queue's own thread.

        A process that is not seen to be a worker may do so by any thread.
        """
        process = self._processes.get(pid)
        if process and not any(self._in_files(pid, WORKER)):
            yield from self._able(waiter, process)
        elif (pid, pid) in self._threads:
            yield pid, pid
            yield from self._in_files(pid, QUEUES)

    def _in_files(self, pid: int, *files: str) -> Iterator[Key]:
        process = self._processes.get(pid)
        for thread in process.threads if process else ():
            if any(is_of(frame, *files) for frame in thread.frames or ()):
                yield pid, thread.tid

    # Timers and signals, which end waits of whole processes.

    def _timers(self, process: ProcessSeen) -> None:
        main = process.pid, process.pid
        if process.handlers is None:
            self._out(main, WayOut.UNKNOWN, "has signal handlers that could not be read")
        ends = not process.python and set(process.handlers or ()) >= CLEANING_UP
        for number in process.handlers or ():
            if number in ALARMS and not ends:
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
                yield f"process {pid} ({process.name}) may have its own alarm"
            main = members.get((pid, pid))
            if main and is_torchs(main.thread.frames):
                continue
            given = self._usable_handlers(process, pids)
            if main and main.trains and _waits_for_news(main.thread):
                told = TO_BE_TOLD | ({INTERRUPT} if pid in self._interrupted else set())
                given |= told & set(process.handlers or ())
            if given:
                names = ", ".join(map(signal_name, sorted(given)))
                yield f"process {pid} has a handler for {names}"
        for process in self._snapshot.processes if self._needs_process else ():
            if process.pid not in pids and self._may_signal_later(process, pids):
                yield f"process {process.pid} ({process.name}) sleeps, and may end another later"

    def _may_signal_later(self, process: ProcessSeen, members: set[int]) -> bool:
        """Whether a process beside the set only sleeps, as a watchdog does before it kills.

        Those that started the members, such as a shell, wait for them.
        """
        main = self._threads.get((process.pid, process.pid))
        sleeps = main is not None and main[1].wait is Wait.SLEEP
        if not sleeps or self._serves((process.pid, process.pid)):
            return False
        above: set[int] = set()
        for pid in members:
            while pid in self._processes and pid not in above:
                above.add(pid)
                pid = self._processes[pid].parent  # noqa: PLW2901 - up to the root
        return process.pid not in above and not any(self._in_files(process.pid, *SERVING))


def _closure(roots: Iterable[Key], following: Mapping[Key, Iterable[Key]]) -> set[Key]:
    """Return all that can be come to from the roots."""
    found = set(roots)
    waiting, followed = list(found), set[int]()
    while waiting:
        following_one = following[waiting.pop()]
        if id(following_one) not in followed:
            followed.add(id(following_one))
            waiting += (fresh := [each for each in following_one if each not in found])
            found.update(fresh)
    return found


def _ordered(keys: Iterable[Key]) -> tuple[Key, ...]:
    return tuple(sorted(set(keys)))


def _waits_for_news(thread: ThreadSeen) -> bool:
    """Whether the user's code waits for an Event or a Condition, or in a loop of asyncio.

    These are what the handler of a signal sets; a lock, a queue and a thread are not.
    """
    below = below_users_code(thread.frames)
    event = [frame for frame in below if is_of(frame, "threading.py")]
    waits = all(frame.partition(" (")[0].rpartition(".")[2] == "wait" for frame in event)
    if event and len(event) == len(below) and waits:
        return True
    return (
        bool(below)
        and is_of(below[0], "selectors.py")
        and any(is_of(frame, "asyncio/base_events.py") for frame in below)
    )


def _is_feeder(frame: str) -> bool:
    return frame.partition(" (")[0].endswith("_feed") and is_of(frame, QUEUES)


def _is_own(period: float, blocked: Blocked) -> bool:
    """Whether a timeout is the loop's own; another one was given by the user."""
    if blocked.left is None:
        return True
    return blocked.left <= period + SLACK and (not blocked.whole or blocked.left >= period - SLACK)


def _gives_up(blocked: Blocked) -> str:
    if blocked.on == "time" or not blocked.left:
        return "sleeps"
    return f"waits for {blocked.on} and gives up after {duration(blocked.left)}"
