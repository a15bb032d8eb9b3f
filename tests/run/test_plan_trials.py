"""How long trials take, in proportion to the job."""

from __future__ import annotations

from contextlib import nullcontext
from typing import cast

import pytest

from rocsteady.model import Strategy
from rocsteady.plan.trials import Bounds, PlanTrials, TrialBounds, TrialKind, TrialResult, Trials
from rocsteady.plan.values import Pace
from rocsteady.run.job.values import Job

JOB = Job(command=("python", "train.py"))


def pace(rate: float) -> Pace:
    return Pace(steps=10, seconds=10 / rate, rate=rate, low=rate, high=rate, starting=2.0)


class Made:
    """Trials that take 10 s each and show a pace."""

    stopped = False

    def __init__(self, rate: float, total: int | None) -> None:
        self.seconds, self.bounds = 0.0, list[Bounds]()
        self._rate, self._total = rate, total

    def run(
        self, job: Job, strategy: Strategy, bounds: Bounds, **_: bool
    ) -> tuple[TrialResult, ...]:
        del job
        self.seconds += 10.0
        self.bounds.append(bounds)
        return (
            TrialResult(strategy=strategy, seconds=10.0, pace=pace(self._rate), total=self._total),
        )


@pytest.mark.parametrize(
    ("left", "told", "proportional", "count"),
    [
        (160, None, True, 1),  # 16 s: one trial, and no more
        (None, 160, True, 1),  # as the script told
        (3_000, None, True, 2),  # 5 min: trials for 30 s
        (1_000_000, None, True, 6),
        (None, None, True, 6),
        (160, None, False, 6),  # --within was given
    ],
)
def test_trials_end_with_a_tenth_of_what_is_left(
    left: int | None, told: int | None, *, proportional: bool, count: int
) -> None:
    made = Made(10.0, told)
    bounds = TrialBounds(each=20.0, within=300.0, left=left, proportional=proportional)
    trials = PlanTrials(cast("Trials", made), bounds, lambda _: nullcontext())

    for _ in range(6):
        trials.run(JOB, Strategy(), TrialKind.PACE)

    assert len(made.bounds) == count


@pytest.mark.parametrize(
    ("bounds", "told", "seconds"),
    [
        (Bounds(wanted=20.0, in_proportion=True, left=160), None, 1.6),
        (Bounds(wanted=20.0, in_proportion=True), 160, 1.6),
        (Bounds(wanted=20.0, in_proportion=True, left=1_000_000), None, 20.0),
        (Bounds(wanted=20.0, in_proportion=True), None, 20.0),
        (Bounds(wanted=20.0, left=160), 160, 20.0),
    ],
)
def test_a_trial_of_a_short_job_is_short(bounds: Bounds, told: int | None, seconds: float) -> None:
    assert bounds.enough(pace(10.0), told) == pytest.approx(seconds)
