"""The decision page of a plan: options, chances, risks, dates, today's list, what would change it.

Everything comes from the plan, redacted as a report is, so that the page can be sent.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from datetime import tzinfo
from enum import Enum

import msgspec

from rocsteady.doctor.knowledge.reader import load_knowledge
from rocsteady.model import Risk, Value
from rocsteady.plan.estimates import UNKNOWN_SETUP
from rocsteady.plan.ranking import in_time, is_rented, too_dear
from rocsteady.plan.trials import SHARE
from rocsteady.plan.values import Basis, Finish, Option, Plan
from rocsteady.report.pages import render_template
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
from rocsteady.screens.screen import NONE
from rocsteady.store.redaction import redactor_here
from rocsteady.wording import CENT, duration, full_moment, money, plural

OPTIONS = ("", "Option", "Steps/s", "Finishes", "On time", "Cost", "Set-up", "Risk", "Based on")
PROBABILITIES = (
    "Probabilities include the measured speed, observed and expected failures, and the risk that an"
    " estimated option does not work. Ranges are 90 % intervals."
)
MORE_TIME = "rocsteady plan --within 15m"
LONG = 2 * 3600.0  # seconds
NOT_FOUND = ("torch none", "Python none")
REASONS = 3  # of a risk
CARDS = 6  # options that are shown with their pros and cons
LAST_CALLS = 3  # options whose last moment is on the timeline
HOUR = 3600


def decision_page(plan: Plan, *, now: float, zone: tzinfo | None = None) -> DecisionPage:
    plan = msgspec.convert(redactor_here().value(msgspec.to_builtins(plan)), Plan)
    options = tuple(_row(option, plan, zone) for option in plan.options)
    sections = (
        PageSection(title="Options", items=(PROBABILITIES,), heads=OPTIONS, rows=options),
        PageSection(title="If it goes wrong", items=tuple(chain_lines(plan, now, zone))),
        PageSection(title="Timeline", heads=("When", "What"), rows=tuple(_timeline(plan, zone))),
        PageSection(title="Today", items=tuple(_today(plan))),
        PageSection(
            title="What would change the decision",
            items=tuple(point.text for point in tipping_points(plan, zone)),
        ),
        PageSection(title="Where the time goes", items=(limits(plan),) if plan.limits else ()),
        PageSection(title="Ruled out", items=tuple(map(_reason, plan.ruled_out))),
        PageSection(title="Not measured", items=tuple(map(_reason, plan.not_tried))),
        PageSection(title="Sources", items=tuple(_sources(plan)), addresses=True, folded=True),
        PageSection(title="Notes", items=(*_age(plan, now), *plan.warnings, UNCONFIRMED)),
    )
    best = plan.options[0] if plan.options else None
    chosen = f"Recommended: {titled(best)}" if best and plan.recommended else "No recommendation"
    return DecisionPage(
        title=f"Decision: {shlex.join(plan.command)}",
        headline=chosen,
        steps=best.steps if best and plan.recommended and best.basis is not Basis.TRIAL else (),
        chart=_chart(plan, zone),
        cards=tuple(_card(option, plan, zone) for option in plan.options[:CARDS]),
        summary=plan.reasons or plan.take or "No option is left: all are ruled out.",
        command=(best.do if plan.recommended else _next(plan)) if best else "",
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


def _card(option: Option, plan: Plan, zone: tzinfo | None) -> OptionCard:
    return OptionCard(
        title=f"{option.number}. {titled(option)}",
        pros=tuple(_pros(option)),
        cons=tuple(_cons(option, plan)),
        steps=(*option.steps, *([option.do] if option.do and plan.recommended else [])),
        who=tuple(_who(option, plan, zone)),
        why=tuple(text.rstrip(".") for text in option.rests_on[:REASONS]),
    )


def _pros(option: Option) -> Iterator[str]:
    if option.basis is Basis.TRIAL and not option.failures:
        yield "ran here without a failure"
    if option.finish and option.finish.in_time is not None and in_time(option):
        yield f"on time: {chance(option.finish.in_time)}"
    if not is_rented(option):
        yield "free"
    if option.basis is Basis.TRIAL and not option.changes:
        yield "the same model, nothing to set up"


def _cons(option: Option, plan: Plan) -> Iterator[str]:
    if option.failures:
        kinds = ", ".join(dict.fromkeys(option.kinds))
        yield f"{plural(option.failures, 'failure')} in {option.failed_steps:,} steps ({kinds})"
    if option.finish and round(option.finish.failures):
        yield f"about {option.finish.failures:,.0f} restarts expected"
    if option.basis is Basis.ESTIMATE:
        yield "an estimate; not tried"
    if option.finish and plan.deadline is not None and not in_time(option):
        yield f"on time: {chance(option.finish.in_time or 0.0)}"
    if option.changes:
        yield f"changes: {option.changes}"
    if cost(option) != NONE:
        yield f"costs {cost(option)}"
    if by_hand(option):
        yield f"set-up by hand: {_setup(option)}"
    if option.risk is not Risk.LOW:
        yield f"risk: {option.risk.value}"


def _who(option: Option, plan: Plan, zone: tzinfo | None) -> Iterator[str]:
    """Yield who has to do what, and by when."""
    by = ""
    if plan.deadline is not None and option.finish:
        latest = plan.deadline - option.finish.late
        late = latest < plan.made
        by = " now" if late else f" by {full_moment(latest, now=plan.made, zone=zone)}"
    if by_hand(option):
        yield f"You set it up and start it{by}."
    elif option.basis is Basis.TRIAL:
        yield f"You start it{by}; rocsteady does the rest unattended."
    elif option.steps or option.changes:
        yield f"You make the change and start it{by}."


def _chart(plan: Plan, zone: tzinfo | None) -> Chart | None:
    """Draw when each option ends, against the deadline; what ends much later is cut off."""
    shown = [(it, it.finish) for it in plan.options[:CARDS] if it.finish]
    if not shown:
        return None
    due = None if plan.deadline is None else max(plan.deadline - plan.made, 0.0)
    ends = sorted(finish.late for _, finish in shown)
    span = max(1.1 * (due or 0.0), min(ends[-1], 4 * max(due or 0.0, ends[0])), 1.0)

    def place(seconds: float) -> float:
        return round(min(seconds / span, 1.0) * 1000, 1)

    bars = tuple(
        ChartBar(
            title=f"{option.number}. {titled(option)}",
            begin=place(finish.early),
            end=place(finish.late),
            middle=place(finish.seconds),
            cost="" if cost(option) == NONE else cost(option),
            text=f"{_finishes(finish, plan, zone)}"
            + (f", on time {chance(finish.in_time)}" if finish.in_time is not None else ""),
        )
        for option, finish in shown
    )
    until = full_moment(plan.made + span, now=plan.made, zone=zone, spread=span / 20)
    deadline = None if due is None else place(due)
    return Chart(bars=bars, deadline=deadline, until=until)


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
    if plan.left is None:
        yield "Set total in rocsteady.toml and plan again; without it, nothing can be forecast."
    if plan.deadline is None:
        yield "Set deadline in rocsteady.toml and plan again; without one, no option can be late."
    if plan.not_tried and not plan.machine and plan.recommended and _more_can_be_tried(plan):
        yield f"Measure the other options: {MORE_TIME}"
    if plan.machine:
        yield "On the machine itself: rocsteady doctor, then rocsteady plan, which measures."
    if not plan.options:
        return
    if plan.recommended:
        yield from _first_steps(plan.options[0])
    else:
        yield f"Measure the options, which cannot be compared yet: {_next(plan)}"


def _more_can_be_tried(plan: Plan) -> bool:
    """Return whether trials are not yet the share of the job that they may be."""
    ends = plan.options[0].finish if plan.options else None
    return ends is None or plan.trial_seconds < SHARE * ends.seconds


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
    if best.do and (best.finish is None or best.finish.seconds > LONG):
        yield "After an hour, compare its pace and its end with this page: rocsteady status"


def _next(plan: Plan) -> str:
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


class OptionCard(Value, frozen=True, kw_only=True):
    title: str
    pros: tuple[str, ...]
    cons: tuple[str, ...]
    steps: tuple[str, ...]  # commands, in this order
    who: tuple[str, ...]  # has to do what, by when
    why: tuple[str, ...]  # what it rests on


class ChartBar(Value, frozen=True, kw_only=True):
    """From the earliest to the latest end of an option, in thousandths of the chart."""

    title: str
    begin: float
    end: float
    middle: float
    cost: str
    text: str


class Chart(Value, frozen=True, kw_only=True):
    bars: tuple[ChartBar, ...]
    deadline: float | None
    until: str  # its right edge


class DecisionPage(Value, frozen=True, kw_only=True):
    title: str
    headline: str  # the recommendation by its name
    summary: str
    steps: tuple[str, ...]  # commands to type first
    chart: Chart | None
    cards: tuple[OptionCard, ...]
    command: str  # that carries out the recommendation; "": none does
    facts: tuple[tuple[str, str], ...]
    sections: tuple[PageSection, ...]


def decision_html(page: DecisionPage) -> str:
    return render_template("decision.html.j2", page=page)


def decision_markdown(page: DecisionPage) -> str:
    return render_template("decision.md.j2", page=page)


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
    option: int  # its number; 0: it has none yet
    text: str
    threshold: float | None = None  # dollars, steps a second, or a moment


def tipping_points(plan: Plan, zone: tzinfo | None = None) -> tuple[TippingPoint, ...]:
    """Return what would speak against the first option, or for another one."""
    if not plan.options:
        return ()
    first, *others = plan.options
    faster = (_faster(option, first, plan) for option in others)
    points = (
        _too_slow(first, plan),
        _too_early(first, plan, zone),
        _price(first, plan),
        _later(first, others, plan, zone),
        *(_over_budget(option, plan) for option in others),
        *[point for point in faster if point][:2],
        *map(_trial, plan.not_tried),
        *map(_fixed, plan.ruled_out),
    )
    return tuple(point for point in points if point is not None)


def by_hand(option: Option) -> float:
    """Return the seconds of set-up that its forecast includes."""
    unknown = UNKNOWN_SETUP if option.basis is Basis.ESTIMATE else 0.0
    return (sum(option.setup) / 2 if option.setup else unknown) * 60


def _too_slow(first: Option, plan: Plan) -> TippingPoint | None:
    if plan.deadline is None or plan.left is None or not (first.pace and first.finish):
        return None
    seconds = plan.deadline - plan.made - by_hand(first)
    least = plan.left / (seconds * (1 - min(first.finish.lost, 0.99))) if seconds > 0 else 0.0
    if not 0 < least < first.pace.rate:
        return None
    text = (
        f"Option {first.number} misses the deadline if it makes fewer than {rate(least)} steps/s;"
        f" the plan expects {rate(first.pace.rate)}."
    )
    return TippingPoint(change=Change.PACE, option=first.number, threshold=least, text=text)


def _too_early(first: Option, plan: Plan, zone: tzinfo | None) -> TippingPoint | None:
    if plan.deadline is None or not (first.finish and in_time(first)):
        return None
    late = plan.made + first.finish.late
    return TippingPoint(
        change=Change.EARLIER_DEADLINE,
        option=first.number,
        threshold=late,
        text=f"A deadline before {full_moment(late, now=plan.made, zone=zone)}: option"
        f" {first.number} may then be late.",
    )


def _price(first: Option, plan: Plan) -> TippingPoint | None:
    if first.price is None or plan.budget is None or first.finish is None:
        return None
    hours = max(first.finish.late - by_hand(first), 1.0) / HOUR
    highest = plan.budget / hours
    text = (
        f"A price of more than ${highest:,.2f} an hour for option {first.number}, which may then"
        f" cost more than the budget; the plan has ${first.price.dollars:,.2f}."
    )
    return TippingPoint(change=Change.PRICE, option=first.number, threshold=highest, text=text)


def _later(
    first: Option, others: list[Option], plan: Plan, zone: tzinfo | None
) -> TippingPoint | None:
    """Find the first option that changes less or costs less, and only lacks time."""
    for option in others:
        gains = bool(first.cost and not option.cost) or bool(first.changes and not option.changes)
        if plan.deadline is not None and gains and option.finish and not in_time(option):
            late = plan.made + option.finish.late
            return TippingPoint(
                change=Change.LATER_DEADLINE,
                option=option.number,
                threshold=late,
                text=f"A deadline after {full_moment(late, now=plan.made, zone=zone)}: option"
                f" {option.number} would be on time as well.",
            )
    return None


def _over_budget(option: Option, plan: Plan) -> TippingPoint | None:
    if not option.cost or not too_dear(option, plan.budget):
        return None
    unit = 1 if option.cost[1] >= 1 else CENT
    enough = unit * math.ceil(option.cost[1] / unit)
    text = f"A budget of {money(enough)}: it would pay for option {option.number}."
    return TippingPoint(change=Change.BUDGET, option=option.number, threshold=enough, text=text)


def _faster(option: Option, first: Option, plan: Plan) -> TippingPoint | None:
    """Find the pace from which on an estimate would finish before the first option."""
    if option.basis is not Basis.ESTIMATE or not (option.pace and first.finish and plan.left):
        return None
    seconds = first.finish.seconds - by_hand(option)
    if seconds <= 0:
        return None
    needed = plan.left / seconds
    low, high, enough = map(rate, (option.pace.low, option.pace.high, needed))
    if option.pace.rate > needed:
        text = (
            f"Option {option.number} would finish before option {first.number} if its estimate of"
            f" {low} to {high} steps/s is right; it needs more than {enough}."
        )
    else:
        text = (
            f"Option {option.number} is an estimate of {low} to {high} steps/s. Measured at more"
            f" than {enough}, it would finish before option {first.number}."
        )
    return TippingPoint(change=Change.ESTIMATE, option=option.number, threshold=needed, text=text)


def _trial(option: Option) -> TippingPoint:
    text = f'A trial of "{option.title}", which was not measured.'
    return TippingPoint(change=Change.TRIAL, option=option.number, text=text)


def _fixed(option: Option) -> TippingPoint | None:
    if not option.id.startswith(("gpu", "cpu")) or not option.rests_on:
        return None
    text = f'"{option.title}", if this is fixed: {option.rests_on[0].rstrip(".")}.'
    return TippingPoint(change=Change.FIX, option=option.number, text=text)
