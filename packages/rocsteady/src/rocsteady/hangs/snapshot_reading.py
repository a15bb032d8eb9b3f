"""What one snapshot says, beside the one before it: one activity that stands for the whole tree."""

from __future__ import annotations

from collections.abc import Callable

from rocsteady.hangs.motion import moved
from rocsteady.hangs.stack_frames import KnownWaits, has_users_code, in_collective, is_torchs
from rocsteady.hangs.values import Heartbeat, Snapshot, Wait
from rocsteady.hangs.wait_set import Activity, Member, WaitSet
from rocsteady.model import Value

HELD = (Activity.STOPPED, Activity.DEBUGGED)
BETWEEN_PROCESSES = (Wait.TREE, Wait.CHILD)


class Reading(Value, frozen=True, kw_only=True):
    """What is known after a snapshot."""

    at: float
    activity: Activity
    moves: (
        bool  # since the snapshot before; also if it runs and cannot be told to stay in one place
    )
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
    known: KnownWaits,
) -> Reading:
    """Return what the whole tree does; ``waits`` is the wait set of this snapshot."""
    members = tuple(member for member in waits.members if not member.bystander)
    if not members:
        return _nothing_to_see(now, heartbeats)
    for activity in HELD:
        held = [member for member in members if member.activity is activity]
        if held:
            return _reading(now, members, held[0], _held(held[0]))
    signs = moved(before, now, members, known) if before else ()
    if signs:
        member, works = signs[0].member or members[0], any(each.works for each in signs)
        why = f"process {signs[0].pid} {signs[0].what}"
        return _reading(now, members, member, why, moves=True, works=works or not now.stacks)
    running = [member for member in members if member.activity is Activity.RUNS]
    if any(not member.thread.native for member in running):
        # Without native frames, a thread that runs cannot be seen to stay in one place.
        return _reading(now, members, running[0], _runs(running[0]), moves=True)
    for activity, clause in _CLAUSES.items():
        found = [member for member in members if member.activity is activity]
        if found:
            member = _to_blame(found, known)
            return _reading(now, members, member, clause(member, now), works=not now.stacks)
    raise AssertionError("every activity is in one of the tables")  # pragma: no cover


def _reading(  # noqa: PLR0913 - all that a reading is made of
    now: Snapshot,
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
        at=now.at,
        activity=member.activity,
        moves=moves,
        works=works,
        why=why,
        place=_place(member, members),
        culprit=None if alone else member.process.pid,
    )


def _place(member: Member, members: tuple[Member, ...]) -> str:
    """Name the line of a thread, or of one that waits for it if it has no code of the user's."""
    waiting = (other for other in members if member.process.pid in _awaited(other))
    users = (each for each in (member, *waiting) if has_users_code(each.thread.frames))
    return next(users, member).place


def _awaited(member: Member) -> set[int]:
    """Return the processes that a thread waits for."""
    blocked = member.thread.blocked
    if blocked is None or member.thread.wait not in BETWEEN_PROCESSES:
        return set()
    return {*blocked.pids} - ({member.process.pid} if blocked.holds_both else set())


def _nothing_to_see(now: Snapshot, heartbeats: tuple[Heartbeat, ...]) -> Reading:
    here = bool(heartbeats)
    why = (
        "the training thread is not among the processes that rocsteady can see"
        if here
        else "the work happens where rocsteady cannot see it"
    )
    return Reading(at=now.at, activity=Activity.WAITS_OUTSIDE, moves=False, why=why, visible=here)


def _to_blame(found: list[Member], known: KnownWaits) -> Member:
    """Choose whom to name: the end of a chain of waits before those who wait for it."""
    return min(enumerate(found), key=lambda item: (*_innocence(item[1], known), item[0]))[1]


def _innocence(member: Member, known: KnownWaits) -> tuple[bool, bool, bool, bool]:
    """Order members by how little they explain; the first that differs decides.

    Threads beside the main one, such as OpenMP's, wait because the main one gives them no work.
    Those that wait for other processes or ranks are held up by them. A worker explains a trainer
    that waits for it. A trainer inside of PyTorch may be in a collective of the backward, which
    only native stacks would show.
    """
    thread = member.thread
    waits_for_others = thread.wait in BETWEEN_PROCESSES or in_collective(thread, known)
    in_torch = member.trains and is_torchs(thread.frames)
    beside = not (member.is_main or member.trains)
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
    return f"{_name(member)} is waiting for {member.thread.wait.value}"


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
