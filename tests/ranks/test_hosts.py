"""Jobs over two and four hosts, two ranks on each: what befalls one, and that all go on alike."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from host_faults import RANKS, Job, skewed, why_not, without_ptrace
from rank_faults import SCRIPT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
]
Starts = Callable[..., Job]
either = pytest.mark.parametrize("hosts", [2, 4])  # eight ranks take minutes


def ended_well(job: Job) -> bool:
    """Wait for the end; tell whether every host ended with 0."""
    return set(job.codes().values()) == {0}


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def settings_of(job: Job) -> list[set[str]]:
    """Return the different settings that ranks had, for each generation."""
    told = [str(each["settings"]) for each in job.told("first step")]
    size = RANKS * len(job.agents)
    return [set(told[first : first + size]) for first in range(0, len(told), size)]


@either
def test_hosts_train_undisturbed(start: Starts, hosts: int) -> None:
    job = start(hosts, 60)

    assert ended_well(job), job.all_said()
    assert job.generations() == 1
    assert all("done" in job.said(host) for host in job.agents)


@either
def test_a_killed_rank_costs_all_hosts_one_restart(start: Starts, hosts: int) -> None:
    job = start(hosts, 120)
    assert job.until(lambda: job.generations() == 1), job.all_said()

    os.kill(job.pid(RANKS * hosts - 1), signal.SIGKILL)

    assert ended_well(job), job.all_said()
    assert job.generations() == 2
    decisions = [each for host in job.agents for each in job.recorded(host, "decisions")]
    assert any("host" in each["decision"] for each in decisions)  # one has followed the other
    assert [len(each) for each in settings_of(job)] == [1, 1]


@pytest.mark.parametrize(
    ("hosts", "rank", "where"),
    [(2, 3, "backward"), (2, 0, "allreduce"), (4, 7, "lock")],
)
def test_a_deadlocked_rank_is_found_on_whichever_host(
    start: Starts, hosts: int, rank: int, where: str
) -> None:
    job = start(hosts, 150)
    assert job.until(lambda: bool(job.told("saved"))), job.all_said()  # so many steps are a pace

    (job.shared / f"fault-{rank}").write_text(where, encoding="utf-8")

    assert ended_well(job), job.all_said()
    assert job.generations() == 2
    assert "rocsteady: hung " in job.said(1), job.all_said()  # which leads
    assert [len(each) for each in settings_of(job)] == [1, 1]
    blame = job.recorded(1)[-1]["blame"]
    named = [(it["rank"], it["host"]) for it in blame["ranks"]]
    assert named == [(rank, str(rank // RANKS))], job.all_said()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.parametrize("calls", [True, False])
def test_a_host_without_ptrace_does_not_blind_the_others(
    start: Starts, tmp_path: Path, *, calls: bool
) -> None:
    """Without stacks; and without system calls too, as Yama would have it."""
    job = start(2, 150, variables={2: without_ptrace(tmp_path / "refused", calls=calls)})
    assert job.until(lambda: bool(job.told("saved"))), job.all_said()

    (job.shared / "fault-0").write_text("lock", encoding="utf-8")

    assert ended_well(job), job.all_said()
    assert job.generations() == 2
    assert "host 1 (its processes cannot be read)" in job.said(1)


def test_a_host_too_many_is_not_needed(start: Starts) -> None:
    job = start(3, 120, spares=1)
    assert job.until(lambda: bool(job.told("saved"))), job.all_said()
    train = [host for host in job.agents if job.ranks_of(host)]

    os.kill(job.pid(RANKS), signal.SIGKILL)

    assert ended_well(job), job.all_said()
    assert job.generations() == 2
    assert [host for host in job.agents if "not needed" not in job.said(host)] == train


def test_a_host_whose_place_a_spare_took_ends_well(start: Starts) -> None:
    job = start(3, 200, spares=1)
    assert job.until(lambda: bool(job.told("saved"))), job.all_said()
    spare = next(host for host in job.agents if not job.ranks_of(host))
    lost = next(host for host in job.agents if job.ranks_of(host) and host != 1)

    job.signal(lost, signal.SIGSTOP)  # c10d takes it for dead after 15 s
    assert job.until(lambda: bool(job.ranks_of(spare))), job.all_said()
    job.signal(lost, signal.SIGCONT)

    assert ended_well(job), job.all_said()
    assert job.generations() == 2


@pytest.mark.parametrize("rank", [0, 3])
def test_a_rank_that_validates_on_one_host_keeps_the_job_alive(start: Starts, rank: int) -> None:
    job = start(2, 100)
    assert job.until(lambda: bool(job.told("saved"))), job.all_said()

    (job.shared / f"fault-{rank}").write_text("validate", encoding="utf-8")

    assert ended_well(job), job.all_said()
    assert [each["rank"] for each in job.told("validated")] == [rank]
    assert job.generations() == 1


def test_hosts_never_run_different_strategies(start: Starts) -> None:
    job = start(2, 60, script=SCRIPT.with_name("rank_loader.py"))

    assert ended_well(job), job.all_said()
    settings = settings_of(job)
    assert [len(each) for each in settings] == [1] * len(settings)  # the same on all four ranks
    assert settings[0] == {"{'ROCSTEADY_STRATEGY': None}"}
    assert '"workers": 0' in next(iter(settings[-1]))  # as the host with the fault proposed
    assert len(job.told("done")) == 4


@either
def test_a_lost_leader_is_replaced(start: Starts, hosts: int) -> None:
    job = start(hosts, 150, meet_at=2)
    assert job.until(lambda: job.generations() == 1), job.all_said()
    assert job.ranks_of(1) == [0, 1]  # it leads, and the store is on another host

    job.kill(1)
    job.start(1)  # as a scheduler would

    assert ended_well(job), job.all_said()
    assert job.generations() == 2
    assert [len(each) for each in settings_of(job)] == [1, 1]


@either
def test_without_the_host_of_the_store_the_others_end_and_may_be_started_again(
    start: Starts, hosts: int
) -> None:
    job = start(hosts, 10_000)
    assert job.until(lambda: job.generations() == 1), job.all_said()
    others = list(job.agents)[1:]
    ranks = [job.pid(rank) for host in others for rank in job.ranks_of(host)]

    job.kill(1)

    codes = job.codes()
    assert [codes[host] for host in others] == [75] * len(others), job.all_said()
    assert all("the other hosts cannot be reached" in job.said(host) for host in others)
    assert job.until(lambda: all(map(is_gone, ranks)), 30.0)


@either
def test_a_host_that_is_cut_off_ends_its_ranks_and_may_come_back(start: Starts, hosts: int) -> None:
    job = start(hosts, 400)
    assert job.until(lambda: bool(job.told("saved"))), job.all_said()
    ranks = [job.pid(rank) for rank in job.ranks_of(hosts)]

    job.net.cut(hosts)

    assert job.until(lambda: job.agents[hosts].poll() is not None), job.all_said()
    assert job.agents[hosts].poll() == 75, job.all_said()
    assert job.until(lambda: all(map(is_gone, ranks)), 30.0)
    assert job.until(lambda: "did not respond for minutes" in job.said(1)), job.all_said()
    job.net.join(hosts)
    job.start(hosts)
    assert ended_well(job), job.all_said()
    assert job.generations() == 2


@either
def test_a_slow_host_is_left_alone(start: Starts, hosts: int) -> None:
    job = start(hosts, 300)
    assert job.until(lambda: bool(job.told("saved"))), job.all_said()

    for pause in (*[1.5] * 10, 20.0):  # c10d takes a host for dead after 15 s
        job.signal(hosts, signal.SIGSTOP)
        time.sleep(pause)
        job.signal(hosts, signal.SIGCONT)
        time.sleep(0.5)

    assert ended_well(job), job.all_said()
    assert job.generations() == 1


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.parametrize(("hosts", "minutes"), [(2, -10), (2, 10), (4, -10), (4, 10)])
def test_a_clock_that_is_off_does_no_harm(
    start: Starts, tmp_path: Path, hosts: int, minutes: int
) -> None:
    job = start(hosts, 200, variables={hosts: skewed(tmp_path, 60 * minutes)})
    assert job.until(lambda: bool(job.told("saved"))), job.all_said()

    os.kill(job.pid(0), signal.SIGKILL)

    assert ended_well(job), job.all_said()
    assert job.generations() == 2
    assert [len(each) for each in settings_of(job)] == [1, 1]
    assert len(job.told("done")) == RANKS * hosts


@pytest.mark.skipif(shutil.which("nft") is None, reason="there is no nft to lose packets with")
@either
def test_lost_packets_do_no_harm(start: Starts, hosts: int) -> None:
    job = start(hosts, 200)
    job.net.lose(5)
    assert job.until(lambda: len(job.told("saved")) > 5), job.all_said()
    assert job.generations() == 1

    os.kill(job.pid(RANKS * hosts - 1), signal.SIGKILL)

    assert ended_well(job), job.all_said()
    assert job.generations() == 2
    assert job.net.lost() > 0
    assert [len(each) for each in settings_of(job)] == [1, 1]
