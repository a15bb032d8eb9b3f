"""What would change the decision of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from rocsteady.model import Value
from rocsteady.plan.estimates import UNKNOWN_SETUP
from rocsteady.plan.values import Basis, Option, Plan

HOUR = 3600
FASTER_ESTIMATES = 2  # that are worth a measurement


def by_hand(option: Option) -> float:
    """Return the seconds of set-up that its forecast includes."""
    unknown = UNKNOWN_SETUP if option.basis is Basis.ESTIMATE else 0.0
    return (sum(option.setup) / 2 if option.setup else unknown) * 60


class Change(Enum):
    """What could change so that another option is better."""

    PACE = "pace"  # steps a second, below which the first option misses the deadline
    PRICE = "price"  # dollars an hour
    ESTIMATE = "estimate"  # steps a second, above which an estimated option is faster


class TippingPoint(Value, frozen=True, kw_only=True):
    change: Change
    option: Option
    threshold: float  # dollars, or steps a second


def tipping_points(plan: Plan) -> Iterator[TippingPoint]:
    """Yield what would speak against the first option, or for another one."""
    if not plan.options:
        return
    first, *others = plan.options
    faster = [(Change.ESTIMATE, it, _pace_to_be_first(it, first, plan)) for it in others]
    known = [each for each in faster if each[2] is not None]
    for change, option, threshold in (
        (Change.PACE, first, _least_pace(first, plan)),
        (Change.PRICE, first, _highest_price(first, plan)),
        *known[:FASTER_ESTIMATES],
    ):
        if threshold is not None:
            yield TippingPoint(change=change, option=option, threshold=threshold)


def _least_pace(first: Option, plan: Plan) -> float | None:
    if plan.deadline is None or plan.left is None or not (first.pace and first.finish):
        return None
    seconds = plan.deadline - plan.made - by_hand(first)
    least = plan.left / (seconds * (1 - min(first.finish.lost, 0.99))) if seconds > 0 else 0.0
    return least if 0 < least < first.pace.rate else None


def _highest_price(first: Option, plan: Plan) -> float | None:
    if first.price is None or plan.budget is None or first.finish is None:
        return None
    return plan.budget / (max(first.finish.late - by_hand(first), 1.0) / HOUR)


def _pace_to_be_first(option: Option, first: Option, plan: Plan) -> float | None:
    """Return the pace from which on an estimate would finish before the first option."""
    if option.basis is not Basis.ESTIMATE or not (option.pace and first.finish and plan.left):
        return None
    seconds = first.finish.seconds - by_hand(option)
    return plan.left / seconds if seconds > 0 else None
