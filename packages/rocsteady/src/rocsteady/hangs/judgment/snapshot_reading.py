"""What one snapshot says, beside the one before it: one activity that stands for the whole tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rocsteady.doctor.knowledge.waits import WaitKnowledge
from rocsteady.hangs.proof.stack_frames import (
    below_users_code,
    has_users_code,
    in_collective,
    is_of,
    is_torchs,
)
from rocsteady.hangs.proof.wait_set import IDLE_SHARE, Activity, Member, WaitSet
from rocsteady.hangs.values import Heartbeat, ProcessSeen, Snapshot, ThreadSeen, Wait
from rocsteady.model import Value

HELD = (Activity.STOPPED, Activity.DEBUGGED)
# Functions of Python that wait for other threads of the process.
FOR_THREADS = {
    "threading.py": ("join", "_shutdown"),
    "concurrent/futures/_base.py": ("result", "exception", "wait", "as_completed"),
    "futures/_base.py": ("result", "exception", "wait", "as_completed"),
    "concurrent/futures/thread.py": ("shutdown",),
    "futures/thread.py": ("shutdown",),
    "asyncio/base_events.py": ("run_forever",),  # or for one of its own tasks
}
BUILD_LOCK = "utils/file_baton.py"
FOR_BUILD_LOCK = (
    "the lock of another build of an extension, which a killed build leaves behind (if none runs:"
    " find ~/.cache/torch_extensions -name lock -delete)"
)
BETWEEN_PROCESSES = (Wait.TREE, Wait.CHILD)
BUSY_SHARE = 0.5  # of a core: a child above it works, even if it is not known who waits for it
BAR_RATE = 64 << 10  # bytes a second: a progress bar redrawn ten times a second writes 20 KiB
BY_SNAPSHOT = 4  # times that a snapshot with native frames may wake a thread
GROWTH_RATE = 1 << 20  # bytes of memory a second


class Reading(Value, frozen=True, kw_only=True):
    activity: Activity
    # Since the snapshot before; also if it runs and cannot be told to stay in one place.
    moves: bool
    why: str  # a clause
    place: str = ""
    culprit: int | None = None
    works: bool = True  # what moves is the work itself, or that cannot be told
    visible: bool = True  # there is a Python program here, so that a hang could be told at all


def read(
    before: Snapshot | None,
    now: Snapshot,
    waits: WaitSet,
    heartbeats: tuple[Heartbeat, ...],
    known: WaitKnowledge,
) -> Reading:
    """Return what the whole tree does; ``waits`` is the wait set of this snapshot."""
    members = tuple(member for member in waits.members if not member.bystander)
    if not members:
        return _nothing_to_see(heartbeats)
    for activity in HELD:
        held = [member for member in members if member.activity is activity]
        if held:
            return _reading(members, held[0], _held(held[0]))
    signs = moved(before, now, members, known) if before else ()
    if signs:
        member, works = signs[0].member or members[0], any(each.works for each in signs)
        why = f"process {signs[0].pid} {signs[0].what}"
        return _reading(members, member, why, moves=True, works=works or not now.stacks)
    running = [member for member in members if member.activity is Activity.RUNS]
    if any(not member.thread.native for member in running):
        # Without native frames, a thread that runs cannot be seen to stay in one place.
        return _reading(members, running[0], _runs(running[0]), moves=True)
    for activity, clause in _CLAUSES.items():
        found = [member for member in members if member.activity is activity]
        if found:
            member = _to_blame(found, known)
            return _reading(members, member, clause(member, now), works=not now.stacks)
    raise AssertionError("every activity is in one of the tables")  # pragma: no cover


def _reading(
    members: tuple[Member, ...],
    member: Member,
    why: str,
    *,
    moves: bool = False,
    works: bool = True,
) -> Reading:
    trains = [other.process.pid for other in members if other.trains]
    alone = member.trains and set(trains) == {member.process.pid}
    return Reading(
        activity=member.activity,
        moves=moves,
        works=works,
        why=why,
        place=_place(member, members),
        culprit=None if alone else member.process.pid,
    )


def _place(member: Member, members: tuple[Member, ...]) -> str:
    """Name the line of a thread, or of one near it if it has no code of the user's.

    A main thread that only waits for others to end has none; else it is one that waits for it, or
    the one that trains.
    """
    others = (other for other in members if other.key in member.enders and waits_for_thread(member))
    waiting = (other for other in members if member.process.pid in _awaited(other))
    training = (other for other in members if other.trains)
    near = (member, *others, *waiting, *training)
    return next((each for each in near if has_users_code(each.thread.frames)), member).place


def waits_for_thread(member: Member) -> bool:
    """Whether it waits for the end, or the result, of another thread of its process."""
    return member.thread.wait in (Wait.LOCK, Wait.TREE) and any(
        frame.partition(" (")[0].rpartition(".")[2] in functions and is_of(frame, file)
        for frame in below_users_code(member.thread.frames)
        for file, functions in FOR_THREADS.items()
    )


def _awaited(member: Member) -> set[int]:
    """Return the processes that a thread waits for."""
    blocked = member.thread.blocked
    if blocked is None or member.thread.wait not in BETWEEN_PROCESSES:
        return set()
    return {*blocked.pids} - ({member.process.pid} if blocked.holds_both else set())


def _nothing_to_see(heartbeats: tuple[Heartbeat, ...]) -> Reading:
    here = bool(heartbeats)
    why = (
        "the training thread is not among the processes that rocsteady can see"
        if here
        else "the work happens where rocsteady cannot see it"
    )
    return Reading(activity=Activity.WAITS_OUTSIDE, moves=False, why=why, visible=here)


def _to_blame(found: list[Member], known: WaitKnowledge) -> Member:
    """Choose whom to name: the end of a chain of waits before those who wait for it."""
    working = {
        each.process.pid
        for each in found
        if has_users_code(each.thread.frames) and not waits_for_thread(each)
    }
    joined = {each.process.pid for each in found if waits_for_thread(each)} & working
    return min(enumerate(found), key=lambda item: (*_innocence(item[1], known, joined), item[0]))[1]


def _innocence(member: Member, known: WaitKnowledge, joined: set[int]) -> tuple[bool, ...]:
    """Order members by how little they explain; the first that differs decides.

    In a process of ``joined``, threads wait for others of it, which are at code of the user's:
    those explain it. Threads beside the main one, such as OpenMP's, wait because the main one gives
    them no work. Those that wait for other processes or ranks are held up by them. A worker
    explains a trainer that waits for it. A trainer inside of PyTorch may be in a collective of the
    backward, which only native stacks would show.
    """
    thread = member.thread
    waits_for_others = thread.wait in BETWEEN_PROCESSES or in_collective(thread, known)
    in_torch = member.trains and is_torchs(thread.frames)
    beside = not (member.is_main or member.trains)
    if member.process.pid in joined:
        beside = waits_for_thread(member) or not has_users_code(thread.frames)
    return beside, waits_for_others, member.trains, in_torch


def _name(member: Member) -> str:
    return "the training thread" if member.trains else f"process {member.process.pid}"


def _held(member: Member) -> str:
    pid = member.process.pid
    if member.activity is Activity.STOPPED:
        return f"process {pid} was stopped by a signal"
    if any(thread.wait is Wait.TRACED for thread in member.process.threads):
        return f"process {pid} is held by a debugger"
    return f"process {pid} is waiting for input in a debugger"


def _runs(member: Member) -> str:
    native = member.thread.native
    where = ", at the same place in native code in every sample," if native else ","
    return f"{_name(member)} is running{where} which may be work"


def _outside(member: Member, now: Snapshot) -> str:
    if not now.stacks:
        return f"no stacks could be read ({now.why_no_stacks or 'reason unknown'})"
    leads = member.trains or member.is_main
    if leads and member.process.python and member.thread.frames is None:
        return f"the stack of process {member.process.pid} could not be read"
    return _waits(member)


def _waits(member: Member) -> str:
    building = any(is_of(frame, BUILD_LOCK) for frame in member.thread.frames or ())
    what = FOR_BUILD_LOCK if building else member.thread.wait.value
    return f"{_name(member)} is waiting for {what}"


# Of all members, the one that is furthest from being stuck stands for the tree: one that runs or
# waits for the outside world may yet end the waits of the others, whatever those are.
_CLAUSES: dict[Activity, Callable[[Member, Snapshot], str]] = {
    Activity.RUNS: lambda member, _: _runs(member),
    Activity.WAITS_OUTSIDE: _outside,
    Activity.WAITS_FOR_GPU: lambda member, _: (
        f"{_name(member)} is waiting for the GPU, at the same place in every sample"
    ),
    Activity.WAITS_INSIDE: lambda member, _: _waits(member),
}


# What moved between two snapshots, among the threads and processes that the training depends on.
#
# CPU time alone is no proof of work for a thread that runs: a hung ROCm process spins. For one that
# is found waiting each time it is: it was free in between.


class Moved(NamedTuple):
    """What moved, for a person, and where."""

    what: str
    pid: int
    member: Member | None = None
    works: bool = True  # more than the stack of a thread beside the training, such as a bar's


def moved(
    before: Snapshot, now: Snapshot, members: tuple[Member, ...], known: WaitKnowledge
) -> tuple[Moved, ...]:
    """Return the signs of life since the snapshot before."""
    seconds = now.at - before.at
    return tuple(_signs(before, now, members, known)) if seconds > 0 else ()


def _signs(
    before: Snapshot, now: Snapshot, members: tuple[Member, ...], known: WaitKnowledge
) -> Iterator[Moved]:
    seconds = now.at - before.at
    earlier = {process.pid: process for process in before.processes}
    threads = {
        (process.pid, thread.tid): thread
        for process in before.processes
        for thread in process.threads
    }
    for member in members:
        old = threads.get(member.key)
        what = _thread_moved(old, member, seconds, known) if old else "has a new thread"
        if what:
            works = member.trains or what == "computes"
            yield Moved(what, member.process.pid, member, works)
    trainers = {member.process.pid for member in members if member.trains}
    processes = {member.process.pid: member.process for member in members}
    for pid, process in processes.items():
        what = _process_moved(earlier.get(pid), process, seconds, bar=pid in trainers)
        if what:
            yield Moved(what, pid)
    yield from _family(earlier, now, set(processes), seconds)


def _thread_moved(old: ThreadSeen, member: Member, seconds: float, known: WaitKnowledge) -> str:
    new = member.thread
    share = (new.cpu - old.cpu) / seconds
    inside = member.activity is Activity.WAITS_INSIDE
    for_others = not member.trains and member.activity is not Activity.WAITS_FOR_GPU
    if old.frames is not None and new.frames is not None and old.frames != new.frames:
        return "moves"
    if share >= IDLE_SHARE and (inside or for_others):
        return "computes"
    woken = old.wait is new.wait is Wait.WORLD and new.switches - old.switches > BY_SNAPSHOT
    if woken:
        return "sends or receives"
    rests = share < IDLE_SHARE and old.wait is new.wait and inside
    if not rests and old.native is not None and new.native is not None:
        return "moves" if _outer(old.native, known) != _outer(new.native, known) else ""
    return ""


def _outer(native: tuple[str, ...], known: WaitKnowledge) -> tuple[str, ...]:
    """Leave out what a device wait itself calls: it asks for the time, and asks again."""
    return native[known.device(native) or 0 :]


def _process_moved(old: ProcessSeen | None, new: ProcessSeen, seconds: float, *, bar: bool) -> str:
    if old is None:
        return "is new"
    done = new.read_bytes - old.read_bytes + new.written_bytes - old.written_bytes
    if done / seconds > (BAR_RATE if bar else 0):
        return "reads or writes"
    if (new.rss_bytes - old.rss_bytes) / seconds >= GROWTH_RATE:
        return "takes more memory"
    return ""


def _family(
    earlier: dict[int, ProcessSeen], now: Snapshot, pids: set[int], seconds: float
) -> Iterator[Moved]:
    """Yield what the children of these processes show, though nobody is seen to wait for them."""
    for pid in pids & {process.parent for process in earlier.values()}:
        alive = {process.pid for process in now.processes}
        for old in earlier.values():
            lived = any(thread.state != "Z" for thread in old.threads)
            if old.parent == pid and old.pid not in alive and lived:
                yield Moved("saw a child end", pid)
    for process in now.processes:
        old_one = earlier.get(process.pid)
        if process.parent not in pids:
            continue
        if old_one is None:
            yield Moved("has a new child", process.parent)
        elif (_cpu(process) - _cpu(old_one)) / seconds >= BUSY_SHARE:
            yield Moved("computes", process.pid)


def _cpu(process: ProcessSeen) -> float:
    return sum(thread.cpu for thread in process.threads)
