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

pytestmark = [
    pytest.mark.slow,
    pytest.mark.turns(2),
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

    def starts(steps: int, meet_at: int = 1) -> Job:
        started.append(Job(ranks_python, two_hosts, tmp_path / "job", steps, meet_at))
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


@pytest.mark.turns(1)
def test_a_killed_rank_costs_all_hosts_one_restart(start: Starts) -> None:
    job = start(120)
    assert job.until(lambda: job.generations() == 1), job.all_said()

    os.kill(job.pid(3), signal.SIGKILL)

    assert job.codes() == {1: 0, 2: 0}, job.all_said()
    assert job.generations() == 2
    assert "for all hosts" in "".join(map(job.said, job.agents))
    assert [len(each) for each in settings_of(job)] == [1, 1]


@pytest.mark.turns(1)
@pytest.mark.parametrize(("rank", "where"), [(3, "backward"), (0, "allreduce")])
def test_a_deadlocked_rank_is_found_on_whichever_host(start: Starts, rank: int, where: str) -> None:
    job = start(150)
    assert job.until(lambda: bool(job.told("saved"))), job.all_said()  # so many steps are a pace

    (job.shared / f"fault-{rank}").write_text(where, encoding="utf-8")

    assert job.codes() == {1: 0, 2: 0}, job.all_said()
    assert job.generations() == 2
    assert all("hung: " in job.said(host) for host in job.agents), job.all_said()
    assert [len(each) for each in settings_of(job)] == [1, 1]
