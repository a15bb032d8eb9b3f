"""A watcher beside stock torchrun: real faults of two real ranks, and what comes of each."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from rank_faults import RANKS, WITHIN, Torchrun, inject, is_alive
from supervised import ROCSTEADY

from rocsteady.exit_codes import PERSON_NEEDED

pytestmark = pytest.mark.slow
Starts = Callable[..., Torchrun]


@pytest.fixture
def start(tmp_path: Path, ranks_python: str) -> Iterator[Starts]:
    """Return what starts torchrun in a folder of its own; nothing of it is left."""
    started: list[Torchrun] = []

    def starts(steps: int, name: str = "run", kind: type[Torchrun] = Torchrun) -> Torchrun:
        variables = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
        started.append(kind(ranks_python, tmp_path / name, steps, **variables))
        return started[-1]

    yield starts
    for torchrun in started:
        torchrun.close()


def ended(torchrun: Torchrun) -> int:
    return torchrun.process.wait(WITHIN)


def watcher_of(torchrun: Torchrun) -> int:
    """Return the process that watches, as soon as there is one."""
    assert torchrun.until(lambda: bool(torchrun.watcher())), torchrun.said()
    return torchrun.watcher()


@pytest.mark.ci
def test_faults_cost_one_restart_each_and_no_bit_of_the_weights(start: Starts) -> None:
    torchrun = start(200)
    assert torchrun.until(lambda: len(torchrun.told("saved")) > 1), torchrun.said()

    done = [inject(torchrun, "backward", 1)]
    time.sleep(1.0)
    done.append(inject(torchrun, "kill", 1))

    assert all(fault.recovered for fault in done), (done, torchrun.said())
    assert ended(torchrun) == 0
    assert torchrun.generations() == 3
    undisturbed = start(200, "undisturbed")
    assert ended(undisturbed) == 0
    weights = [(run.folder / "weights.json").read_text() for run in (torchrun, undisturbed)]
    assert weights[0] == weights[1]
    assert "rocsteady: hung " in torchrun.said()
    assert re.search(r"rocsteady: done +(about )?200 steps", torchrun.said()), torchrun.said()
    assert undisturbed.generations() == 1
    told = subprocess.run(
        [*ROCSTEADY, "report", "--json"],
        cwd=torchrun.folder,
        env={**os.environ, "HOME": str(torchrun.folder.parent)},
        check=True,
        capture_output=True,
        text=True,
    )
    record = json.loads(told.stdout)
    assert [each["failure"]["rank"] for each in record["failures"]] == [1, 1]
    steps = [each["last_step"] for each in record["attempts"]]
    assert steps == sorted(steps)  # those of the job, and not of each process


def test_a_stopped_rank_is_continued(start: Starts) -> None:
    torchrun = start(100)
    assert torchrun.until(lambda: torchrun.generations() == 1), torchrun.said()

    fault = inject(torchrun, "stop", 0)

    assert fault.recovered, torchrun.said()
    assert ended(torchrun) == 0
    assert torchrun.generations() == 1


class NoRestarts(Torchrun):
    """A torchrun whose script does not say that it can be restarted."""

    restarts = 0


def test_ranks_that_are_ended_for_good_are_not_started_again(start: Starts) -> None:
    torchrun = start(10_000, kind=NoRestarts)
    assert torchrun.until(lambda: len(torchrun.told("saved")) > 1), torchrun.said()

    (torchrun.folder / "fault-1").write_text("backward", encoding="utf-8")

    assert ended(torchrun) == PERSON_NEEDED, torchrun.said()
    assert torchrun.generations() == 1
    assert "unwatched" not in torchrun.said()


def test_training_goes_on_without_its_watcher(start: Starts) -> None:
    torchrun = start(150)
    assert torchrun.until(lambda: torchrun.generations() == 1), torchrun.said()

    os.kill(watcher_of(torchrun), signal.SIGKILL)
    assert torchrun.until(lambda: "the watcher has ended" in torchrun.said()), torchrun.said()
    faults = [
        inject(torchrun, "kill", 1),
        inject(torchrun, "watcher", 0),
    ]  # each brings another one

    assert all(fault.recovered for fault in faults), torchrun.said()
    assert watcher_of(torchrun)
    assert ended(torchrun) == 0


def test_another_run_leaves_ranks_without_a_watcher_alone(start: Starts, ranks_python: str) -> None:
    torchrun = start(10_000)
    assert torchrun.until(lambda: torchrun.generations() == 1), torchrun.said()
    ranks = [torchrun.pid(rank) for rank in range(RANKS)]
    os.kill(watcher_of(torchrun), signal.SIGKILL)

    other = subprocess.run(
        [*ROCSTEADY, "run", "--resume", "never", "--", ranks_python, "-c", "pass"],
        cwd=torchrun.folder,
        env={**os.environ, "HOME": str(torchrun.folder.parent)},
        check=False,
        capture_output=True,
        timeout=WITHIN,
    )

    assert other.returncode == 0, other.stderr
    assert [pid for pid in ranks if not is_alive(pid)] == []


def test_ranks_do_not_outlive_their_agent(start: Starts) -> None:
    torchrun = start(10_000)
    assert torchrun.until(lambda: torchrun.generations() == 1), torchrun.said()
    ranks, watcher = [torchrun.pid(rank) for rank in range(RANKS)], watcher_of(torchrun)

    torchrun.process.kill()
    torchrun.process.wait()

    deadline = time.monotonic() + WITHIN
    while any(map(is_alive, [*ranks, watcher])) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [pid for pid in [*ranks, watcher] if is_alive(pid)] == []
    assert "torchrun has ended" in torchrun.said()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_torchrun_that_is_asked_to_end_is_stopped(start: Starts, number: signal.Signals) -> None:
    torchrun = start(10_000)
    assert torchrun.until(lambda: bool(torchrun.told("saved"))), torchrun.said()
    watcher = watcher_of(torchrun)

    torchrun.process.send_signal(number)

    assert ended(torchrun) == 1  # as without rocsteady
    deadline = time.monotonic() + WITHIN
    while is_alive(watcher) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "rocsteady: stopped " in torchrun.said()
    assert "retrying" not in torchrun.said()


def test_what_no_restart_can_help_ends_the_job(start: Starts) -> None:
    torchrun = start(100)
    assert torchrun.until(lambda: bool(torchrun.told("saved"))), torchrun.said()

    # The next generation cannot load it. Its end is there, so nobody may move it out of the way.
    last = torchrun.folder / "last.pt"
    content = last.read_bytes()
    middle = len(content) // 2
    last.write_bytes(content[:4] + bytes(middle - 4) + content[middle:])
    inject(torchrun, "kill", 0)

    assert ended(torchrun) == 76, torchrun.said()
    assert "checkpoint-corrupt" in torchrun.said()
    assert torchrun.generations() == 1


def test_the_journal_has_the_run(start: Starts) -> None:
    torchrun = start(40)

    assert ended(torchrun) == 0, torchrun.said()
    told = subprocess.run(
        [*ROCSTEADY, "status", "--json"],
        cwd=torchrun.folder,
        env={**os.environ, "HOME": str(torchrun.folder.parent)},
        check=True,
        capture_output=True,
        text=True,
    )
    (line,) = json.loads(told.stdout)["runs"]
    assert line["run"]["outcome"] == "done"
