"""The decision page of a plan: options, chances, risks, dates, today's list, what would change it.

Everything comes from the plan, redacted as a report is, so that the page can be sent.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import tzinfo

import msgspec

from rocsteady.knowledge.reader import load_knowledge
from rocsteady.plan import Basis, Option, Plan
from rocsteady.planner.ranking import in_time
from rocsteady.redaction.machine_names import redactor_here
from rocsteady.report.option import (
    based_on,
    chance,
    cost,
    finishes,
    pace,
    priced_on,
    setup,
    titled,
)
from rocsteady.report.plan import AGED, limits
from rocsteady.report.table import NONE
from rocsteady.report.times import moment
from rocsteady.wording import duration, plural
from rocsteady.workflows.decision_layout import DecisionPage, Section
from rocsteady.workflows.tipping_points import by_hand, tipping_points

OPTIONS = ("", "Option", "Steps/s", "Finishes", "On time", "Cost", "Set-up", "Risk", "Based on")
UNCONFIRMED = "rocsteady's authors have not confirmed any of this on AMD hardware."
CHANCES = (
    "A chance covers the pace, the failures seen and expected, and that an estimate may not work at"
    " all. Intervals are of 90 %."
)
REASONS = 3  # of a risk
LAST_CALLS = 3  # options that a timeline says the last moment of


def decision_page(plan: Plan, *, now: float, zone: tzinfo | None = None) -> DecisionPage:
    """Say everything that is needed to decide."""
    plan = msgspec.convert(redactor_here().value(msgspec.to_builtins(plan)), Plan)
    options = tuple(_row(option, plan, now, zone) for option in plan.options)
    risks = tuple((f"{it.number} {titled(it)}", it.risk.value, _why(it)) for it in plan.options)
    sections = (
        Section(title="Options", items=(CHANCES,), heads=OPTIONS, rows=options),
        Section(title="Risks", heads=("Option", "Risk", "Why"), rows=risks),
        Section(title="Timeline", heads=("When", "What"), rows=tuple(_timeline(plan, zone))),
        Section(title="Today", items=tuple(_today(plan))),
        Section(title="What would change the decision", items=tipping_points(plan, zone)),
        Section(title="Where the time goes", items=(limits(plan),) if plan.limits else ()),
        Section(title="Ruled out", items=tuple(map(_reason, plan.ruled_out))),
        Section(title="Not tried", items=tuple(map(_reason, plan.not_tried))),
        Section(title="Sources", items=tuple(_sources(plan))),
        Section(title="Notes", items=(*_age(plan, now), *plan.warnings, UNCONFIRMED)),
    )
    best = plan.options[0] if plan.options else None
    return DecisionPage(
        title=f"Decision: {shlex.join(plan.command)}",
        summary=plan.take or "No option is left: all are ruled out.",
        typed=best.do if best else "",
        facts=tuple(_facts(plan, now, zone)),
        sections=tuple(each for each in sections if each.items or each.rows),
    )


def _age(plan: Plan, now: float) -> Iterator[str]:
    if now - plan.made > AGED:
        yield f"The plan was {duration(now - plan.made)} old when this page was written."


def _facts(plan: Plan, now: float, zone: tzinfo | None) -> Iterator[tuple[str, str]]:
    yield "Plan made", f"{moment(plan.made, now=now, zone=zone)}, by rocsteady {plan.rocsteady}"
    recorded = f"{plan.machine} (recorded): " if plan.machine else ""
    yield "Machine", f"{recorded}{plan.software}"
    yield "Work left", "not known" if plan.left is None else plural(plan.left, "step")
    due = "none" if plan.deadline is None else moment(plan.deadline, now=now, zone=zone)
    yield "Deadline", due
    yield "Budget", "none" if plan.budget is None else f"${plan.budget:,.0f}"
    tried = f"{plural(plan.trials, 'trial')}, {duration(plan.trial_seconds)}"
    estimates = sum(option.basis is Basis.ESTIMATE for option in plan.options)
    tried = tried if plan.trials else "nothing was tried"
    counted = f"{estimates} of {plural(len(plan.options), 'option')}"
    yield "Measured", f"{tried}; estimated: {counted}"


def _row(option: Option, plan: Plan, now: float, zone: tzinfo | None) -> tuple[str, ...]:
    finish = option.finish
    on_time = finish.in_time if finish and plan.deadline is not None else None
    return (
        str(option.number),
        titled(option),
        pace(option),
        finishes(finish, plan.made, now, zone) if finish else NONE,
        NONE if on_time is None else chance(on_time),
        cost(option),
        setup(option.setup),
        option.risk.value,
        based_on(option, plan),
    )


def _why(option: Option) -> str:
    """Say what a risk rests on: failures, what is changed, and the first reasons."""
    said = [f"failures seen: {', '.join(dict.fromkeys(option.kinds))}"] if option.kinds else []
    if option.finish and round(option.finish.failures):
        said.append(f"about {option.finish.failures:,.0f} failures expected")
    if option.changes:
        said.append(f"changes: {option.changes}")
    return "; ".join(text.rstrip(".") for text in (*said, *option.rests_on[:REASONS]))


def _timeline(plan: Plan, zone: tzinfo | None) -> Iterator[tuple[str, str]]:
    """Yield the dates of the first option, the deadline, and until when others can be chosen."""
    if not plan.options or plan.options[0].finish is None:
        return
    first, finish, made = plan.options[0], plan.options[0].finish, plan.made
    name = f"option {first.number}"
    dates = [(made, f"{'Set-up' if by_hand(first) else 'Start'} of {name}")]
    if by_hand(first):
        assumed = setup(first.setup) if first.setup else f"{duration(by_hand(first))}, assumed"
        dates.append((made + by_hand(first), f"Training starts, after the set-up ({assumed})"))
    dates.append((made + finish.early, f"Earliest end of {name}"))
    dates.append((made + finish.seconds, f"Likely end of {name}"))
    dates.append((made + finish.late, f"Latest end of {name}, with 95 %"))
    if plan.deadline is not None:
        spare = plan.deadline - made - finish.seconds
        after = "after" if spare >= 0 else "before"
        dates.append((plan.deadline, f"Deadline: {duration(abs(spare))} {after} the likely end"))
        others = [it for it in plan.options[1:] if it.finish and in_time(it)]
        dates += [
            (plan.deadline - it.finish.late, f"Last moment to start option {it.number} instead")
            for it in others[:LAST_CALLS]
            if it.finish
        ]
    for at, what in sorted(dates):
        yield moment(at, now=made, zone=zone), what


def _today(plan: Plan) -> Iterator[str]:
    """Yield what to do now, in order."""
    if plan.left is None:
        yield "Set total in rocsteady.toml, and plan again: without it nothing can be forecast."
    if plan.deadline is None:
        yield "Set deadline in rocsteady.toml, and plan again: without it no option can be late."
    if plan.not_tried:
        yield "Measure what was not tried: rocsteady plan --within 15m"
    if plan.machine:
        yield "On the machine itself: rocsteady doctor, then rocsteady plan, which measures."
    best = plan.options[0] if plan.options else None
    if best is None:
        return
    if best.price and best.price.old:
        yield f"Check the price of option {best.number}; it is of {priced_on(best.price)}."
    if by_hand(best):
        takes = "how long that takes is not known"
        takes = f"{setup(best.setup)} of manual work" if best.setup else takes
        yield f"Set up option {best.number}: {takes}."
    if best.basis is Basis.TRIAL:
        yield "Check that the script resumes after a failure: rocsteady drill"
    if best.do:
        yield f"Start option {best.number}: {best.do}"
        yield "After an hour, compare its pace and its end with this page: rocsteady runs"


def _reason(option: Option) -> str:
    return f"{titled(option)}: {option.rests_on[0] if option.rests_on else 'no reason is known'}"


def _sources(plan: Plan) -> Iterator[str]:
    known = load_knowledge().sources
    for key in dict.fromkeys(key for option in plan.options for key in option.sources):
        yield f"{key}: {known[key].url}" if key in known else key
