"""What a plan decides about: the dates of its options, and what would change the decision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum

from rocsteady.model import Value
from rocsteady.plan.estimates import UNKNOWN_SETUP
from rocsteady.plan.ranking import in_time, too_dear
from rocsteady.plan.values import Basis, Option, Plan
from rocsteady.wording import CENT

HOUR = 3600
LAST_CALLS = 3  # options whose last moment is a date
FASTER_ESTIMATES = 2  # that are worth a measurement


def by_hand(option: Option) -> float:
    """Return the seconds of set-up that its forecast includes."""
    unknown = UNKNOWN_SETUP if option.basis is Basis.ESTIMATE else 0.0
    return (sum(option.setup) / 2 if option.setup else unknown) * 60


class Milestone(Enum):
    BEGIN = "begin"
    TRAINING = "training"  # after the set-up
    EARLIEST_END = "earliest end"
    LIKELY_END = "likely end"
    LATEST_END = "latest end"
    DEADLINE = "deadline"
    LAST_CALL = "last call"  # an option that starts later may miss the deadline


class PlanDate(Value, frozen=True, kw_only=True):
    at: float
    milestone: Milestone
    option: Option


def timeline(plan: Plan) -> tuple[PlanDate, ...]:
    """Return the dates of the first option, the deadline, and until when options can be chosen."""
    if not plan.options or plan.options[0].finish is None:
        return ()
    first, finish = plan.options[0], plan.options[0].finish
    dates = [(plan.made, Milestone.BEGIN, first)]
    if by_hand(first):
        dates.append((plan.made + by_hand(first), Milestone.TRAINING, first))
    for after, milestone in (
        (finish.early, Milestone.EARLIEST_END),
        (finish.seconds, Milestone.LIKELY_END),
        (finish.late, Milestone.LATEST_END),
    ):
        dates.append((plan.made + after, milestone, first))
    if plan.deadline is not None:
        dates.append((plan.deadline, Milestone.DEADLINE, first))
        chosen = [it for it in plan.options if it.finish and in_time(it)]
        dates += [
            (plan.deadline - it.finish.late, Milestone.LAST_CALL, it)
            for it in chosen[:LAST_CALLS]
            if it.finish
        ]
    ordered = sorted(dates, key=lambda date: date[0])
    return tuple(PlanDate(at=at, milestone=what, option=option) for at, what, option in ordered)


class Change(Enum):
    """What could change so that another option is better."""

    PACE = "pace"  # steps a second, below which the first option misses the deadline
    EARLIER_DEADLINE = "earlier deadline"
    LATER_DEADLINE = "later deadline"
    PRICE = "price"  # dollars an hour
    BUDGET = "budget"  # dollars
    ESTIMATE = "estimate"  # steps a second, above which an estimated option is faster
    TRIAL = "trial"
    FIX = "fix"


class TippingPoint(Value, frozen=True, kw_only=True):
    change: Change
    option: Option
    threshold: float | None = None  # dollars, steps a second, or a moment


def tipping_points(plan: Plan) -> Iterator[TippingPoint]:
    """Yield what would speak against the first option, or for another one."""
    if not plan.options:
        return
    first, *others = plan.options
    found = [
        (Change.PACE, first, _least_pace(first, plan)),
        (Change.EARLIER_DEADLINE, first, _earliest_deadline(first, plan)),
        (Change.PRICE, first, _highest_price(first, plan)),
        *[(Change.LATER_DEADLINE, it, _later_deadline(it, first, plan)) for it in others],
        *[(Change.BUDGET, it, _enough_budget(it, plan)) for it in others],
        *[(Change.ESTIMATE, it, _pace_to_be_first(it, first, plan)) for it in others],
    ]
    most = {Change.LATER_DEADLINE: 1, Change.ESTIMATE: FASTER_ESTIMATES}
    for change in Change:
        known = [it for it in found if it[0] is change and it[2] is not None]
        for _, option, threshold in known[: most.get(change, len(known))]:
            yield TippingPoint(change=change, option=option, threshold=threshold)
    for option in plan.not_tried:
        yield TippingPoint(change=Change.TRIAL, option=option)
    for option in plan.ruled_out:
        if option.id.startswith(("gpu", "cpu")) and option.rests_on:
            yield TippingPoint(change=Change.FIX, option=option)


def _least_pace(first: Option, plan: Plan) -> float | None:
    if plan.deadline is None or plan.left is None or not (first.pace and first.finish):
        return None
    seconds = plan.deadline - plan.made - by_hand(first)
    least = plan.left / (seconds * (1 - min(first.finish.lost, 0.99))) if seconds > 0 else 0.0
    return least if 0 < least < first.pace.rate else None


def _earliest_deadline(first: Option, plan: Plan) -> float | None:
    if plan.deadline is None or not (first.finish and in_time(first)):
        return None
    return plan.made + first.finish.late


def _highest_price(first: Option, plan: Plan) -> float | None:
    if first.price is None or plan.budget is None or first.finish is None:
        return None
    return plan.budget / (max(first.finish.late - by_hand(first), 1.0) / HOUR)


def _later_deadline(option: Option, first: Option, plan: Plan) -> float | None:
    """Return when an option that changes less or costs less, and only lacks time, would do."""
    gains = bool(first.cost and not option.cost) or bool(first.changes and not option.changes)
    if plan.deadline is None or not gains or not option.finish or in_time(option):
        return None
    return plan.made + option.finish.late


def _enough_budget(option: Option, plan: Plan) -> float | None:
    if not option.cost or not too_dear(option, plan.budget):
        return None
    unit = 1 if option.cost[1] >= 1 else CENT
    return unit * math.ceil(option.cost[1] / unit)


def _pace_to_be_first(option: Option, first: Option, plan: Plan) -> float | None:
    """Return the pace from which on an estimate would finish before the first option."""
    if option.basis is not Basis.ESTIMATE or not (option.pace and first.finish and plan.left):
        return None
    seconds = first.finish.seconds - by_hand(option)
    return plan.left / seconds if seconds > 0 else None
