"""How fast a job goes, from the steps that were seen in a trial.

The warm-up is told apart by MSER: the cut that leaves the smallest standard error of the mean
(White, Simulation 69, 1997). The interval is by batch means and Student's t, and is never narrower
than the drift of a machine's own speed, which a short trial cannot see.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from rocsteady.plan import Pace

GROUPS = 20  # batches of steps, at most
LEAST_GROUPS = 4  # fewer tell nothing of the spread
LEAST_STEPS = 4
DRIFT = (
    0.06  # standard deviation of the log of the pace from one hour to another; see the benchmark
)
NORMAL = 1.645  # 90 % of a normal distribution lie within so many standard deviations


class Mark(NamedTuple):
    """When a step was first seen to be made."""

    at: float  # seconds
    step: int


class _Group(NamedTuple):
    """Some steps in a row."""

    begins: float
    seconds: float
    steps: int

    @property
    def each(self) -> float:
        return self.seconds / self.steps


def measure(marks: Sequence[Mark], *, started: float) -> Pace | None:
    """Return the pace that the marks show; None if they are too few to tell."""
    groups = _groups(marks)
    if len(groups) < LEAST_GROUPS:
        return None
    kept = groups[_warm_up(groups) :]
    steps, seconds = sum(group.steps for group in kept), sum(group.seconds for group in kept)
    if steps < LEAST_STEPS or seconds <= 0:
        return None
    rate = steps / seconds
    off = _half_width(kept, seconds / steps)
    made_before = marks[-1].step - steps - _began_at(marks)
    return Pace(
        steps=steps,
        seconds=seconds,
        rate=rate,
        low=rate * math.exp(-off),
        high=rate * math.exp(off),
        starting=max(0.0, kept[0].begins - started - made_before / rate),
    )


def _began_at(marks: Sequence[Mark]) -> int:
    """Return how many steps were done when the process started, as far as that is known."""
    return marks[0].step - 1


def _groups(marks: Sequence[Mark]) -> list[_Group]:
    """Cut the marks into groups that last about as long as each other, each with whole steps."""
    if len(marks) <= LEAST_GROUPS:
        return []
    span = (marks[-1].at - marks[0].at) / GROUPS
    groups, first = [], marks[0]
    for before, mark in pairwise(marks):
        if mark.at - first.at >= span * 0.999 and mark.step > first.step:
            groups.append(_Group(first.at, mark.at - first.at, mark.step - first.step))
            first = mark
        elif (
            mark.step < before.step
        ):  # it went back to a checkpoint: what was before does not count
            groups, first = [], mark
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
    free = len(groups) - 1
    if free < 1:
        return math.log(2)
    weights = [group.steps for group in groups]
    spread = sum(
        weight * (group.each - mean) ** 2 for weight, group in zip(weights, groups, strict=True)
    )
    error = math.sqrt(spread / sum(weights) / free) / mean
    return math.hypot(_student(free) * error, NORMAL * DRIFT)


def _student(free: int) -> float:
    """Return the 95 % point of Student's t, by the expansion of Fisher and Cornish."""
    z = NORMAL
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / free + second / free**2 + third / free**3
