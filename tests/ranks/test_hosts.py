"""Four ranks over two hosts: what befalls one of them, and that all go on alike."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from host_faults import RANKS, Job, Network, network, why_not
from rank_faults import SCRIPT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
]
Starts = Callable[..., Job]


@pytest.fixture
def two_hosts() -> Iterator[Network]:
    """Make two hosts."""
    with network(2) as made:
        yield made


@pytest.fixture
def start(tmp_path: Path, ranks_python: str, two_hosts: Network) -> Iterator[Starts]:
    """Return what starts a job over both hosts; nothing of it is left."""
    started: list[Job] = []

    def starts(steps: int, meet_at: int = 1, script: Path = SCRIPT) -> Job:
        started.append(Job(ranks_python, two_hosts, tmp_path / "job", (script, steps), meet_at))
        return started[-1]

    yield starts
    for job in started:
        job.close()


def settings_of(job: Job) -> list[set[str]]:
    """Return the different settings that ranks had, for each generation."""
    told = [str(each["settings"]) for each in job.told("first step")]
    size = RANKS * len(job.agents)
    return [set(told[first : first + size]) for first in range(0, len(told), size)]


def test_two_hosts_train_undisturbed(start: Starts) -> None:
    job = start(60)

    assert job.codes() == {1: 0, 2: 0}, job.all_said()
    assert job.generations() == 1
    assert all("done" in job.said(host) for host in job.agents)


def test_a_killed_rank_costs_all_hosts_one_restart(start: Starts) -> None:
    job = start(120)
    assert job.until(lambda: job.generations() == 1), job.all_said()

    os.kill(job.pid(3), signal.SIGKILL)

    assert job.codes() == {1: 0, 2: 0}, job.all_said()
    assert job.generations() == 2
    assert "for all hosts" in "".join(map(job.said, job.agents))
    assert [len(each) for each in settings_of(job)] == [1, 1]


@pytest.mark.parametrize(("rank", "where"), [(3, "backward"), (0, "allreduce")])
def test_a_deadlocked_rank_is_found_on_whichever_host(start: Starts, rank: int, where: str) -> None:
    job = start(150)
    assert job.until(lambda: bool(job.told("saved"))), job.all_said()  # so many steps are a pace

    (job.shared / f"fault-{rank}").write_text(where, encoding="utf-8")

    assert job.codes() == {1: 0, 2: 0}, job.all_said()
    assert job.generations() == 2
    assert "hung: " in job.said(1), job.all_said()  # which leads
    assert [len(each) for each in settings_of(job)] == [1, 1]


@pytest.mark.parametrize("rank", [0, 3])
def test_a_rank_that_validates_on_one_host_keeps_the_job_alive(start: Starts, rank: int) -> None:
    job = start(100)
    assert job.until(lambda: bool(job.told("saved"))), job.all_said()

    (job.shared / f"fault-{rank}").write_text("validate", encoding="utf-8")

    assert job.codes() == {1: 0, 2: 0}, job.all_said()
    assert [each["rank"] for each in job.told("validated")] == [rank]
    assert job.generations() == 1


def test_hosts_never_run_different_strategies(start: Starts) -> None:
    job = start(60, script=SCRIPT.with_name("rank_loader.py"))

    assert job.codes() == {1: 0, 2: 0}, job.all_said()
    settings = settings_of(job)
    assert [len(each) for each in settings] == [1] * len(settings)  # the same on all four ranks
    assert settings[0] == {"{'ROCSTEADY_STRATEGY': None}"}
    assert '"workers": 0' in next(iter(settings[-1]))  # as the host with the fault proposed
    assert len(job.told("done")) == 4


def test_a_lost_leader_is_replaced(start: Starts) -> None:
    job = start(150, meet_at=2)
    assert job.until(lambda: job.generations() == 1), job.all_said()
    assert job.ranks_of(1) == [0, 1]  # it leads, and the store is on the other host

    job.kill(1)
    job.start(1)  # as a scheduler would

    assert job.codes() == {1: 0, 2: 0}, job.all_said()
    assert job.generations() == 2
    assert [len(each) for each in settings_of(job)] == [1, 1]


def test_without_the_host_of_the_store_the_others_end_and_may_be_started_again(
    start: Starts,
) -> None:
    job = start(10_000)
    assert job.until(lambda: job.generations() == 1), job.all_said()
    ranks = [job.pid(rank) for rank in job.ranks_of(2)]

    job.kill(1)

    assert job.codes()[2] == 75, job.all_said()
    assert "the other hosts cannot be reached" in job.said(2)
    assert job.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks), 30.0)


def test_a_host_that_is_cut_off_ends_its_ranks_and_may_come_back(
    start: Starts, two_hosts: Network
) -> None:
    job = start(400)
    assert job.until(lambda: bool(job.told("saved"))), job.all_said()
    ranks = [job.pid(rank) for rank in job.ranks_of(2)]

    two_hosts.cut(2)

    assert job.until(lambda: job.agents[2].poll() is not None), job.all_said()
    assert job.agents[2].poll() == 75, job.all_said()
    assert job.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks), 30.0)
    assert job.until(lambda: "gave no sign of life" in job.said(1)), job.all_said()
    two_hosts.join(2)
    job.start(2)
    assert job.codes() == {1: 0, 2: 0}, job.all_said()
    assert job.generations() == 2
