"""How fast a job goes, from the steps that were seen in a trial.

The warm-up is told apart by MSER: the cut that leaves the smallest standard error of the mean
(White, Simulation 69, 1997). The interval is by batch means of the ratio, with what neighbouring
batches have in common (Newey and West, Econometrica 55, 1987), and Student's t; it is never
narrower than the drift of a machine's own speed, of which a short trial sees little.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from rocsteady.model import Value
from rocsteady.plan.values import Finish, Pace

GROUPS = 20  # batches of steps, at most
LEAST_GROUPS = 4  # fewer tell nothing of the spread
LEAST_STEPS = 4
LAGS = 4  # groups so far apart may still be alike, or unlike, as validation makes them
DRIFT = 0.08  # standard deviation of the log of the pace, from trial to run; see docs/benchmarks.md
LONG_TRIAL = 60.0  # seconds of the trials that it was measured with; shorter ones see less of it
MOST_DRIFT = 0.42  # a factor of 2, at 90 %
START_DRIFT = 0.3  # the same of the time until the first step; our own guess
NORMAL = 1.645  # 90 % of a normal distribution lie within so many standard deviations


class StepTime(NamedTuple):
    at: float  # seconds
    step: int


class _Group(NamedTuple):
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


def _groups(step_times: Sequence[StepTime]) -> list[_Group]:
    """Cut the marks into groups that last about as long as each other, each with whole steps."""
    if len(step_times) <= LEAST_GROUPS:
        return []
    span = (step_times[-1].at - step_times[0].at) / GROUPS
    groups, first = [], step_times[0]
    began_at = first.step - 1  # steps that were done when the process started, as far as is known
    for before, step_time in pairwise(step_times):
        if step_time.at - first.at >= span * 0.999 and step_time.step > first.step:
            seconds, steps = step_time.at - first.at, step_time.step - first.step
            groups.append(_Group(first.at, seconds, steps, first.step - began_at))
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
    seconds = sum(group.seconds for group in groups)
    error = math.sqrt(max(0.0, spread) * len(groups) / free) / seconds
    drift = min(DRIFT * math.sqrt(max(1.0, LONG_TRIAL / seconds)), MOST_DRIFT)
    return math.hypot(
        _student(max(3.0, 1.5 * len(groups) / (lags + 1) - 1)) * error, NORMAL * drift
    )


def _student(free: float) -> float:
    """Return the 95 % point of Student's t, by the expansion of Fisher and Cornish."""
    z = NORMAL
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / free + second / free**2 + third / free**3


# Seconds between failures, as long as nothing was seen; our own guess.
PRIOR_INTERVAL = 7 * 86_400.0
WEIGHT = 0.02  # of a failure, that this counts for: what is seen in a few hours outweighs it
SEEN_WEIGHT = 0.5  # of a failure, at the rate that was seen: the least sure that one can be
DRAWS = 2000
FEW_FAILURES = 100  # failures on the way, that are drawn one by one
SHORTEST = 1e-3  # seconds
UNSEEN, HUNG, CRASHED = 20.0, 10.0, 1.0  # seconds to see a failure and end what is left of it
NEVER_ENDS = 100 * 365 * 86_400.0  # seconds: what takes longer does not end


class FailureHistory(Value, frozen=True, kw_only=True):
    """What was seen of an option here, in runs and trials."""

    failures: int = 0
    seconds: float = 0.0  # of training
    steps: int = 0
    kinds: tuple[str, ...] = ()  # of the failures

    @property
    def seen_and_ended(self) -> float:
        """Return the seconds from a failure to the next start, by those that were seen."""
        seen = [HUNG if "hang" in kind else CRASHED for kind in self.kinds]
        return sum(seen) / len(seen) if seen else UNSEEN


class FailureCost(Value, frozen=True, kw_only=True):
    again: float  # seconds until training goes on: to see it, to end it, to start
    interval: float | None = None  # seconds of work between two checkpoints; None: all is lost


