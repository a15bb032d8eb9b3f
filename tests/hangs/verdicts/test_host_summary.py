"""When a job hangs on several hosts: every rank waits, none is missing, and none is busy."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocsteady.hangs.values import Heartbeat
from rocsteady.hangs.verdict import (
    HostSummary,
    Verdict,
    alone,
    job_blame,
    job_hangs,
    summarise,
)
from rocsteady.model import RankRecord, RunState, WaitsFor


def host(*ranks: int, world: int = 4, stuck: bool = True) -> HostSummary:
    return HostSummary(world=world, stuck=stuck, ranks=ranks)


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


def test_a_job_hangs_if_all_ranks_of_all_hosts_are_stuck() -> None:
    assert job_hangs([host(0, 1), host(2, 3)])


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [host(0, 1)],  # nothing is known of the other host
        [host(0, 1), host(2, 3, stuck=False)],  # it validates, downloads, compiles or saves
        [host(0, 1), host(2)],  # a rank without a page may be doing anything
        [host(0, 1), host(1, 2, 3)],  # of another generation
        [host(0, 1, world=2), host(2, 3, world=6)],
    ],
)
def test_anything_less_is_no_hang(hosts: list[HostSummary]) -> None:
    assert not job_hangs(hosts)


@given(
    busy=st.sets(st.integers(0, 7), min_size=1),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4),
)
def test_one_busy_host_is_enough_to_leave_the_job_alone(busy: set[int], sizes: list[int]) -> None:
    hosts, first, world = [], 0, sum(sizes)
    for place, size in enumerate(sizes):
        ranks = range(first, first + size)
        hosts.append(host(*ranks, world=world, stuck=place not in busy))
        first += size

    assert job_hangs(hosts) is (not busy & set(range(len(sizes))))


def test_a_host_is_judged_as_if_its_ranks_were_all() -> None:
    beats = (beat(2), beat(3), msgspec.structs.replace(beat(0), rank=None, world=None))

    assert [each.world for each in alone(beats)] == [2, 2, None]
    assert alone((beat(0, world=1),)) == (beat(0, world=1),)


def test_a_summary_has_the_ranks_of_this_host_and_what_is_known_of_them() -> None:
    records = (RankRecord(rank=3, waits_for=WaitsFor.LOCK),)
    verdict = Verdict(condition=RunState.HUNG, why="", quiet=9.0, ranks=records)

    told = summarise((beat(3), beat(2)), verdict)

    assert told == HostSummary(world=4, stuck=True, ranks=(2, 3), records=records)


def test_the_rank_of_another_host_is_blamed() -> None:
    def told(number: int, *records: RankRecord) -> HostSummary:
        return HostSummary(host=number, world=4, stuck=True, ranks=(), records=records)

    waiting = [RankRecord(rank=rank, waits_for=WaitsFor.RANKS) for rank in range(3)]
    stuck = RankRecord(rank=3, waits_for=WaitsFor.LOCK, place="train.py:8 load")

    found = job_blame([told(0, *waiting[:2]), told(1, waiting[2], stuck)])

    assert found.why == (
        "rank 3 (host 1) is waiting for a lock at train.py:8 load, and 3 ranks wait for it"
    )
