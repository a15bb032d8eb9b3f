"""The recommendation: one sentence with its reason."""

from __future__ import annotations

from collections.abc import Sequence

from rocsteady.plan import Basis, Plan, Risk, Way
from rocsteady.planner.ranking import in_time, too_dear
from rocsteady.report.when import spelled

SURE = 0.995
WORTH_A_WORD = 1.1  # times as long
PLAIN = ("gpu", "cpu")  # what a person would do without a plan


def take(plan: Plan) -> str:
    """Say which way to take, and why."""
    if not plan.ways:
        return "No way was found that gets it done; the reasons stand above."
    first = plan.ways[0]
    reasons = [reason for reason in _reasons(first, plan) if reason]
    return f"Take {first.number}: {', and '.join(reasons[:3])}."


def _reasons(first: Way, plan: Plan) -> Sequence[str]:
    return (_what_failed(first, plan), _deadline(first, plan), _second(first, plan))


def _what_failed(first: Way, plan: Plan) -> str:
    """Say why a plainer way is not taken."""
    for way in plan.ways:
        failures = [it for it in way.rests_on[:1] if "failure" in it and way.risk is not Risk.LOW]
        if way.id in PLAIN and way.id != first.id and failures:
            clause = next(part for part in failures[0].split("; ") if "failure" in part)
            return f"{way.title} had {clause}"
    for way in plan.ruled_out:
        if way.id in PLAIN and way.id != first.id and way.rests_on:
            return f"{way.title} is ruled out ({way.rests_on[0].rstrip('.')})"
    if first.basis is Basis.TRIAL:
        return "it was tried here and works"
    tried = [way for way in plan.ways if way.basis is Basis.TRIAL]
    if not tried:
        return "nothing that was tried here works"
    if all(way.changes for way in tried):
        return "what was tried here and works is not the same job"
    same = " and is the same job" if any(way.changes for way in tried) else ""
    late = first.finish is not None and first.finish.in_time is not None
    return f"what was tried here{same} works, but {'not in time' if late else 'is slower'}"


def _deadline(first: Way, plan: Plan) -> str:
    if first.finish is None:
        return ""
    if first.finish.in_time is None:
        return ""
    chance = first.finish.in_time
    if chance >= SURE and plan.deadline is not None:
        spare = plan.deadline - plan.made - first.finish.seconds
        return f"it is in time, with {spelled(max(0.0, spare))} to spare"
    if in_time(first):
        return f"it is in time with {100 * chance:.0f} %"
    dear = " within the budget" if plan.budget is not None else ""
    return f"no way{dear} is sure to be in time; this one has {100 * chance:.0f} %"


def _second(first: Way, plan: Plan) -> str:
    """Hold it against the next one."""
    if len(plan.ways) < 2:  # noqa: PLR2004 - there is no other
        return ""
    second = plan.ways[1]
    if too_dear(second, plan.budget):
        return f"{second.number} may cost more than the budget"
    if first.finish is None or second.finish is None:
        return ""
    if second.changes and second.finish.seconds < first.finish.seconds:
        return f"{second.number} would be sooner but is not the same job ({second.changes})"
    return _how_long(first.finish.seconds, second, second.finish.seconds)


def _how_long(first: float, second: Way, seconds: float) -> str:
    ratio = seconds / max(first, 1.0)
    if ratio > WORTH_A_WORD:
        return f"{second.number} takes {ratio:.1f} times as long"
    if ratio * WORTH_A_WORD < 1:
        risk = f"its risk is {second.risk.value}"
        unsure = "it is an estimate" if second.basis is Basis.ESTIMATE else risk
        return (
            f"{second.number} may be sooner, but {unsure}{' and costs money' * bool(second.cost)}"
        )
    return f"{second.number} takes about as long"
