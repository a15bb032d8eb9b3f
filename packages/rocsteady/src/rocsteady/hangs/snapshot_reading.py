"""What one snapshot says, beside the snapshot before it: one ending for the whole tree."""

from __future__ import annotations

from collections.abc import Callable

from rocsteady.hangs.motion import moved
from rocsteady.hangs.stack_facts import KnownWaits
from rocsteady.hangs.stack_place import has_users_code, is_torchs, place_of
from rocsteady.hangs.values import Heartbeat, Snapshot, Wait
from rocsteady.hangs.wait_chain import Ending, Reached, reach
from rocsteady.model import Value


class Reading(Value, frozen=True, kw_only=True):
    """What is known after a snapshot."""

    at: float
    ending: Ending
    moves: (
        bool  # since the snapshot before; also if it runs and cannot be told to stay in one place
    )
    why: str  # a clause
    place: str = ""
    culprit: int | None = None
    works: bool = True  # what moves is the work itself, or that cannot be told
    visible: bool = True  # there is a Python program here, so that a hang could be told at all


def read(
    before: Snapshot | None, now: Snapshot, heartbeats: tuple[Heartbeat, ...], known: KnownWaits
) -> Reading:
    """Say what the whole tree is in, by the first of these that any reached thread is in."""
    reached = reach(now, heartbeats, known)
    if not reached:
        return _nothing_to_see(now, heartbeats)
    for ending in (Ending.STOPPED, Ending.HELD):
        held = [one for one in reached if one.ending is ending]
        if held:
            return _said(now, reached, held[0], _HELD_BY[held[0].thread.wait](held[0]))
    signs = moved(before, now, reached, known) if before else ()
    if not signs and any(one.ending is Ending.RUNS and not one.thread.native for one in reached):
        one = next(one for one in reached if one.ending is Ending.RUNS)
        return _said(now, reached, one, _runs(one, now), moves=True)
    if signs:
        sign, works = signs[0], any(each.works for each in signs)
        one = next((one for one in reached if one.thread is sign.thread), reached[0])
        why = f"process {sign.pid} {sign.what}"
        return _said(now, reached, one, why, moves=True, works=works or not now.stacks)
    for ending, clause in _CLAUSES.items():
        found = [one for one in reached if one.ending is ending]
        if found:
            one = _to_blame(found, known)
            return _said(now, reached, one, clause(one, now), works=not now.stacks)
    raise AssertionError("every ending is in one of the tables")  # pragma: no cover


def _said(  # noqa: PLR0913 - all that a reading is made of
    now: Snapshot,
    reached: tuple[Reached, ...],
    one: Reached,
    why: str,
    *,
    moves: bool = False,
    works: bool = True,
) -> Reading:
    alone = one.trains and all(other.process is one.process for other in reached if other.trains)
    return Reading(
        at=now.at,
        ending=one.ending,
        moves=moves,
        works=works,
        why=why,
        place=_place(one, reached),
        culprit=None if alone else one.process.pid,
    )


def _place(one: Reached, reached: tuple[Reached, ...]) -> str:
    """Name the line of a thread, or of one that waits for it if it has no code of the user's."""
    pid = one.process.pid
    waiting = (other for other in reached if pid in _awaited(other))
    users = (each for each in (one, *waiting) if has_users_code(each.thread.frames))
    return place_of(next(users, one).thread.frames)


def _awaited(one: Reached) -> tuple[int, ...]:
    return one.thread.waits_for if one.thread.wait in (Wait.TREE, Wait.CHILD) else ()


def _nothing_to_see(now: Snapshot, heartbeats: tuple[Heartbeat, ...]) -> Reading:
    here = bool(heartbeats)
    why = (
        "the training thread is not among the processes that rocsteady can see"
        if here
        else "the work happens where rocsteady cannot see it"
    )
    return Reading(at=now.at, ending=Ending.OUTSIDE, moves=False, why=why, visible=here)


def _to_blame(found: list[Reached], known: KnownWaits) -> Reached:
    """Choose whom to name: the end of a chain of waits before those who wait for it."""
    return min(enumerate(found), key=lambda item: (*_innocence(item[1], known), item[0]))[1]


def _innocence(one: Reached, known: KnownWaits) -> tuple[bool, bool, bool, bool]:
    thread = one.thread
    waits_for_others = thread.wait in (Wait.TREE, Wait.CHILD) or known.collective(
        thread.frames or (), thread.native or ()
    )
    in_torch = one.trains and is_torchs(thread.frames)  # as in a backward that ranks do together
    return not (one.main or one.trains), waits_for_others, one.trains, in_torch


def _name(one: Reached) -> str:
    return "the training thread" if one.trains else f"process {one.process.pid}"


def _runs(one: Reached, _: Snapshot) -> str:
    where = ", at the same place in native code in every sample," if one.thread.native else ","
    return f"{_name(one)} is running{where} which may be work"


def _outside(one: Reached, now: Snapshot) -> str:
    if not now.stacks:
        return f"no stacks could be read ({now.why_no_stacks or 'reason unknown'})"
    if (one.trains or one.main) and one.process.python and one.thread.frames is None:
        return f"the stack of process {one.process.pid} could not be read"
    return f"{_name(one)} is waiting for {one.thread.wait.value}"


def _device(one: Reached, _: Snapshot) -> str:
    return f"{_name(one)} is waiting for the GPU, at the same place in every sample"


def _locked(one: Reached, _: Snapshot) -> str:
    return f"{_name(one)} is waiting for {one.thread.wait.value}"


_HELD_BY: dict[Wait, Callable[[Reached], str]] = {
    wait: lambda one: f"process {one.process.pid} is waiting for input in a debugger"
    for wait in Wait
} | {
    Wait.STOPPED: lambda one: f"process {one.process.pid} was stopped by a signal",
    Wait.TRACED: lambda one: f"process {one.process.pid} is held by a debugger",
}
_CLAUSES: dict[Ending, Callable[[Reached, Snapshot], str]] = {
    Ending.RUNS: _runs,
    Ending.OUTSIDE: _outside,
    Ending.DEVICE: _device,
    Ending.LOCKED: _locked,
}
