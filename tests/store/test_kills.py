"""Real processes, really killed at random moments: the journal always opens and is right."""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rocsteady.model import RunOutcome
from rocsteady.store.journal import Journal
from rocsteady.store.location import Place
from rocsteady.store.values import Fate, Intent

VICTIM = Path(__file__).with_name("writing_until_killed.py")
KILLS = 200
linux = pytest.mark.skipif(
    sys.platform != "linux", reason="tells the dead from the living by /proc"
)


def start(place: Place, tmp_path: Path, rounds: int = 1_000_000) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(VICTIM), str(tmp_path / "project"), str(tmp_path / "state")]
    assert place.folder.parent == tmp_path / "project"
    return subprocess.Popen([*command, str(rounds)], stdout=subprocess.PIPE)


def killed_after(child: subprocess.Popen[bytes], seconds: float) -> list[str]:
    """Kill a writer some time after its first word, and return all that it said."""
    assert child.stdout is not None
    first = child.stdout.readline()
    time.sleep(seconds)
    child.kill()
    rest = child.stdout.read()
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL
    return (first + rest).decode().splitlines()


def check(place: Place, said: list[str]) -> None:
    """Compare what the journal holds with what the dead process knew to be on disk."""
    connection = sqlite3.connect(place.database)
    with contextlib.closing(connection):
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    run = int(said[0].removeprefix("= "))
    journal = Journal(place)
    try:
        name = next(line.run.name for line in journal.runs() if line.run.id == run)
        story = journal.story(name)
        begun = [int(line[2:]) for line in said if line.startswith("+ ")]
        ended = [int(line[2:]) for line in said if line.startswith("- ")]
        check_last(story.intents, begun, ended)
        left = [found for found in journal.unfinished() if found.run == run]
        assert all(found.fate is Fate.KILLED for found in left)
        assert len(left) <= 1
    finally:
        journal.close()


def check_last(intents: tuple[Intent, ...], begun: list[int], ended: list[int]) -> None:
    assert [int(intent.what) for intent in intents] == list(range(len(intents)))
    # Killed after it was on disk and before it could say so, it may be one ahead; never behind.
    assert len(begun) <= len(intents) <= len(begun) + 1
    done = [intent for intent in intents if intent.outcome == "done"]
    assert len(ended) <= len(done) <= len(ended) + 1
    assert all(intent.outcome == "done" for intent in intents[:-1])


@linux
def test_a_killed_writer_leaves_a_journal_that_opens(place: Place, tmp_path: Path) -> None:
    check(place, killed_after(start(place, tmp_path), 0.05))


@pytest.mark.ci
@linux
@pytest.mark.slow
def test_two_hundred_kills_at_random_moments(place: Place, tmp_path: Path) -> None:
    chance = random.Random(20251130)  # noqa: S311 - no secret, and the same each time
    in_mid_deed = 0
    for _ in range(KILLS):
        said = killed_after(start(place, tmp_path), chance.uniform(0, 0.08))
        check(place, said)
        in_mid_deed += said[-1].startswith("+")

    assert in_mid_deed > 0  # or the moments were not random enough


@linux
@pytest.mark.slow
def test_a_kill_costs_those_who_write_beside_it_nothing(place: Place, tmp_path: Path) -> None:
    chance = random.Random(7)  # noqa: S311 - no secret, and the same each time
    with start(place, tmp_path, rounds=1500) as survivor:
        kills = 0
        while survivor.poll() is None:
            check(place, killed_after(start(place, tmp_path), chance.uniform(0, 0.05)))
            kills += 1
            assert kills < KILLS
        assert survivor.stdout is not None
        said = survivor.stdout.read().decode().splitlines()

    assert survivor.returncode == 0
    check(place, said)
    assert said[-1] == "- 1499"
    run = int(said[0].removeprefix("= "))
    with contextlib.closing(sqlite3.connect(place.database)) as connection:
        counted = connection.execute("SELECT count(*) FROM messages WHERE run = ?", (run,))
        assert counted.fetchone() == (1500 * 20,)


@linux
@pytest.mark.slow
def test_four_supervisors_at_once_lose_no_write(place: Place, tmp_path: Path) -> None:
    children = [start(place, tmp_path, rounds=100) for _ in range(4)]
    for child in children:
        said, _ = child.communicate(timeout=120)
        assert child.returncode == 0
        check(place, said.decode().splitlines())
        assert said.endswith(b"- 99\n")

    journal = Journal(place)
    lines = journal.runs()
    assert len({line.run.name for line in lines}) == 4
    assert all(line.run.outcome is RunOutcome.DONE for line in lines)
    for line in lines:
        assert len(journal.story(line.run.name).messages) == 100 * 20
    journal.close()