def finish(  # noqa: PLR0913 - all that it rests on
    pace: Pace,
    left: int,
    *,
    history: FailureHistory,
    loss: FailureCost,
    due: float | None,
    setup: float = 0.0,
) -> Finish:
    """Forecast the end in seconds from now; ``due`` and ``setup`` are seconds from now too."""
    dice = random.Random(0)  # noqa: S311 - the same plan twice gives the same figures
    spread = math.log(pace.high / pace.low) / (2 * NORMAL)
    shape, scale = _failure_rate(history, pace)
    usual = 1 / (shape * scale)
    ends, lost = [], []
    for _ in range(DRAWS):
        rate = pace.rate * math.exp(dice.gauss(0.0, spread))
        start = pace.starting * math.exp(dice.gauss(0.0, START_DRIFT))
        often = dice.gammavariate(shape, scale)
        took = start + _took(dice, left / rate, max(often, 1 / NEVER_ENDS), loss)
        ends.append(min(setup + took, NEVER_ENDS))
        lost.append(1 - (start + left / rate) / took if took > 0 else 0.0)
    ends.sort()
    met = None if due is None else sum(end <= due for end in ends) / DRAWS
    return Finish(
        seconds=ends[DRAWS // 2],
        early=ends[DRAWS // 20],
        late=ends[-DRAWS // 20],
        in_time=met,
        failures=_failures(left / pace.rate, usual, loss),
        lost=sum(lost) / DRAWS,
    )


def _failure_rate(history: FailureHistory, pace: Pace) -> tuple[float, float]:
    """Return shape and scale of the rate of failures, in each second of work.

    The mean is what was seen, by steps where they were counted: those of a trial that mostly starts
    say little by its seconds. The fewer were seen, the less sure it is.
    """
    seconds = history.steps / pace.rate if history.steps else history.seconds
    if not history.failures:
        return WEIGHT, 1 / (seconds + WEIGHT * PRIOR_INTERVAL)
    shape = history.failures + SEEN_WEIGHT
    return shape, history.failures / (shape * max(seconds, SHORTEST))


def _took(dice: random.Random, work: float, often: float, loss: FailureCost) -> float:
    """Draw how long it takes once; what begins again each time has no average that says much."""
    expected = _with_failures(work, 1 / often, loss)
    if loss.interval is None and expected < work + FEW_FAILURES / often:
        took, fails = 0.0, dice.expovariate(often)
        while fails < work:
            took, fails = took + fails + loss.again, dice.expovariate(often)
        return took + work
    mean = min(expected * often, 1e6)
    return work + (expected - work) * (_poisson(dice, mean) / mean if mean > 0 else 0.0)


def _with_failures(work: float, between: float, loss: FailureCost) -> float:
    """Return the expected seconds; failures come while it works, and not while it starts."""
    again = _work_and_redone(work, between, loss)
    return min(again + again / between * loss.again, NEVER_ENDS)


def _failures(work: float, between: float, loss: FailureCost) -> float:
    """Return how many are expected; where it would never get on, those of the work alone."""
    again = _work_and_redone(work, between, loss)
    return (work if again >= NEVER_ENDS else again) / between


def _work_and_redone(work: float, between: float, loss: FailureCost) -> float:
    """Return the seconds of work, with what is done again since the last checkpoint."""
    interval = max(min(work if loss.interval is None else loss.interval, work), SHORTEST)
    try:
        return min(work / interval * between * math.expm1(interval / between), NEVER_ENDS)
    except OverflowError:  # more than e^709 failures in a row to go through
        return NEVER_ENDS


def _poisson(dice: random.Random, mean: float) -> int:
    """Draw how many there are; many are drawn as a normal distribution has them."""
    if mean > 50:  # noqa: PLR2004 - from here on the two are alike
        return max(0, round(dice.gauss(mean, math.sqrt(mean))))
    level, count, product = math.exp(-mean), 0, dice.random()
    while product > level:
        product *= dice.random()
        count += 1
    return count
