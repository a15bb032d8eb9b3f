"""Which option comes first, and why; docs/decisions/0015 says how.

With a deadline: what keeps it comes before what does not, and the better chance before the worse.
Then what needs no other model and no change in the script; then what was tried here, then what is
free, then the sooner end, where an end that is unsure counts as later, by the risk. What is likely
to cost more than the budget comes after what is not, unless only it has a chance.
"""

from __future__ import annotations

import math

from rocsteady.plan import Basis, Option, Risk

SURE = 0.9  # a chance that counts as "in time"
GETS_THERE = {Risk.LOW: 0.97, Risk.MEDIUM: 0.75, Risk.HIGH: 0.35}  # our own weights, not measured
AS_GOOD = 1.08  # times as late: no later
FAR = 1e9  # seconds: later than any end
A_CHANCE = 0.05  # less is none


def ranked(options: list[Option], *, budget: float | None) -> list[Option]:
    """Sort the options, best first; of two that end together, prefer the one with fewer GPUs."""
    found = sorted(options, key=lambda option: _key(option, budget))
    for number in range(len(found) - 1, 0, -1):
        before, option = found[number - 1], found[number]
        alike = _key(before, budget)[:-1] == _key(option, budget)[:-1]
        if alike and _gpus(option) < _gpus(before) and _as_soon(option, before):
            found[number - 1 : number + 1] = option, before
    return found


def score(option: Option) -> float:
    """Return the seconds until it is done, later by its risk."""
    if option.finish is None:  # then only the pace tells
        return FAR / max(option.pace.rate, 1 / FAR) if option.pace else FAR**2
    return option.finish.seconds / GETS_THERE[option.risk]


def in_time(option: Option) -> bool:
    """Tell whether it can be counted on for the deadline; without one it always can."""
    if option.finish is None:
        return False
    return option.finish.in_time is None or option.finish.in_time >= SURE


def likely_cost(option: Option) -> float | None:
    """Return what an option costs if it takes as long as is most likely; None: nothing."""
    if option.cost is None:
        return None
    low, high = option.cost
    if option.price is None or option.finish is None:
        return math.sqrt(max(low, 0.01) * max(high, 0.01))
    by_hand = sum(option.setup) / 2 * 60 if option.setup else 0.0
    likely = option.price.dollars * (option.finish.seconds - by_hand) / 3600
    return min(max(likely, low), high)


def too_dear(option: Option, budget: float | None) -> bool:
    """Tell whether an option is likely to cost more than there is; that it may is not enough."""
    cost = likely_cost(option)
    return cost is not None and budget is not None and cost > budget


def _key(option: Option, budget: float | None) -> tuple[float, ...]:
    has_deadline = option.finish is not None and option.finish.in_time is not None
    chance = round(option.finish.in_time or 0.0, 2) if option.finish and has_deadline else 0.0
    seconds = score(option)
    if not has_deadline:  # then time is all there is to weigh money and changes against
        seconds *= (2 if option.cost else 1) * (3 if option.changes else 1)
        if option.basis is Basis.ESTIMATE:
            seconds *= 1.5
        return (2 if option.finish is None else 0, too_dear(option, budget), seconds)
    if not in_time(option):
        dear = too_dear(option, budget)
        hopeless = chance < A_CHANCE
        return (1, hopeless, dear, -round(chance, 1), option.cost is not None, seconds)
    return (
        0,
        too_dear(option, budget),
        bool(option.changes),
        option.basis is Basis.ESTIMATE,
        option.cost is not None,
        seconds,
    )


def _gpus(option: Option) -> float:
    return math.inf if option.strategy.gpus is None else len(option.strategy.gpus)


def _as_soon(option: Option, other: Option) -> bool:
    """Tell whether an end is no later than another, as far as trials can tell."""
    first, second = option.finish, other.finish
    if first is None or second is None:
        return False
    close = first.seconds <= second.seconds * AS_GOOD
    return close or first.early <= second.late
