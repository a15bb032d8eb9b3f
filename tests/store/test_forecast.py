"""The forecast against runs whose end is known: even, noisy, slower, faster, restarted."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from rocsteady.model import Deadline, Strategy
from rocsteady.run.job.job_file import parse_job
from rocsteady.run.job.values import Job
from rocsteady.store.forecast import (
    ProgressPoint,
    Restarts,
    due,
    due_of,
    forecast,
    needed,
    points_of,
    saving_of,
)
from rocsteady.store.values import Bucket, Run

TOTAL = 1000
RARE = Restarts(between=1e9, started=0.0)
Pace = Callable[[float], float]  # seconds of a step at a moment


def trained(
    pace: Pace, *, noise: float = 0.0, seed: int = 0, begin: float = 5.0, until: int = TOTAL
) -> list[ProgressPoint]:
    """Carry out a run, and return when each step was made."""
    dice, at, points = random.Random(seed), begin, []  # noqa: S311 - the same each time
    for step in range(1, until + 1):
        at += pace(at) * math.exp(dice.gauss(0.0, noise) - noise**2 / 2)
        points.append(ProgressPoint(at, step, 1))
    return points


def seen(points: list[ProgressPoint], at: float) -> list[ProgressPoint]:
    return [point for point in points if point.at <= at]


@pytest.mark.parametrize("each", [0.003, 0.25, 40.0])
@pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
def test_an_even_pace_is_foretold_to_the_step(each: float, part: float) -> None:
    points = trained(lambda _: each, until=40_000 if each < 0.01 else TOTAL)
    end, now = points[-1].at, points[-1].at * part

    ahead = forecast(seen(points, now), points[-1].step, now=now, restarts=RARE)

    assert ahead is not None
    assert ahead.at == pytest.approx(end, abs=2 * each + 0.001 * end)
    assert ahead.early < end < ahead.late
    assert ahead.late - ahead.early < 0.3 * (end - now)
    assert ahead.rate == pytest.approx(1 / each, rel=0.01)


@pytest.mark.parametrize("noise", [0.1, 0.5])
@pytest.mark.parametrize(
    ("name", "pace"),
    [
        ("even", lambda _: 1.0),
        ("slower once", lambda at: 1.0 if at < 200 else 2.0),
        ("faster once", lambda at: 1.0 if at < 200 else 0.4),
        ("to and fro", lambda at: 1.0 + 0.5 * math.sin(at / 60)),
    ],
)
def test_the_end_lies_in_the_interval_as_often_as_it_says(
    name: str, pace: Pace, noise: float
) -> None:
    hits = 0
    for seed in range(20):
        points = trained(pace, noise=noise, seed=seed)
        ahead = forecast(seen(points, 350.0), TOTAL, now=350.0, restarts=RARE)
        assert ahead is not None, name
        hits += ahead.early <= points[-1].at <= ahead.late
    assert hits >= 18, name


def test_a_pace_that_changed_is_followed_and_the_interval_says_so() -> None:
    even = trained(lambda _: 1.0)
    slower = trained(lambda at: 1.0 if at < 200 else 2.0)

    one, two = (
        forecast(seen(points, 400.0), TOTAL, now=400.0, restarts=RARE) for points in (even, slower)
    )

    assert one is not None and two is not None  # noqa: PT018 - for mypy
    assert two.at == pytest.approx(slower[-1].at, rel=0.02)
    assert (two.late - two.early) / two.left > 3 * (one.late - one.early) / one.left


def test_a_hiccup_counts_as_often_as_it_was_seen() -> None:
    points = trained(lambda _: 1.0, until=400)
    after = [ProgressPoint(at + 30.0, step, attempt) for at, step, attempt in points[300:]]

    ahead = forecast([*points[:300], *after], TOTAL, now=after[-1].at, restarts=RARE)

    assert ahead is not None
    assert ahead.at == pytest.approx(5.0 + TOTAL + 30.0 * TOTAL / 400, rel=0.01)


def test_while_nothing_moves_the_end_moves_away() -> None:
    points = trained(lambda _: 1.0, until=400)
    last = points[-1].at

    one, two = (forecast(points, TOTAL, now=last + wait, restarts=RARE) for wait in (0.0, 300.0))

    assert one is not None and two is not None  # noqa: PT018 - for mypy
    assert two.at - one.at == pytest.approx(299.0, abs=1.0)  # one step may be under way


def test_what_restarts_cost_is_counted_and_expected_again() -> None:
    first = trained(lambda _: 1.0, until=400)
    again = [
        ProgressPoint(at + 460.0, step + 300, 2)
        for at, step, _ in trained(lambda _: 1.0, until=200)
    ]  # 60 seconds without a step, then 100 steps once more
    restarts = Restarts(between=1000.0, started=0.0)

    ahead = forecast([*first, *again], TOTAL, now=again[-1].at, restarts=restarts)
    without = forecast([*first, *again], TOTAL, now=again[-1].at, restarts=RARE)

    assert ahead is not None and without is not None  # noqa: PT018 - for mypy
    assert without.at - again[-1].at == pytest.approx(500, rel=0.02)
    assert ahead.failures == pytest.approx(500 / ((1000 + again[-1].at) / 2), rel=0.02)
    assert ahead.at - without.at == pytest.approx(ahead.failures * 165, rel=0.35)
    assert ahead.early < without.at < ahead.late


def test_days_in_which_a_run_was_left_are_not_expected_again() -> None:
    first = trained(lambda _: 1.0, until=400)
    again = [ProgressPoint(at + 200_000.0, step + 400, 2) for at, step, _ in first[:200]]

    ahead = forecast(
        [*first, *again],
        TOTAL,
        now=again[-1].at,
        restarts=Restarts(between=14_400.0, started=0.0),
    )

    assert ahead is not None
    assert ahead.at - again[-1].at == pytest.approx(400, rel=0.1)
    assert ahead.late - again[-1].at < 3600


def test_checkpoints_that_are_far_apart_make_a_failure_dear() -> None:
    points = trained(lambda _: 1.0, until=400)

    ends = [
        forecast(points, TOTAL, now=405.0, restarts=Restarts(between=900.0, started=0.0, saving=s))
        for s in (10.0, 300.0)
    ]

    assert ends[0] is not None and ends[1] is not None  # noqa: PT018 - for mypy
    assert ends[0].at < ends[1].at
    assert ends[0].late < ends[1].late


def test_another_way_has_a_pace_of_its_own() -> None:
    slow = trained(lambda _: 1.0, until=300)
    fast = [
        ProgressPoint(at + 400.0, step + 300, 2)
        for at, step, _ in trained(lambda _: 0.2, until=200)
    ]
    points = [*slow, *fast]

    ahead = forecast(points, TOTAL, now=points[-1].at, restarts=RARE, since=1)
    too_soon = forecast(points[:310], TOTAL, now=points[309].at, restarts=RARE, since=1)

    assert ahead is not None
    assert ahead.rate == pytest.approx(5.0, rel=0.01)
    assert too_soon is None


@pytest.mark.parametrize(
    ("points", "total"),
    [
        ([], TOTAL),
        (trained(lambda _: 1.0, until=8), TOTAL),  # too short
        (trained(lambda _: 1.0, until=100), None),
        (trained(lambda _: 1.0, until=100), 100),  # nothing is left, or the total is not the job's
        (trained(lambda _: 1.0, until=100)[::-1], TOTAL),  # a counter that starts over
        (
            [ProgressPoint(5.0, 1, 1), ProgressPoint(500.0, 2, 1)],
            TOTAL,
        ),  # one step says nothing of the next
        (
            [ProgressPoint(50.0 * n, 10 * n, n) for n in range(1, 9)],
            TOTAL,
        ),  # never twice in one attempt
    ],
)
def test_nothing_is_foretold_from_too_little(
    points: list[ProgressPoint], total: int | None
) -> None:
    assert forecast(points, total, now=1000.0, restarts=RARE) is None


def test_whatever_the_points_are_the_interval_is_around_the_middle() -> None:
    dice = random.Random(0)  # noqa: S311 - the same each time
    told = 0
    for _ in range(150):
        points, at, step, attempt = [], 0.0, 0, 1
        for _ in range(dice.randrange(2, 40)):
            at += dice.choice([-5.0, 1e-6, 0.3, 7.0, 1e4]) * dice.random()
            if dice.random() < 0.1:
                attempt, step = attempt + 1, max(0, step - dice.randrange(50))
            step += dice.randrange(5)
            points.append(ProgressPoint(at, step, attempt))
        restarts = Restarts(between=dice.choice([1.0, 1e4]), started=0.0, saving=None)
        ahead = forecast(points, step + dice.randrange(1, 10**6), now=at, restarts=restarts)
        if ahead is not None:
            told += 1
            assert points[-1].at <= ahead.early <= ahead.at <= ahead.late < math.inf
    assert told > 40


def test_a_deadline_is_a_moment_or_from_the_start_of_the_run() -> None:
    moment = datetime(2025, 11, 30, 18, tzinfo=UTC)

    assert due(Deadline(at=moment), 5.0) == moment.timestamp()
    assert due(Deadline(within=timedelta(hours=36)), 5.0) == 5.0 + 36 * 3600
    assert due(None, 5.0) is None
    assert due(Job(command=("a",)).deadline, 5.0) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('deadline = "36h"', 1000.0 + 36 * 3600),
        ("deadline = 2025-11-30T18:00:00Z", 1764525600.0),
        ("", None),
    ],
)
def test_the_deadline_of_a_run_is_read_back_from_the_journal(
    text: str, expected: float | None
) -> None:
    job = msgspec.to_builtins(parse_job(f'command = ["python"]\n{text}'))
    run = Run(
        id=1,
        name="calm-otter",
        command=("python",),
        job=job,
        strategy=Strategy(),
        folder="",
        machine="",
        boot_id="",
        process="",
        started=1000.0,
    )

    assert due_of(run) == expected
    assert due_of(msgspec.structs.replace(run, job={"deadline": "of another version"})) is None


def test_buckets_give_the_end_of_each_minute_and_how_often_it_saves() -> None:
    def bucket(start: float, first: int, last: int, saved: float) -> Bucket:
        return Bucket(
            run=1, attempt=1, start=start, width=60, first_step=first, last_step=last, total=9,
            first_progress=start + 1, last_progress=start + 59 if last > first else None,
            quiet=0.0, seconds_in={"checkpoint": saved} if saved else {}, seconds_as={},
        )  # fmt: skip

    buckets = (bucket(0, 0, 5, 1.0), bucket(60, 5, 5, 0.0), bucket(120, 5, 8, 2.0))

    assert points_of(buckets) == [ProgressPoint(59.0, 5, 1), ProgressPoint(179.0, 8, 1)]
    assert saving_of(buckets) == 120.0
    assert saving_of(buckets[:2]) is None


def test_a_run_of_seconds_has_a_forecast_with_a_range_within_its_first_minute() -> None:
    buckets = [
        Bucket(
            run=1, attempt=1, start=float(at), width=1, first_step=2 * at, last_step=2 * at + 2,
            total=1000, first_progress=at + 0.2, last_progress=at + 0.9, quiet=0.0, seconds_in={},
            seconds_as={},
        )
        for at in range(30)
    ]  # fmt: skip

    known = Restarts(between=4 * 3600.0, started=0.0)
    ahead = forecast(points_of(buckets), 1000, now=30.0, restarts=known)

    assert ahead is not None
    assert ahead.early < 30 + 470 < ahead.late
    assert ahead.at == pytest.approx(500, abs=30)


def test_the_pace_that_is_needed() -> None:
    assert needed(100, 60.0, 10.0) == 2.0
    assert needed(100, 10.0, 60.0) == math.inf
