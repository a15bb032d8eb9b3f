"""What would change a decision: how far figures may move until another option is better."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import tzinfo

from rocsteady.plan import Basis, Option, Plan
from rocsteady.planner.estimates import UNKNOWN_SETUP
from rocsteady.planner.ranking import in_time, too_dear
from rocsteady.report.option import rate
from rocsteady.report.times import full_moment
from rocsteady.wording import CENT, money

HOUR = 3600


def tipping_points(plan: Plan, zone: tzinfo | None = None) -> tuple[str, ...]:
    """Say for the first option, and for those that it is preferred to, what would turn it."""
    if not plan.options:
        return ()
    first, *others = plan.options
    faster = (_faster(option, first, plan) for option in others)
    return tuple(
        sentence
        for sentence in (
            _too_slow(first, plan),
            _too_early(first, plan, zone),
            _price(first, plan),
            *_later(first, others, plan, zone),
            *(_budget(option, plan) for option in others),
            *list(filter(None, faster))[:2],
            *(f'A trial of "{option.title}", which was not measured.' for option in plan.not_tried),
            *_fixed(plan),
        )
        if sentence
    )


def by_hand(option: Option) -> float:
    """Return the seconds of set-up that its forecast includes."""
    unknown = UNKNOWN_SETUP if option.basis is Basis.ESTIMATE else 0.0
    return (sum(option.setup) / 2 if option.setup else unknown) * 60


def _too_slow(first: Option, plan: Plan) -> str:
    if plan.deadline is None or plan.left is None or not (first.pace and first.finish):
        return ""
    hours = plan.deadline - plan.made - by_hand(first)
    least = plan.left / (hours * (1 - min(first.finish.lost, 0.99))) if hours > 0 else 0.0
    if not 0 < least < first.pace.rate:
        return ""
    return (
        f"Option {first.number} misses the deadline if it makes fewer than {rate(least)} steps/s;"
        f" the plan expects {rate(first.pace.rate)}."
    )


def _too_early(first: Option, plan: Plan, zone: tzinfo | None) -> str:
    if plan.deadline is None or not (first.finish and in_time(first)):
        return ""
    late = full_moment(plan.made + first.finish.late, now=plan.made, zone=zone)
    return f"A deadline before {late}: option {first.number} may then be late."


def _price(first: Option, plan: Plan) -> str:
    if first.price is None or plan.budget is None or first.finish is None:
        return ""
    hours = max(first.finish.late - by_hand(first), 1.0) / HOUR
    return (
        f"A price of more than ${plan.budget / hours:,.2f} an hour for option {first.number}, which"
        f" may then cost more than the budget; the plan has ${first.price.dollars:,.2f}."
    )


def _later(first: Option, others: list[Option], plan: Plan, zone: tzinfo | None) -> Iterator[str]:
    """Name the first option that changes less or costs less, and only lacks time."""
    for option in others:
        gains = bool(first.cost and not option.cost) or bool(first.changes and not option.changes)
        if plan.deadline is not None and gains and option.finish and not in_time(option):
            late = full_moment(plan.made + option.finish.late, now=plan.made, zone=zone)
            yield f"A deadline after {late}: option {option.number} would be on time as well."
            return


def _budget(option: Option, plan: Plan) -> str:
    if not option.cost or not too_dear(option, plan.budget):
        return ""
    unit = 1 if option.cost[1] >= 1 else CENT
    enough = unit * math.ceil(option.cost[1] / unit)
    return f"A budget of {money(enough)}: it would pay for option {option.number}."


def _faster(option: Option, first: Option, plan: Plan) -> str:
    """Say from which pace on an estimate would finish before the first option."""
    if option.basis is not Basis.ESTIMATE or not (option.pace and first.finish and plan.left):
        return ""
    seconds = first.finish.seconds - by_hand(option)
    if seconds <= 0:
        return ""
    low, high, enough = map(rate, (option.pace.low, option.pace.high, plan.left / seconds))
    if option.pace.rate > plan.left / seconds:
        return (
            f"Option {option.number} would finish before option {first.number} if its estimate of"
            f" {low} to {high} steps/s is right; it needs more than {enough}."
        )
    return (
        f"Option {option.number} is an estimate of {low} to {high} steps/s. Measured at more than"
        f" {enough}, it would finish before option {first.number}."
    )


def _fixed(plan: Plan) -> Iterator[str]:
    for option in plan.ruled_out:
        if option.id.startswith(("gpu", "cpu")) and option.rests_on:
            yield f'"{option.title}", if this is fixed: {option.rests_on[0].rstrip(".")}.'
