"""Runs as the journal has them, looked ahead of."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rocsteady.model import Deadline, RunState, Strategy
from rocsteady.run.job.values import Job
from rocsteady.store.forecast import lines_ahead, story_ahead
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.values import Run, Sample

START, TOTAL = 60_000.0, 40_000
JOB = Job(command=("python", "train.py"), deadline=Deadline(within=timedelta(hours=12)))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(find_place(tmp_path, state=tmp_path / "state"), clock=lambda: START)
    yield opened
    opened.close()


def train(journal: Journal, run: Run, attempt: int, begin: float, *steps: int) -> None:
    """Look every 5 seconds; at first nothing is known of its steps."""
    for number, step in enumerate((0, *steps)):
        look = Sample(
            at=begin + 5 * number, step=step, verdict=RunState.HEALTHY, quiet=0.0, total=TOTAL
        )
        journal.progressed(run.id, attempt, look)


def test_a_run_under_way_is_foretold_and_measured_against_its_deadline(journal: Journal) -> None:
    run = journal.begin_run(JOB.command, job=JOB, strategy=Strategy(), name="calm-otter")
    train(journal, run, 1, START, *range(5, 1200, 5))
    journal.flush()
    now = START + 1200

    (line,) = lines_ahead(journal.runs(), journal.story, now=now)

    assert line.deadline == START + 12 * 3600
    assert line.forecast is not None
    assert line.forecast.rate == pytest.approx(1.0, rel=0.01)
    assert line.forecast.at == pytest.approx(START + TOTAL, rel=0.03)
    assert line.forecast.early < START + TOTAL < line.forecast.late
    told = story_ahead(journal.story("calm-otter"), journal.runs(), now=now)
    assert (told.deadline, told.forecast) == (line.deadline, line.forecast)


def test_what_a_run_goes_on_from_is_no_pace(journal: Journal) -> None:
    run = journal.begin_run(JOB.command, job=JOB, strategy=Strategy(), name="calm-otter")
    train(journal, run, 1, START, *range(30_005, 31_000, 5))
    train(journal, run, 2, START + 1100, *range(30_905, 31_400, 5))
    journal.flush()

    (line,) = lines_ahead(journal.runs(), journal.story, now=START + 1600)

    assert line.rate == pytest.approx(1.0, rel=0.01)
    assert line.forecast is not None
    assert line.forecast.rate == pytest.approx(1.0, rel=0.01)
    assert line.forecast.left == TOTAL - 31_395
    work = START + 1600 + line.forecast.left  # and a restart now and then
    assert work < line.forecast.at < work + 0.1 * line.forecast.left


def test_too_little_was_seen_in_the_first_seconds(journal: Journal) -> None:
    run = journal.begin_run(JOB.command, job=JOB, strategy=Strategy(), name="calm-otter")
    train(journal, run, 1, START, 5)
    journal.flush()

    (line,) = lines_ahead(journal.runs(), journal.story, now=START + 9)

    assert line.forecast is None
