"""Which way comes first, and why; docs/decisions/0015 says how.

With a deadline: what keeps it comes before what does not, and the better chance before the worse.
Then what needs no other model and no change in the script; then what was tried here, then what is
free, then the sooner end, where an end that is unsure counts as later, by the risk. What is likely
to cost more than the budget comes after what is not, unless only it has a chance.
"""

from __future__ import annotations

import math

from rocsteady.plan import Basis, Risk, Way

SURE = 0.9  # a chance that counts as "in time"
GETS_THERE = {Risk.LOW: 0.97, Risk.MEDIUM: 0.75, Risk.HIGH: 0.35}  # our own weights, not measured
AS_GOOD = 1.08  # times as late: no later
FAR = 1e9  # seconds: later than any end
A_CHANCE = 0.05  # less is none


def ranked(ways: list[Way], *, budget: float | None) -> list[Way]:
    """Return the ways, the best first; of two that end as soon, the one with fewer GPUs to fail."""
    found = sorted(ways, key=lambda way: _key(way, budget))
    for number in range(len(found) - 1, 0, -1):
        before, way = found[number - 1], found[number]
        alike = _key(before, budget)[:-1] == _key(way, budget)[:-1]
        if alike and _gpus(way) < _gpus(before) and _as_soon(way, before):
            found[number - 1 : number + 1] = way, before
    return found


def score(way: Way) -> float:
    """Return the seconds until it is done, later by its risk."""
    if way.finish is None:  # then only the pace tells
        return FAR / max(way.pace.rate, 1 / FAR) if way.pace else FAR**2
    return way.finish.seconds / GETS_THERE[way.risk]


def in_time(way: Way) -> bool:
    """Tell whether it can be counted on for the deadline; without one it always can."""
    if way.finish is None:
        return False
    return way.finish.in_time is None or way.finish.in_time >= SURE


def likely_cost(way: Way) -> float | None:
    """Return what a way costs if it takes as long as is most likely; None: nothing."""
    if way.cost is None:
        return None
    low, high = way.cost
    if way.price is None or way.finish is None:
        return math.sqrt(max(low, 0.01) * max(high, 0.01))
    by_hand = sum(way.setup) / 2 * 60 if way.setup else 0.0
    likely = way.price.dollars * (way.finish.seconds - by_hand) / 3600
    return min(max(likely, low), high)


def too_dear(way: Way, budget: float | None) -> bool:
    """Tell whether a way is likely to cost more than there is; that it may is not enough."""
    cost = likely_cost(way)
    return cost is not None and budget is not None and cost > budget


def _key(way: Way, budget: float | None) -> tuple[float, ...]:
    has_deadline = way.finish is not None and way.finish.in_time is not None
    chance = round(way.finish.in_time or 0.0, 2) if way.finish and has_deadline else 0.0
    seconds = score(way)
    if not has_deadline:  # then time is all there is to weigh money and changes against
        seconds *= (2 if way.cost else 1) * (3 if way.changes else 1)
        if way.basis is Basis.ESTIMATE:
            seconds *= 1.5
        return (2 if way.finish is None else 0, too_dear(way, budget), seconds)
    if not in_time(way):
        dear = too_dear(way, budget)
        hopeless = chance < A_CHANCE
        return (1, hopeless, dear, -round(chance, 1), way.cost is not None, seconds)
    return (
        0,
        too_dear(way, budget),
        bool(way.changes),
        way.basis is Basis.ESTIMATE,
        way.cost is not None,
        seconds,
    )


def _gpus(way: Way) -> float:
    return math.inf if way.strategy.gpus is None else len(way.strategy.gpus)


def _as_soon(way: Way, other: Way) -> bool:
    """Tell whether an end is no later than another, as far as trials can tell."""
    first, second = way.finish, other.finish
    if first is None or second is None:
        return False
    close = first.seconds <= second.seconds * AS_GOOD
    return close or first.early <= second.late
