"""When an option would be done: the pace, what failures cost, and how sure that is.

Failures come at random. How often is learnt from what was seen of this option here, as a Gamma
distribution that starts from one in PRIOR seconds and weighs no more than a few hours of evidence.
What they cost is the exact formula of ``goodput``.
"""

from __future__ import annotations

import math
import random

from rocsteady_train import goodput

from rocsteady.model import Value
from rocsteady.plan.pace import NORMAL
from rocsteady.plan.values import Finish, Pace

PRIOR = 7 * 86_400.0  # seconds between failures, as long as nothing was seen; our own guess
WEIGHT = 0.02  # of a failure, that this counts for: what is seen in a few hours outweighs it
DRAWS = 2000
FEW = 100  # failures on the way, that are drawn one by one
SHORTEST = 1e-3  # seconds
NEVER = 100 * 365 * 86_400.0  # seconds: what takes longer does not end


class FailureHistory(Value, frozen=True, kw_only=True):
    """What was seen of an option here, in runs and trials."""

    failures: int = 0
    seconds: float = 0.0  # of training
    steps: int = 0
    kinds: tuple[str, ...] = ()  # of the failures


class FailureCost(Value, frozen=True, kw_only=True):
    """What a failure costs."""

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
    shape, scale = history.failures + WEIGHT, 1 / (history.seconds + WEIGHT * PRIOR)
    usual = 1 / (shape * scale)
    ends, lost = [], []
    for _ in range(DRAWS):
        rate = pace.rate * math.exp(dice.gauss(0.0, spread))
        work = pace.starting + left / rate
        often = dice.gammavariate(shape, scale)
        took = _took(dice, work, max(often, 1 / NEVER), loss)
        ends.append(min(setup + took, NEVER))
        lost.append(1 - work / took if took > 0 else 0.0)
    ends.sort()
    met = None if due is None else sum(end <= due for end in ends) / DRAWS
    mean_work = pace.starting + left / pace.rate
    return Finish(
        seconds=ends[DRAWS // 2],
        early=ends[DRAWS // 20],
        late=ends[-DRAWS // 20],
        in_time=met,
        failures=_with_failures(mean_work, usual, loss) / usual,
        lost=sum(lost) / DRAWS,
    )


def _took(dice: random.Random, work: float, often: float, loss: FailureCost) -> float:
    """Draw how long it takes once; what begins again each time has no average that says much."""
    expected = _with_failures(work, 1 / often, loss)
    if loss.interval is None and expected < work + FEW / often:
        took, fails = 0.0, dice.expovariate(often)
        while fails < work:
            took, fails = took + fails + loss.again, dice.expovariate(often)
        return took + work
    mean = min(expected * often, 1e6)
    return work + (expected - work) * (_poisson(dice, mean) / mean if mean > 0 else 0.0)


def _with_failures(work: float, between: float, loss: FailureCost) -> float:
    """Return how long work takes on average where it fails now and then."""
    interval = max(min(work if loss.interval is None else loss.interval, work), SHORTEST)
    share = goodput.share_of_work(interval, 0.0, min(loss.again, between), between)
    return min(work / share, NEVER) if share > 0 else NEVER


def _poisson(dice: random.Random, mean: float) -> int:
    """Draw how many there are; many are drawn as a normal distribution has them."""
    if mean > 50:  # noqa: PLR2004 - from here on the two are alike
        return max(0, round(dice.gauss(mean, math.sqrt(mean))))
    level, count, product = math.exp(-mean), 0, dice.random()
    while product > level:
        product *= dice.random()
        count += 1
    return count
