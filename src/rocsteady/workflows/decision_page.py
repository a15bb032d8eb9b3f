"""The decision page of a plan: options, chances, risks, dates, today's list, what would change it.

Everything comes from the plan, redacted as a report is, so that the page can be sent.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import tzinfo

import msgspec

from rocsteady.knowledge.reader import load_knowledge
from rocsteady.plan import Basis, Finish, Option, Plan
from rocsteady.planner.advice import recommends
from rocsteady.planner.ranking import in_time
from rocsteady.redaction.machine_names import redactor_here
from rocsteady.report.option import (
    based_on,
    chance,
    cost,
    pace,
    priced_on,
    setup,
    spread,
    titled,
)
from rocsteady.report.plan import AGED, limits
from rocsteady.report.table import NONE
from rocsteady.report.times import full_moment
from rocsteady.wording import duration, money, plural
from rocsteady.workflows.decision_layout import DecisionPage, PageSection
from rocsteady.workflows.tipping_points import by_hand, tipping_points

OPTIONS = ("", "Option", "Steps/s", "Finishes", "On time", "Cost", "Set-up", "Risk", "Based on")
UNCONFIRMED = "rocsteady's authors have not confirmed any of this on AMD hardware."
CHANCES = (
    "A chance covers the pace, the failures seen and expected, and that an estimate may not work at"
    " all. Intervals are of 90 %."
)
MORE_TIME = "rocsteady plan --within 15m"
NOT_FOUND = ("torch none", "Python none")
REASONS = 3  # of a risk
LAST_CALLS = 3  # options that a timeline says the last moment of


def decision_page(plan: Plan, *, now: float, zone: tzinfo | None = None) -> DecisionPage:
    """Say everything that is needed to decide."""
    plan = msgspec.convert(redactor_here().value(msgspec.to_builtins(plan)), Plan)
    options = tuple(_row(option, plan, zone) for option in plan.options)
    risks = tuple((f"{it.number} {titled(it)}", it.risk.value, _why(it)) for it in plan.options)
    sections = (
        PageSection(title="Options", items=(CHANCES,), heads=OPTIONS, rows=options),
        PageSection(title="Risks", heads=("Option", "Risk", "Why"), rows=risks),
        PageSection(title="Timeline", heads=("When", "What"), rows=tuple(_timeline(plan, zone))),
        PageSection(title="Today", items=tuple(_today(plan))),
        PageSection(title="What would change the decision", items=tipping_points(plan, zone)),
        PageSection(title="Where the time goes", items=(limits(plan),) if plan.limits else ()),
        PageSection(title="Ruled out", items=tuple(map(_reason, plan.ruled_out))),
        PageSection(title="Not measured", items=tuple(map(_reason, plan.not_tried))),
        PageSection(title="Sources", items=tuple(_sources(plan)), addresses=True),
        PageSection(title="Notes", items=(*_age(plan, now), *plan.warnings, UNCONFIRMED)),
    )
    best = plan.options[0] if plan.options else None
    return DecisionPage(
        title=f"Decision: {shlex.join(plan.command)}",
        summary=plan.take or "No option is left: all are ruled out.",
        typed=(best.do if recommends(plan) else _next(plan)) if best else "",
        facts=tuple(_facts(plan, now, zone)),
        sections=tuple(each for each in sections if each.items or each.rows),
    )


def _age(plan: Plan, now: float) -> Iterator[str]:
    if now - plan.made > AGED:
        yield f"The plan was {duration(now - plan.made)} old when this page was written."


def _facts(plan: Plan, now: float, zone: tzinfo | None) -> Iterator[tuple[str, str]]:
    yield (
        "Plan made",
        f"{full_moment(plan.made, now=now, zone=zone)}, by rocsteady {plan.rocsteady}",
    )
    recorded = f"{plan.machine} (recorded): " if plan.machine else ""
    yield "Machine", f"{recorded}{_software(plan)}"
    yield "Work left", "not known" if plan.left is None else plural(plan.left, "step")
    due = "none" if plan.deadline is None else full_moment(plan.deadline, now=now, zone=zone)
    past = plan.deadline is not None and plan.deadline < now
    yield "Deadline", f"{due}, which is in the past" if past else due
    yield "Budget", "none" if plan.budget is None else money(plan.budget)
    tried = f"{plural(plan.trials, 'trial')}, {duration(plan.trial_seconds)}"
    estimates = sum(option.basis is Basis.ESTIMATE for option in plan.options)
    tried = tried if plan.trials else "nothing was tried"
    counted = f"{estimates} of {plural(len(plan.options), 'option')}"
    yield "Measured", f"{tried}; estimated: {counted}"


def _row(option: Option, plan: Plan, zone: tzinfo | None) -> tuple[str, ...]:
    finish = option.finish
    on_time = finish.in_time if finish and plan.deadline is not None else None
    return (
        str(option.number),
        titled(option),
        pace(option),
        _finishes(finish, plan, zone) if finish else NONE,
        NONE if on_time is None else chance(on_time),
        cost(option),
        _setup(option),
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
        dates.append(
            (made + by_hand(first), f"Training starts, after the set-up ({_setup(first)})")
        )
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
        yield full_moment(at, now=made, zone=zone), what


def _today(plan: Plan) -> Iterator[str]:
    """Yield what to do now, in order."""
    if plan.left is None:
        yield "Set total in rocsteady.toml, and plan again: without it nothing can be forecast."
    if plan.deadline is None:
        yield "Set deadline in rocsteady.toml, and plan again: without it no option can be late."
    if plan.not_tried and not plan.machine and recommends(plan):
        yield f"Measure the other options: {MORE_TIME}"
    if plan.machine:
        yield "On the machine itself: rocsteady doctor, then rocsteady plan, which measures."
    if not plan.options:
        return
    if recommends(plan):
        yield from _first_steps(plan.options[0])
    else:
        yield f"Measure the options, which cannot be compared yet: {_next(plan)}"


def _first_steps(best: Option) -> Iterator[str]:
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


def _next(plan: Plan) -> str:
    """Return what would give a recommendation."""
    return MORE_TIME if plan.trials else "rocsteady plan"


def _software(plan: Plan) -> str:
    """Name what was found; a Python that trials ran with was there, found or not."""
    parts = plan.software.split("; ")
    found = [part for part in parts if part not in NOT_FOUND]
    if found == parts or not plan.trials:
        return plan.software
    return "; ".join((*found, f"trials ran with {plan.command[0]}"))


def _finishes(finish: Finish, plan: Plan, zone: tzinfo | None) -> str:
    off = max(spread(finish), finish.seconds / 50)
    return full_moment(plan.made + finish.seconds, now=plan.made, zone=zone, spread=off)


def _setup(option: Option) -> str:
    """Say how long the set-up takes, also where the forecast only assumes it."""
    if option.setup is None and option.finish and by_hand(option):
        return f"{duration(by_hand(option))}, assumed"
    return setup(option.setup)


def _reason(option: Option) -> str:
    return f"{titled(option)}: {option.rests_on[0] if option.rests_on else 'no reason is known'}"


def _sources(plan: Plan) -> Iterator[str]:
    known = load_knowledge().sources
    for key in dict.fromkeys(key for option in plan.options for key in option.sources):
        yield f"{key}: {known[key].url}" if key in known else key
