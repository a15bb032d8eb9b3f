"""The decision page of a plan: options, chances, risks, dates, today's list, what would change it.

Everything comes from the plan, redacted as a report is, so that the page can be sent.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import tzinfo
from typing import NamedTuple

import msgspec

from rocsteady.doctor.knowledge.reader import load_knowledge
from rocsteady.model import Value
from rocsteady.plan.decision import (
    Change,
    TippingPoint,
    by_hand,
    tipping_points,
)
from rocsteady.plan.ranking import in_time
from rocsteady.plan.trials import SHARE
from rocsteady.plan.values import Basis, Option, Plan
from rocsteady.report.story import UNCONFIRMED
from rocsteady.screens.plan import (
    AGED,
    based_on,
    chain_lines,
    chance,
    cost,
    limits,
    pace,
    priced_on,
    rate,
    setup,
    spread,
    titled,
)
from rocsteady.screens.screen import NO_VALUE
from rocsteady.store.redaction import redactor_here
from rocsteady.typed_values import convert
from rocsteady.wording import duration, full_moment, money, plural

HTML, MARKDOWN = "decision.html.j2", "decision.md.j2"  # templates of the page
OPTIONS = ("", "Option", "Steps/s", "Finishes", "On time", "Cost", "Set-up", "Risk", "Based on")
PROBABILITIES = (
    "Probabilities include the measured speed, observed and expected failures, and the risk that an"
    " estimated option does not work. Ranges are 90 % intervals."
)
MORE_TIME = "rocsteady plan --within 15m"
LONG_JOB = 2 * 3600.0  # seconds
REASONS = 3  # of a risk
LAST_CALLS = 3  # options whose last moment is a date
DETAILED = 6  # options that are drawn, and shown with their details
STATUS = "rocsteady status"


def decision_page(plan: Plan, *, now: float, zone: tzinfo | None = None) -> DecisionPage:
    plan = convert(redactor_here().value(msgspec.to_builtins(plan)), Plan)
    options = tuple(_row(option, plan, zone) for option in plan.options)
    age = now - plan.made
    aged = (f"The plan was {duration(age)} old when this page was written.",) * (age > AGED)
    sections = (
        PageSection(title="Options", items=(PROBABILITIES,), heads=OPTIONS, rows=options),
        PageSection(title="If it goes wrong", items=tuple(chain_lines(plan, now, zone))),
        PageSection(title="Timeline", heads=("When", "What"), rows=tuple(_timeline(plan, zone))),
        PageSection(
            title="What would change the decision",
            items=tuple(_tipping_point(point, plan) for point in tipping_points(plan)),
        ),
        PageSection(title="Where the time goes", items=(limits(plan),) if plan.limits else ()),
        PageSection(title="Ruled out", items=tuple(map(_reason, plan.ruled_out))),
        PageSection(title="Not measured", items=tuple(map(_reason, plan.not_tried))),
        PageSection(title="Sources", items=tuple(_sources(plan)), addresses=True, folded=True),
        PageSection(title="Notes", items=(*aged, *plan.warnings, UNCONFIRMED)),
    )
    best = plan.options[0] if plan.options else None
    details = [_details(option, plan) for option in plan.options[:DETAILED]]
    chosen = f"Recommended: {titled(best)}" if best and plan.recommended else "No recommendation"
    return DecisionPage(
        title=f"Decision: {shlex.join(plan.command)}",
        headline=chosen,
        today=tuple(_today(plan)),
        chart=_chart(plan, zone),
        details=tuple(it for it in details if it.changes or it.failures or it.why or it.steps),
        summary=plan.reasons or plan.take or "No option is left: all are ruled out.",
        facts=tuple(_facts(plan, now, zone)),
        sections=tuple(each for each in sections if each.items or each.rows),
    )


def _facts(plan: Plan, now: float, zone: tzinfo | None) -> Iterator[tuple[str, str]]:
    yield (
        "Plan made",
        f"{full_moment(plan.made, now=now, zone=zone)}, by rocsteady {plan.rocsteady}",
    )
    recorded = f"{plan.machine} (recorded): " if plan.machine else ""
    yield "Machine", f"{recorded}{plan.software}"
    yield "Work left", "not known" if plan.left is None else plural(plan.left, "step")
    due = "none" if plan.deadline is None else full_moment(plan.deadline, now=now, zone=zone)
    past = plan.deadline is not None and plan.deadline < now
    yield "Deadline", f"{due}, which is in the past" if past else due
    yield "Budget", "none" if plan.budget is None else money(plan.budget)
    tried = f"{plural(plan.trials, 'trial')} with {plan.command[0]}, {duration(plan.trial_seconds)}"
    estimates = sum(option.basis is Basis.ESTIMATE for option in plan.options)
    tried = tried if plan.trials else "nothing was tried"
    counted = f"{estimates} of {plural(len(plan.options), 'option')}"
    yield "Measured", f"{tried}; estimated: {counted}"


def _row(option: Option, plan: Plan, zone: tzinfo | None) -> tuple[str, ...]:
    finish, ends = option.finish, NO_VALUE
    on_time = finish.in_time if finish and plan.deadline is not None else None
    if finish:
        off = max(spread(finish), finish.seconds / 50)
        ends = full_moment(plan.made + finish.seconds, now=plan.made, zone=zone, spread=off)
    return (
        str(option.number),
        titled(option),
        pace(option),
        ends,
        NO_VALUE if on_time is None else chance(on_time),
        cost(option),
        _setup(option),
        option.risk.value,
        based_on(option, plan),
    )


def _details(option: Option, plan: Plan) -> OptionDetails:
    """Collect what the table of options has no column for."""
    first = option.number == plan.recommended  # its commands are those of today
    steps = () if first else option.steps
    return OptionDetails(
        title=f"{option.number}. {titled(option)}",
        changes=option.changes,
        failures=", ".join(dict.fromkeys(option.kinds)),
        why=tuple(text.rstrip(".") for text in option.rests_on[:REASONS]),
        steps=(*steps, option.do) if option.do and plan.recommended and not first else steps,
    )


def _chart(plan: Plan, zone: tzinfo | None) -> Chart | None:
    """Draw when each option ends, against the deadline; what ends much later is cut off."""
    shown = [(it, it.finish) for it in plan.options[:DETAILED] if it.finish]
    if not shown:
        return None
    due = None if plan.deadline is None else max(plan.deadline - plan.made, 0.0)
    ends = sorted(finish.late for _, finish in shown)
    span = max(1.1 * (due or 0.0), min(ends[-1], 4 * max(due or 0.0, ends[0])), 1.0)

    def place(seconds: float) -> float:
        return round(min(seconds / span, 1.0) * 1000, 1)

    bars = tuple(
        (f"{it.number}. {titled(it)}", place(end.early), place(end.seconds), place(end.late))
        for it, end in shown
    )
    until = full_moment(plan.made + span, now=plan.made, zone=zone, spread=span / 20)
    deadline = None if due is None else place(due)
    return Chart(bars=bars, deadline=deadline, until=until)


def _timeline(plan: Plan, zone: tzinfo | None) -> Iterator[tuple[str, str]]:
    """Yield the dates of the first option, the deadline, and until when options can be chosen."""
    if not plan.options or plan.options[0].finish is None:
        return
    first, finish = plan.options[0], plan.options[0].finish
    name, made, work = f"option {first.number}", plan.made, by_hand(first)
    dates = [(made, f"{'Set-up' if work else 'Start'} of {name}")]
    if work:
        dates.append((made + work, f"Training starts, after the set-up ({_setup(first)})"))
    dates += [
        (made + finish.early, f"Earliest end of {name}"),
        (made + finish.seconds, f"Likely end of {name}"),
        (made + finish.late, f"Latest end of {name}, with 95 %"),
    ]
    if plan.deadline is not None:
        spare = plan.deadline - made - finish.seconds
        side = "after" if spare >= 0 else "before"
        dates.append((plan.deadline, f"Deadline: {duration(abs(spare))} {side} the likely end"))
        chosen = [(it, it.finish) for it in plan.options if it.finish and in_time(it)]
        for option, end in chosen[:LAST_CALLS]:
            instead = "" if option is first else " instead"
            text = f"Last moment to start option {option.number}{instead}"
            dates.append((plan.deadline - end.late, text))
    for at, text in sorted(dates, key=lambda date: date[0]):
        yield full_moment(at, now=made, zone=zone), text


def _today(plan: Plan) -> Iterator[Todo]:
    if plan.left is None:
        yield Todo(
            "Set total in rocsteady.toml and plan again; without it, nothing can be forecast."
        )
    if plan.deadline is None:
        yield Todo(
            "Set deadline in rocsteady.toml and plan again; without one, no option can be late."
        )
    ends = plan.options[0].finish if plan.options else None
    more = ends is None or plan.trial_seconds < SHARE * ends.seconds  # trials may take
    if plan.not_tried and not plan.machine and plan.recommended and more:
        yield Todo("Measure the other options:", (MORE_TIME,))
    if plan.machine:
        yield Todo("On the machine itself: rocsteady doctor, then rocsteady plan, which measures.")
    if not plan.options:
        return
    if plan.recommended:
        yield from _first_steps(plan.options[0], plan.drill_step)
    else:
        measure = MORE_TIME if plan.trials else "rocsteady plan"
        yield Todo("Measure the options, which cannot be compared yet:", (measure,))


def _first_steps(best: Option, drill_step: int) -> Iterator[Todo]:
    if best.price and best.price.old:
        yield Todo(f"Check the price of option {best.number}; it is of {priced_on(best.price)}.")
    if by_hand(best):
        takes = "how long that takes is not known"
        takes = f"{setup(best.setup)} of manual work" if best.setup else takes
        yield Todo(f"Set up option {best.number}: {takes}.")
    if best.basis is Basis.TRIAL:
        drill = f"rocsteady drill --faults kill@{drill_step}"
        yield Todo("Check that the script resumes after a failure:", (drill,))
    first = () if best.basis is Basis.TRIAL else best.steps  # a run of a tried option does them
    if best.do:
        yield Todo(f"Start option {best.number}:", (*first, best.do))
    if best.do and (best.finish is None or best.finish.seconds > LONG_JOB):
        yield Todo("After an hour, compare its pace and its end with this page:", (STATUS,))


def _tipping_point(point: TippingPoint, plan: Plan) -> str:
    option, number, at = point.option, point.option.number, point.threshold
    match point.change:
        case Change.PACE:
            expected = rate(option.pace.rate) if option.pace else NO_VALUE
            text = (
                f"Option {number} misses the deadline if it makes fewer than {rate(at)} steps/s;"
                f" the plan expects {expected}"
            )
        case Change.PRICE:
            now = f"${option.price.dollars:,.2f}" if option.price else NO_VALUE
            text = (
                f"A price of more than ${at:,.2f} an hour for option {number}, which may then"
                f" cost more than the budget; the plan has {now}"
            )
        case _:  # a faster estimate
            low, high = (option.pace.low, option.pace.high) if option.pace else (0.0, 0.0)
            text = (
                f"Option {number} would finish before option {plan.options[0].number} at more than"
                f" {rate(at)} steps/s; its estimate is {rate(low)} to {rate(high)}"
            )
    return f"{text}."


def _setup(option: Option) -> str:
    """Return how long the set-up takes, also where the forecast only assumes it."""
    if option.setup is None and option.finish and by_hand(option):
        return f"{duration(by_hand(option))}, assumed"
    return setup(option.setup)


def _reason(option: Option) -> str:
    return f"{titled(option)}: {option.rests_on[0] if option.rests_on else 'no reason is known'}"


def _sources(plan: Plan) -> Iterator[str]:
    known = load_knowledge().sources
    for key in dict.fromkeys(key for option in plan.options for key in option.sources):
        yield f"{key}: {known[key].url}" if key in known else key


class PageSection(Value, frozen=True, kw_only=True):
    title: str
    items: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    addresses: bool = False  # the items are our own sources, which can be followed
    folded: bool = False  # until somebody opens it


class OptionDetails(Value, frozen=True, kw_only=True):
    title: str
    changes: str
    failures: str  # their kinds
    why: tuple[str, ...]  # what it rests on
    steps: tuple[str, ...]  # commands, in this order


class Todo(NamedTuple):
    text: str
    commands: tuple[str, ...] = ()


class Chart(Value, frozen=True, kw_only=True):
    bars: tuple[tuple[str, float, float, float], ...]
    # of an option its title, and its earliest, likely and latest end in thousandths of the chart
    deadline: float | None
    until: str  # its right edge


class DecisionPage(Value, frozen=True, kw_only=True):
    title: str
    headline: str  # the recommendation by its name
    summary: str
    today: tuple[Todo, ...]
    chart: Chart | None
    details: tuple[OptionDetails, ...]
    facts: tuple[tuple[str, str], ...]
    sections: tuple[PageSection, ...]
