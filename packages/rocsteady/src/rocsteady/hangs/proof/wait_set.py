"""The threads that training depends on, and the proof that none of them can ever go on.

The set is closed if each member waits, without a timeout, for something that only members can end.
Such a set never moves again. Whatever is not understood counts as a way out, so that a mistake
here costs time and never a healthy run. ``wait_graph.py`` makes one set of each snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from itertools import pairwise

from msgspec.structs import replace

from rocsteady.hangs.proof.stack_frames import in_python_lock
from rocsteady.hangs.values import ProcessSeen, ThreadSeen, Wait, WayOut
from rocsteady.model import Value

# Of a core: a thread that uses less did not do any work between two snapshots, whatever woke it now
# and then. A thread that asks for the GIL every 5 ms, or for a queue every 5 s, stays far below it.
IDLE_SHARE = 0.05
# Seconds that a new deadline is later, at least, than the one before. torch's loops ask again every
# 5 s; half of that tells a deadline that was set again from one that was read a little late.
REARMED = 2.5
MAX_WRITTEN = 24  # members that the text names one by one
MAX_ENDERS = 100  # threads that could end a wait, of those that pages name
# Native functions in which Python waits for its own locks, and how far in they are.
PYTHONS_LOCKS = ("PyThread_acquire_lock_timed", "PyThread_acquire_lock", "acquire_timed")
LOCK_DEPTH = 6
Key = tuple[int, int]  # process and thread


class Activity(Enum):
    """What a thread does, as far as a snapshot shows it."""

    STOPPED = "stopped"  # by a signal
    DEBUGGED = "debugged"  # held by a debugger, or by a person at its prompt
    RUNS = "runs"
    WAITS_OUTSIDE = "outside"  # for the world, time, the disk, or what could not be seen
    WAITS_FOR_GPU = "gpu"  # in a known device wait
    WAITS_INSIDE = "inside"  # for a lock, a pipe or a process of the tree


class WakeSource(Value, frozen=True, kw_only=True):
    """What may yet wake a thread of the set, and which thread."""

    pid: int
    tid: int
    way: WayOut
    what: str  # a clause: "gives up after 20 s"


class Member(Value, frozen=True, kw_only=True):
    """One thread that training depends on."""

    process: ProcessSeen
    thread: ThreadSeen
    trains: bool
    activity: Activity
    place: str = ""  # where it is: "data.py:88 load"
    enders: tuple[Key, ...] = ()  # the threads that could end its wait; it may be one itself
    for_ranks: bool = False  # it is in a collective, which ranks of other hosts may end
    bystander: bool = False  # it could end a wait, but nobody expects it to
    until: float | None = None  # when a loop that repeats for ever asks again, if that is all

    @property
    def key(self) -> Key:
        """What it is called in every snapshot."""
        return self.process.pid, self.thread.tid

    @property
    def others(self) -> tuple[Key, ...]:
        """The threads beside itself that could end its wait."""
        return tuple(each for each in self.enders if each != self.key)

    @property
    def is_main(self) -> bool:
        """Whether this is the thread that its process began with."""
        return self.thread.tid == self.process.pid

    @property
    def on(self) -> str:
        """What it waits for: "lock 0x7f2c", "pipe 4711"."""
        return self.thread.blocked.on if self.thread.blocked else self.thread.wait.value


class WaitSet(Value, frozen=True, kw_only=True, dict=True):
    """Who waits for whom at one moment, and every way out that was found."""

    at: float
    members: tuple[Member, ...] = ()
    exits: tuple[WakeSource, ...] = ()
    handlers: tuple[str, ...] = ()  # of signals that somebody may send; clauses

    @cached_property
    def closed(self) -> bool:
        """Whether nothing could ever end the waits."""
        keys = {member.key for member in self.members}
        return (
            any(member.trains for member in self.members)
            and not self.exits
            and all(
                keys.issuperset(enders)
                for enders in {id(each.enders): each.enders for each in self.members}.values()
            )
        )


def never_goes_on(found: WaitSet) -> set[int]:
    """Return the training processes that nothing can move, whatever ranks of other hosts do.

    Each waits for another process or in a lock of Python's, and nobody who could end that waits in
    a collective. Below a lock of native code there might be one that no stack shows.
    """
    members = {member.key: member for member in found.members}
    gone = set()
    for member in found.members if found.closed else ():
        of_python = any(name in PYTHONS_LOCKS for name in (member.thread.native or ())[:LOCK_DEPTH])
        surely = of_python or in_python_lock(member.thread)
        if member.trains and (surely or member.thread.wait in (Wait.TREE, Wait.CHILD)):
            above = _all_enders(member.key, members)
            if not any(members[key].for_ranks for key in above):
                gone.add(member.process.pid)
    return gone


def _all_enders(key: Key, members: Mapping[Key, Member]) -> set[Key]:
    found: set[Key] = set()
    ahead = [key]
    while ahead:
        if (each := ahead.pop()) not in found:
            found.add(each)
            ahead += members[each].enders
    return found


class Waiter(Value, frozen=True, kw_only=True):
    """One thread that the process depends on, for people and for pages."""

    pid: int
    tid: int
    place: str
    waits_for: str
    enders: tuple[int, ...] = ()  # processes whose threads could end the wait
    ended_by: tuple[Key, ...] = ()  # those threads
    frames: tuple[str, ...] = ()  # innermost first


def waiters_of(found: WaitSet) -> tuple[Waiter, ...]:
    """Return who waits for whom, the thread that trains first."""
    members = sorted(found.members, key=lambda member: not member.trains)
    return tuple(
        Waiter(
            pid=member.process.pid,
            tid=member.thread.tid,
            place=member.place,
            waits_for=member.on,
            enders=tuple(sorted({each for each, _ in member.others})),
            ended_by=member.others[:MAX_ENDERS],
            frames=member.thread.frames or (),
        )
        for member in members
        if not member.bystander
    )


def prove(sets: Sequence[WaitSet], *, alike: bool = False) -> WaitSet:
    """Return the newest set, with the ways out that only a comparison of snapshots shows.

    ``alike``: nothing changed between them.
    """
    newest = sets[-1]
    found: dict[tuple[Key, WayOut], WakeSource] = {}
    between = (each for pair in pairwise(sets) for each in changes(*pair)) if not alike else ()
    for each in (*between, *_never_asked_again(sets)):
        found.setdefault(((each.pid, each.tid), each.way), each)
    return replace(newest, exits=(*newest.exits, *found.values()))


def changes(earlier: WaitSet, later: WaitSet) -> Iterable[WakeSource]:
    """Yield why two sets are not the same one, seen twice."""
    before = {member.key: member for member in earlier.members}
    alike: dict[tuple[int, int], bool] = {}  # the same tuple is that of thousands
    seconds = max(later.at - earlier.at, 1e-9)
    for member in later.members:
        old = before.pop(member.key, None)
        if old is None:
            yield _exit(member, WayOut.MOVED, "was not there before")
        elif (old.on, old.place) != (member.on, member.place) or not _are_alike(old, member, alike):
            yield _exit(member, WayOut.MOVED, "waited for something else before")
        elif (member.thread.cpu - old.thread.cpu) / seconds >= IDLE_SHARE:
            yield _exit(member, WayOut.MOVED, "used CPU time")
    for gone in before.values():
        yield _exit(gone, WayOut.MOVED, "was waiting before and no longer is")


def _are_alike(old: Member, new: Member, known: dict[tuple[int, int], bool]) -> bool:
    pair = id(old.enders), id(new.enders)
    if pair not in known:
        known[pair] = old.enders == new.enders
    return known[pair]


def _never_asked_again(sets: Sequence[WaitSet]) -> Iterable[WakeSource]:
    """Yield loops whose deadline stayed the same: it may be one that the user gave."""
    first: dict[Key, float] = {}
    again: set[Key] = set()
    for each in sets:
        for member in each.members:
            if member.until is not None:
                begun = first.setdefault(member.key, member.until)
                if member.until - begun >= REARMED:
                    again.add(member.key)
    for member in sets[-1].members:
        if member.until is not None and member.key not in again:
            yield _exit(member, WayOut.TIMEOUT, "may give up soon")


def _exit(member: Member, way: WayOut, what: str) -> WakeSource:
    pid, tid = member.key
    return WakeSource(pid=pid, tid=tid, way=way, what=what)


def sentences(found: WaitSet) -> list[str]:
    """Write the set for a person: who waits for what, and who could end it, the trainers first."""
    ordered = sorted(found.members, key=lambda it: (not it.trains, it.thread.frames is None))
    named, rest = ordered[:MAX_WRITTEN], ordered[MAX_WRITTEN:]
    lines = [_sentence(member, found) for member in named]
    if rest:
        lines.append(f"{len(rest)} more threads wait in the same way.")
    if found.exits:
        lines.append("Something else may still end the wait:")
        lines += [f"  thread {each.tid} of process {each.pid} {each.what}." for each in found.exits]
    elif found.closed:
        lines.append("Nothing else can end this wait: no other thread, no timeout and no timer.")
    lines += [f"A signal could still be sent: {each}." for each in found.handlers]
    return lines


def _sentence(member: Member, found: WaitSet) -> str:
    pid, tid = member.key
    who = "the training thread" if member.trains else f"thread {tid}"
    place = f" at {member.place}" if member.place else ""
    head = f"{who} of process {pid} waits for {member.on}{place}"
    python = {other.key for other in found.members if other.thread.frames is not None}
    enders = sorted(member.others, key=lambda key: (key not in python, key))
    if not enders:
        return f"{head}; no other thread can end this wait."
    names = ", ".join(f"{tid} of process {pid}" for pid, tid in enders[:4])
    more = f" and {len(enders) - 4} more" if len(enders) > 4 else ""  # noqa: PLR2004
    only = "only thread" if len(enders) == 1 else "only threads"
    return f"{head}; {only} {names}{more} could end this wait."
