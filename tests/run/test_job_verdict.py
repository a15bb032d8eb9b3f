"""When a job hangs on several hosts: no rank moves, and enough hosts have proven it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.proof.wait_set import Activity, Member, WaitSet, WakeSource
from rocsteady.hangs.values import Blocked, Heartbeat, ProcessSeen, ThreadSeen, Wait, WayOut
from rocsteady.model import RankRecord, RunState, WaitsFor
from rocsteady.run.hosts.job_verdict import (
    STILL_WITH_DEAD_RANK,
    STILL_WITHOUT,
    HostPart,
    Part,
    alone,
    host_part,
    job_blame,
    job_verdict,
)

ASKED = 3


def host(*ranks: int, world: int = 4, part: Part = Part.PROVEN, **more: object) -> HostPart:
    made = HostPart(part=part, world=world, ranks=ranks, confirmed=ASKED)
    return msgspec.structs.replace(made, **more)


def hangs(parts: list[HostPart], still: float = 0.0, hosts: int | None = None) -> bool:
    count = len(parts) if hosts is None else hosts
    return job_verdict(parts, hosts=count, asked=ASKED, still=still).hangs


def beat(rank: int, world: int = 4) -> Heartbeat:
    return Heartbeat(
        pid=100 + rank,
        rank=rank,
        world=world,
        thread=100 + rank,
        step=7,
        base=2,
        beats=30,
        phase="backward",
        since=0.0,
        last_step=1.0,
        ended=False,
        raised=False,
        total=None,
        seconds_in={},
        longest_in={},
        histogram={},
    )


@pytest.mark.parametrize(
    ("parts", "still", "verdict"),
    [
        # docs/decisions/0031 has the same rows
        ([host(0, 1), host(2, 3)], 0.0, True),
        ([host(0, 1)], 1e6, False),  # the other host moves, or says nothing
        ([host(0, 1), host(2, 3, part=Part.UNREACHABLE)], 1e6, False),
        ([host(0, 1), host(2)], 1e6, False),  # a rank without a page may be doing anything
        ([host(0, 1), host(1, 2, 3)], 1e6, False),  # of another generation
        ([host(0, 1, world=2), host(2, 3, world=6)], 1e6, False),
        # a rank is dead for good; the other host abstains, or did not repeat its proof
        ([host(0, 1, never=(1,)), host(2, 3, part=Part.ABSTAINS)], STILL_WITH_DEAD_RANK, True),
        ([host(0, 1, never=(1,)), host(2, 3, confirmed=2)], STILL_WITH_DEAD_RANK, True),
        ([host(0, 1, never=(1,)), host(part=Part.ABSTAINS)], STILL_WITH_DEAD_RANK, True),
        ([host(0, 1, never=(1,)), host(2, 3, part=Part.ABSTAINS)], 59.0, False),
        ([host(0, 1, never=(1,), confirmed=2), host(2, 3, part=Part.ABSTAINS)], 1e6, False),
        # all that could be read wait for others: a majority, and five minutes
        ([host(0, 1), host(2, 3, part=Part.ABSTAINS)], 1e6, False),
        ([host(0), host(1), host(2, 3, part=Part.ABSTAINS)], STILL_WITHOUT, True),
        ([host(0), host(1), host(2, 3, part=Part.ABSTAINS)], STILL_WITHOUT - 1, False),
        ([host(0, 1, part=Part.ABSTAINS), host(2, 3, part=Part.ABSTAINS)], 1e6, False),
    ],
)
def test_the_table_of_situations(parts: list[HostPart], still: float, verdict: object) -> None:
    assert hangs(parts, still, hosts=max(2, len(parts))) is verdict


def test_who_abstained_is_named() -> None:
    parts = [host(0, 1, never=(0,)), host(2, 3, host=1, part=Part.ABSTAINS, why="no ptrace")]

    found = job_verdict(parts, hosts=2, asked=ASKED, still=1e6)

    assert [(each.host, each.why) for each in found.abstained] == [(1, "no ptrace")]


@given(
    kinds=st.lists(
        st.sampled_from([Part.PROVEN, Part.ABSTAINS, Part.UNREACHABLE, None]), min_size=1
    ),
    still=st.floats(0, 1e6),
    dead=st.booleans(),
)
def test_a_host_that_moves_or_may_be_reached_again_keeps_the_job_alive(
    kinds: list[Part | None], still: float, dead: object
) -> None:
    world = len(kinds)
    parts = [
        host(rank, world=world, part=kind, never=(rank,) if dead else ())
        for rank, kind in enumerate(kinds)
        if kind is not None
    ]

    found = hangs(parts, still, hosts=world)

    assert not (found and (None in kinds or Part.UNREACHABLE in kinds))
    assert found or set(kinds) != {Part.PROVEN}


def test_a_host_is_judged_as_if_its_ranks_were_all() -> None:
    beats = (beat(2), beat(3), msgspec.structs.replace(beat(0), rank=None, world=None))

    assert [each.world for each in alone(beats)] == [2, 2, None]
    assert alone((beat(0, world=1),)) == (beat(0, world=1),)


def member(
    *waits: Wait, way: WayOut | None = None, ranks: bool = False, blocked: Blocked | None = None
) -> WaitSet:
    """Return the wait set of rank 3, whose threads wait for these things."""
    names = ("python", "worker", "gloo_tcp_loop")
    threads = tuple(
        ThreadSeen(tid=103 + n, name=names[n], state="S", cpu=0.0, wait=wait, blocked=blocked)
        for n, wait in enumerate(waits)
    )
    process = ProcessSeen(
        pid=103, parent=1, name="python", python=True, read_bytes=0, written_bytes=0, rss_bytes=0,
        threads=threads,
    )  # fmt: skip
    trains = Member(
        process=process,
        thread=threads[0],
        trains=True,
        activity=Activity.WAITS_INSIDE,
        for_ranks=ranks,
    )
    exits = () if way is None else (WakeSource(pid=103, tid=103, way=way, what=""),)
    return WaitSet(at=1.0, members=(trains,), exits=exits)


def told(condition: RunState, waits: WaitSet, *, moves: bool = False) -> HostPart | None:
    verdict = Verdict(condition=condition, why="", quiet=40.0, waits=waits, moves=moves)
    return host_part((beat(3), beat(2)), verdict)


def test_a_part_has_the_ranks_of_this_host_and_what_is_known_of_them() -> None:
    records = (RankRecord(rank=3, waits_for=WaitsFor.LOCK),)
    verdict = Verdict(condition=RunState.HUNG, why="", quiet=9.0, ranks=records)

    assert host_part((beat(3), beat(2)), verdict) == HostPart(
        part=Part.PROVEN, world=4, ranks=(2, 3), records=records
    )


@pytest.mark.parametrize(
    ("condition", "waits", "part"),
    [
        (RunState.SLOW, member(Wait.LOCK, way=WayOut.NETWORK), Part.UNREACHABLE),
        (
            RunState.SLOW,
            member(Wait.LOCK, Wait.LOCK, Wait.UNKNOWN, way=WayOut.UNREAD),
            Part.ABSTAINS,
        ),
        (RunState.SLOW, member(Wait.LOCK, Wait.WORLD, way=WayOut.UNREAD), None),  # it uploads
        (RunState.SLOW, member(Wait.LOCK, Wait.UNKNOWN, way=WayOut.UNREAD), None),
        (RunState.SLOW, member(Wait.SLEEP, way=WayOut.UNREAD), None),
        (
            RunState.SLOW,
            member(Wait.SLEEP, way=WayOut.UNREAD, blocked=Blocked(on="time", left=0.0)),
            None,
        ),
        (  # a collective, where its timeout may be read
            RunState.SLOW,
            member(
                Wait.LOCK,
                Wait.SLEEP,
                way=WayOut.UNREAD,
                blocked=Blocked(on="lock 0x1", left=1800.0, pids=(103,)),
            ),
            Part.ABSTAINS,
        ),
        (RunState.SLOW, member(Wait.LOCK, way=WayOut.TIMEOUT), None),
        (RunState.HEALTHY, member(Wait.LOCK, way=WayOut.UNREAD), None),
        (RunState.STOPPED, member(Wait.LOCK, way=WayOut.NETWORK), None),
    ],
)
def test_what_a_host_can_say_without_proof(
    condition: RunState, waits: WaitSet, part: Part | None
) -> None:
    found = told(condition, waits)

    assert (found.part if found else None) is part
    assert told(condition, waits, moves=True) is None


def test_a_rank_is_dead_for_good_only_if_no_other_rank_can_end_its_wait() -> None:
    found = told(RunState.HUNG, member(Wait.CHILD))
    assert found is not None
    assert found.never == (3,)
    for waits in (member(Wait.CHILD, ranks=True), member(Wait.LOCK)):  # which lock is not known
        conditional = told(RunState.HUNG, waits)
        assert conditional is not None
        assert conditional.never == ()


def test_the_rank_of_another_host_is_blamed() -> None:
    def shows(number: int, *records: RankRecord) -> HostPart:
        return host(host=number, records=records)

    waiting = [RankRecord(rank=rank, waits_for=WaitsFor.RANKS) for rank in range(3)]
    stuck = RankRecord(rank=3, waits_for=WaitsFor.LOCK, place="train.py:8 load")

    found = job_blame([shows(0, *waiting[:2]), shows(1, waiting[2], stuck)])

    assert found.why == (
        "rank 3 (host 1) is waiting for a lock at train.py:8 load, and 3 ranks wait for it"
    )
