"""How fast a job goes, from the steps that were seen in a trial.

The warm-up is told apart by MSER: the cut that leaves the smallest standard error of the mean
(White, Simulation 69, 1997). The interval is by batch means of the ratio, with what neighbouring
batches have in common (Newey and West, Econometrica 55, 1987), and Student's t; it is never
narrower than the drift of a machine's own speed, which a short trial cannot see.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from rocsteady.plan.values import Pace

GROUPS = 20  # batches of steps, at most
LEAST_GROUPS = 4  # fewer tell nothing of the spread
LEAST_STEPS = 4
LAGS = 4  # groups so far apart may still be alike, or unlike, as validation makes them
DRIFT = 0.08  # standard deviation of the log of the pace, from trial to run; see docs/benchmarks.md
NORMAL = 1.645  # 90 % of a normal distribution lie within so many standard deviations


class StepTime(NamedTuple):
    """When a step was first seen to be made."""

    at: float  # seconds
    step: int


class _Group(NamedTuple):
    """Some steps in a row."""

    begins: float
    seconds: float
    steps: int
    made: int  # before, since the start of the process

    @property
    def each(self) -> float:
        return self.seconds / self.steps


def measure(step_times: Sequence[StepTime], *, started: float) -> Pace | None:
    """Return the pace that the marks show; None if they are too few to tell."""
    groups = _groups(step_times)
    if len(groups) < LEAST_GROUPS:
        return None
    steady = groups[_warm_up(groups) :]
    steps, seconds = sum(group.steps for group in steady), sum(group.seconds for group in steady)
    if steps < LEAST_STEPS or seconds <= 0:
        return None
    rate = steps / seconds
    off = _half_width(steady, seconds / steps)
    return Pace(
        steps=steps,
        seconds=seconds,
        rate=rate,
        low=rate * math.exp(-off),
        high=rate * math.exp(off),
        starting=max(0.0, steady[0].begins - started - steady[0].made / rate),
    )


def _began_at(step_times: Sequence[StepTime]) -> int:
    """Return how many steps were done when the process started, as far as that is known."""
    return step_times[0].step - 1


def _groups(step_times: Sequence[StepTime]) -> list[_Group]:
    """Cut the marks into groups that last about as long as each other, each with whole steps."""
    if len(step_times) <= LEAST_GROUPS:
        return []
    span = (step_times[-1].at - step_times[0].at) / GROUPS
    groups, first = [], step_times[0]
    for before, step_time in pairwise(step_times):
        if step_time.at - first.at >= span * 0.999 and step_time.step > first.step:
            seconds, steps = step_time.at - first.at, step_time.step - first.step
            groups.append(_Group(first.at, seconds, steps, first.step - _began_at(step_times)))
            first = step_time
        elif step_time.step < before.step:  # it went back to a checkpoint
            groups, first = [], step_time
    return groups


def _warm_up(groups: Sequence[_Group]) -> int:
    """Return how many groups in front are warm-up; never more than half of them."""
    each = [group.each for group in groups]

    def error(cut: int) -> float:
        rest = each[cut:]
        mean = sum(rest) / len(rest)
        return sum((value - mean) ** 2 for value in rest) / len(rest) ** 2

    return min(range(len(groups) // 2 + 1), key=error)


def _half_width(groups: Sequence[_Group], mean: float) -> float:
    """Return half of the width of the 90 % interval of the log of the pace."""
    free, lags = len(groups) - 1, min(LAGS, len(groups) // 4)
    if free < 1:
        return math.log(2)
    off = [group.seconds - mean * group.steps for group in groups]
    spread = sum(value**2 for value in off)
    for lag in range(1, lags + 1):
        alike = sum(one * two for one, two in zip(off, off[lag:], strict=False))
        spread += 2 * (1 - lag / (lags + 1)) * alike
    error = math.sqrt(max(0.0, spread) * len(groups) / free) / sum(g.seconds for g in groups)
    return math.hypot(
        _student(max(3.0, 1.5 * len(groups) / (lags + 1) - 1)) * error, NORMAL * DRIFT
    )


def _student(free: float) -> float:
    """Return the 95 % point of Student's t, by the expansion of Fisher and Cornish."""
    z = NORMAL
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / free + second / free**2 + third / free**3
