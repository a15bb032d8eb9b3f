"""The screen of a plan, and of one of its options in full for ``plan --details N``.

The table has what a person needs to choose; everything else is behind ``--details``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, tzinfo
from pathlib import Path, PureWindowsPath
from urllib.parse import urlsplit

from rocsteady.colours import BOLD, DIM, GREEN, RED, YELLOW
from rocsteady.plan.bottleneck import NOT_TOLD_APART
from rocsteady.plan.candidates import SMALLER_BATCH
from rocsteady.plan.decision import by_hand
from rocsteady.plan.values import CERTAIN, Basis, Finish, Limit, Option, Plan, Price
from rocsteady.printable import printable
from rocsteady.run.job import FILE
from rocsteady.screens.screen import LEAST_LAST, NO_VALUE, Column, Page
from rocsteady.store.redaction import shown_command
from rocsteady.wording import (
    CENT,
    DAY,
    ENDLESS,
    HOUR,
    MINUTE,
    MONTHS,
    NO_MOMENT,
    duration,
    moment,
    moment_within,
    money,
    plural,
    rough_duration,
    size,
)

COLUMNS = (
    Column("", right=True),
    Column("option", least=22),
    Column("steps/s", right=True),
    Column("finishes"),
    Column("on time", right=True),
    Column("cost", right=True),
    Column("based on", least=LEAST_LAST),
)
GPU = Column("GPU", right=True)  # how busy it was, after the speed; only where that was measured
ON_TIME = 4  # the column
LIKELY, UNLIKELY = 0.9, 0.5  # chances that are green, and red below
LIMITS = {
    "data": "the data loader",
    "simulation": "the simulation in the script's own code",
    "own code": "the script's own Python code",
    "compute": "computation",
    NOT_TOLD_APART: "computation or the script's own code (not told apart)",
    "compile": "compilation",
    "checkpoint": "writing checkpoints",
    "evaluate": "evaluation",
    "other ranks": "waiting for other ranks",
}
BOTTLENECK_SHARE = 0.4  # of the time; a smaller share is only the largest one
SHARES = 4  # of the time that are listed
MANY_TIMES = 10  # times as fast; from here on a fraction says little
GROUPS = 3  # reasons that are listed; --details all has the others
JUST_NOW = 120  # seconds
AGED = 3600  # seconds after which a plan says how old it is
DETAILS = 35  # column of the hint beside the command


def render_plan(plan: Plan, *, now: float, page: Page, zone: tzinfo | None = None) -> str:
    """Lay out the screen; times are local, or of the zone given."""
    page.paragraph(_head(plan, now, zone))
    if plan.options:
        page.line()
        _options(page, plan, now, zone)
    for head, options in (("Ruled out", plan.ruled_out), ("Not measured", plan.not_tried)):
        if options:
            page.paragraph(f"{head}: {_grouped(options)}.")
    if plan.limits:
        page.paragraph(f"Time goes to: {limits(plan)}")
    page.line()
    _recommendation(page, plan)
    for line in chain_lines(plan, now, zone):
        page.row("", line, indent=2, column=0)
    for warning in _warnings(plan, now):
        page.paragraph(warning, style=YELLOW)
    return str(page)


def limits(plan: Plan) -> str:
    shares = ", ".join(f"{clean(it.part)} {100 * it.share:.0f} %" for it in plan.limits[:SHARES])
    first = plan.limits[0]
    on_gpu = any(it.pace and it.pace.gpu_busy is not None for it in plan.options)
    shares += " (time of the host up to a synchronization)" * on_gpu
    name = LIMITS.get(first.part, clean(first.part))
    is_the = "is the bottleneck" if first.share >= BOTTLENECK_SHARE else "takes the most time"
    where = f", mostly in {clean(first.where)}" if first.where else ""
    summary = f"{shares}; {name} {is_the}{where}.{_idle_gpu(plan, first)}"
    best = max((it for it in plan.limits if it.best), key=lambda it: it.gain, default=None)
    if not best or first.part == NOT_TOLD_APART:  # what is not told apart may have more to gain
        return summary
    return f"{summary} Most to gain: {clean(best.best).rstrip('.')}{_gain(best.gain)}."


def _idle_gpu(plan: Plan, first: Limit) -> str:
    if first.part in ("compute", NOT_TOLD_APART):
        return ""
    paces = (option.pace for option in plan.options if option.pace)
    busy = next((pace.gpu_busy for pace in paces if pace.gpu_busy is not None), None)
    return (
        "" if busy is None else f" The GPU was busy {busy:.0f} % of the time and idle for the rest."
    )


def _head(plan: Plan, now: float, zone: tzinfo | None) -> str:
    left = "unknown amount of work" if plan.left is None else f"{plural(plan.left, 'step')} left"
    due = "no deadline"
    if plan.deadline is not None:
        ahead = plan.deadline - now
        near = f"in {duration(ahead)}" if ahead >= 0 else f"{duration(-ahead)} ago"
        due = f"deadline {moment(plan.deadline, now=now, zone=zone)} ({near})"
    age = max(0.0, now - (plan.tried or plan.made))
    ago = "" if age < JUST_NOW else f", {rough_duration(age)} ago"
    took = "No trials were made"
    if plan.machine:
        left_over = "all options are estimates" if plan.options else "no option is left"
        took = f"Nothing was tried on the recorded machine {clean(plan.machine)}: {left_over}"
    elif plan.trials:
        took = f"{plural(plan.trials, 'trial')} took {duration(plan.trial_seconds)}{ago}"
    return f"{_script(plan)}: {left}, {due}. {took}."


def _script(plan: Plan) -> str:
    words = [PureWindowsPath(clean(word)).name or clean(word) for word in plan.command]
    for before, word in zip(["", *words], words, strict=False):
        if before == "-m" or word.endswith((".py", ".sh")):
            return word
    return words[0] if words else clean(plan.folder)


def _options(page: Page, plan: Plan, now: float, zone: tzinfo | None) -> None:
    rows, styles = [], {}
    busy_known = any(option.pace and option.pace.gpu_busy is not None for option in plan.options)
    for number, option in enumerate(plan.options):
        finish = option.finish
        on_time = finish.in_time if finish and plan.deadline is not None else None
        rows.append(
            (
                str(option.number),
                titled(option),
                pace(option),
                *([gpu_busy(option)] if busy_known else []),
                finishes(finish, plan.made, now, zone) if finish else NO_VALUE,
                NO_VALUE if on_time is None else chance(on_time),
                cost(option),
                based_on(option, plan),
            )
        )
        if on_time is not None and not UNLIKELY <= on_time < LIKELY:
            styles[number, ON_TIME + busy_known] = GREEN if on_time >= LIKELY else RED
    columns = (*COLUMNS[:3], *([GPU] if busy_known else []), *COLUMNS[3:])
    page.table(columns, rows, styles, indent=2)


def _recommendation(page: Page, plan: Plan) -> None:
    text = clean(plan.take)
    if not plan.options:
        page.paragraph(text or "No option is left: all are ruled out.", style=BOLD)
        return
    best = plan.options[0]
    page.paragraph(text or f"Recommended: option {best.number}, {titled(best)}.", style=BOLD)
    typed = "add" if plan.machine else "rocsteady plan"  # a plan that is not kept is made again
    details = f"Details: {typed} --details {best.number}"
    if best.do and (plan.trials or best.basis is not Basis.ESTIMATE):
        command = f"  {clean(best.do)}"
        if max(len(command) + 2, DETAILS) + len(details) <= page.width:
            page.line(f"{command:<{DETAILS - 1}} {details}")
            return
        page.line(command)
    page.line(f"  {details}", style=DIM)


def chain_lines(plan: Plan, now: float, zone: tzinfo | None) -> list[str]:
    """Return what the run does when, one line each link."""
    if plan.chain is None:
        return []
    lines = []
    for number, link in enumerate(plan.chain.links):
        word = "first" if number == 0 else "then"
        option = plan.options[link.option - 1]
        text = f"{word} option {link.option}, {titled(option)}"
        if link.by_hand:
            text += " (by hand)"
        if link.begin_by is not None:
            last = moment(plan.made + link.begin_by, now=now, zone=zone)
            text += f", begun by {last}"
        if link.stop is not None:
            until = plan.made + by_hand(option) + link.stop.within
            tried = f"until {moment(until, now=now, zone=zone)}"
            if number:  # when it begins is open
                tried = f"for {duration(link.stop.within)}"
            slow = (
                f" or makes fewer than {rate(link.stop.least)} steps/s" if link.stop.least else ""
            )
            text += f", {tried}: left if it fails {link.stop.failures} times{slow}"
        lines.append(text)
        if link.by_hand and number == 0:
            lines += [f"type: {clean(it)}" for it in (*option.steps, option.do) if it]
    end = moment(plan.made + plan.chain.finish.seconds, now=now, zone=zone)
    on_time = plan.chain.finish.in_time
    likely = "" if on_time is None else f", on time {chance(on_time)}"
    lines.append(f"finishes {end}{likely}")
    return lines


def _grouped(options: Sequence[Option]) -> str:
    """Name options that have no row, each reason once; the rest is counted."""
    by_reason: dict[str, list[str]] = {}
    for option in options:
        by_reason.setdefault(brief_reason(option), []).append(titled(option))
    groups = [
        f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}{reason}"
        for reason, names in by_reason.items()
    ]
    rest = sum(map(len, list(by_reason.values())[GROUPS:]))
    return "; ".join((*groups[:GROUPS], *([f"{rest} more"] if rest else [])))


def _gain(gain: float) -> str:
    if round(gain, 1) <= 1:
        return ""
    times = f"{gain:.0f}" if round(gain, 1) >= MANY_TIMES else f"{gain:.1f}"
    return f" (up to {times} times as fast)"


def _warnings(plan: Plan, now: float) -> list[str]:
    sentences = []
    if plan.left is None:
        sentences.append(
            "The amount of work is unknown, so there is no forecast. Set total in rocsteady.toml"
            " and plan again."
        )
    if plan.deadline is None:
        sentences.append("No deadline is set. To set one: deadline in rocsteady.toml.")
    if sentences and not (Path(plan.folder) / FILE).exists():
        sentences.append(f"To write {FILE}: rocsteady init -- {shown_command(plan.command)}")
    old = [option for option in plan.options if option.price and option.price.old]
    if old:
        days = ", ".join(
            f"option {each.number} ({priced_on(each.price)})" for each in old if each.price
        )
        sentences.append(f"Old prices: {days}. Check today's prices before you rent.")
    if now - plan.made > AGED:
        age = duration(now - plan.made)
        sentences.append(f"This plan is {age} old: a run that starts now finishes that much later.")
    return sentences + [clean(warning) for warning in plan.warnings]


TENTH, TEN = 0.0995, 9.995  # what is shown as 0.10 and 10.0 is no smaller
FAST = 100  # steps per second; from here on digits after the point say little
SLOWEST = 0.0001  # steps per second; below it the end says more
BRIEF = 64  # characters of a reason on the first screen
LABEL = 12  # columns


def render_option(
    option: Option, plan: Plan, *, now: float, page: Page, zone: tzinfo | None = None
) -> str:
    number = f"Option {option.number}: " if option.number else ""
    page.line(f"{number}{titled(option)}", style=BOLD)
    for label, text in _details(option, plan, now, zone):
        if text:
            page.row(label, text, indent=2, column=LABEL)
    if option.changes:
        page.row("changes", clean(option.changes), indent=2, column=LABEL, style=YELLOW)
    for number_, sentence in enumerate(option.rests_on):
        text = clean(sentence).rstrip(".")
        page.row("" if number_ else "based on", f"{_capitalized(text)}.", indent=2, column=LABEL)
    for number_, source in enumerate(dict.fromkeys(map(clean, option.sources))):
        page.row("" if number_ else "sources", source, indent=2, column=LABEL)
    if option.do:
        page.line(f"  {'to run it':<{LABEL}}{clean(option.do)}")
    return str(page)


def _capitalized(text: str) -> str:
    """Begin with a capital letter, unless with the ID of a rule."""
    return text if text.partition(" ")[0].endswith(":") else f"{text[:1].upper()}{text[1:]}"


def based_on(option: Option, plan: Plan) -> str:
    parts = [_tried(option) if option.basis is Basis.TRIAL else option.basis.value]
    if option.finish and round(option.finish.failures):
        parts.append(f"~{option.finish.failures:,.0f} expected")
    if option.changes:
        parts.append(_changed(option))
    if option.setup and any(option.setup):
        parts.append(f"{setup(option.setup)} to set up")
    if option.price:
        parts.append(f"prices as of {priced_on(option.price)}")
    parts.append(over_budget(option, plan.budget))
    return "; ".join(filter(None, parts))


def brief_reason(option: Option) -> str:
    """Return why an option has no row, in parentheses and shortened; "" if nothing is said."""
    reason = clean(option.rests_on[0]).rstrip(".") if option.rests_on else ""
    if len(reason) > BRIEF:
        reason = f"{reason[: BRIEF - 3].rpartition(' ')[0].rstrip(',;:')}..."
    return f" ({reason})" if reason else ""


def titled(option: Option) -> str:
    return clean(option.title) or clean(option.id) or NO_VALUE


def gpu_busy(option: Option) -> str:
    busy = option.pace.gpu_busy if option.pace else None
    return NO_VALUE if busy is None else f"{busy:.0f} %"


def pace(option: Option) -> str:
    """Return steps a second; "~" stands before what was not measured."""
    if not option.pace or not option.pace.rate > 0:
        return NO_VALUE
    steps = option.pace.rate
    if steps < SLOWEST:
        return f"<{SLOWEST}"
    if option.basis is Basis.ESTIMATE:
        steps = float(f"{steps:.2g}")
        return f"~{steps:,.0f}" if steps >= TEN else f"~{steps:g}"
    if steps < TENTH:
        return f"{steps:.2g}"
    digits = sum(steps < bound for bound in (10 * TEN, TEN))
    return f"{steps:,.{digits}f}"


def rate(steps: float) -> str:
    return f"{steps:,.0f}" if steps >= FAST else f"{steps:.3g}"


def cost(option: Option) -> str:
    """Return a cost such as "~$25" or "$3-6"."""
    if not option.cost or not any(option.cost):
        return NO_VALUE
    if option.cost[1] < CENT:
        return "<$0.01"
    least, most = (money(dollars)[1:] for dollars in option.cost)
    if least == most:
        return f"{'~' if option.basis is Basis.ESTIMATE else ''}${most}"
    return f"${'0' if option.cost[0] < CENT else least}-{most}"


def setup(minutes: tuple[float, float] | None) -> str:
    """Return a duration such as "30-60 min" or "1-2 h"."""
    if not minutes or not any(minutes):
        return NO_VALUE
    unit, name = 1, "min"
    for bigger, called in ((HOUR // MINUTE, "h"), (DAY // MINUTE, "d")):
        if minutes[1] >= 2 * bigger:
            unit, name = bigger, called
    least, most = (
        f"{each:,.0f}" if each >= TEN else f"{round(each, 1):g}"
        for each in (minutes[0] / unit, minutes[1] / unit)
    )
    return f"{most} {name}" if least == most else f"{least}-{most} {name}"


def chance(share: float) -> str:
    """Return a chance, never as if it were certain."""
    if share >= CERTAIN:
        return ">99 %"
    return "<1 %" if share < 1 - CERTAIN else f"{100 * share:.0f} %"


def priced_on(price: Price) -> str:
    """Return the day of a price as a person writes it."""
    try:
        day = date.fromisoformat(price.as_of)
    except ValueError:
        return clean(price.as_of)
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def finishes(finish: Finish, made: float, now: float, zone: tzinfo | None) -> str:
    return moment_within(made + finish.seconds, spread=spread(finish), now=now, zone=zone)


def spread(finish: Finish) -> float:
    """Return how many seconds a finish may be off."""
    sides = (finish.seconds - finish.early, finish.late - finish.seconds)
    return max((side for side in sides if 0 < side < ENDLESS), default=0.0)


def clean(text: str) -> str:
    """Return text of others on one line, without what would move the cursor."""
    return printable(" ".join(text.split()))


def _priced(price: Price) -> str:
    host = urlsplit(price.source).netloc or clean(price.source)
    old = " (old)" if price.old else ""
    return f"{money(price.dollars)} per hour at {host} as of {priced_on(price)}{old}"


def _tried(option: Option) -> str:
    if option.failures:
        return f"{plural(option.failures, 'failure')} in {plural(option.failed_steps, 'step')}"
    steps = option.failed_steps or (option.pace.steps if option.pace else 0)
    return f"trial: 0 failures in {plural(steps, 'step')}" if steps else "trial"


def _changed(option: Option) -> str:
    if option.variant == SMALLER_BATCH:
        return f"changes the training: {clean(option.changes)}"
    if option.variant:
        return "changes the model"
    return "changes the numbers" if option.basis is Basis.TRIAL else "needs changes to the script"


def over_budget(option: Option, budget: float | None) -> str:
    if budget is None or not option.cost or option.cost[1] <= budget:
        return ""
    exceeds = "over" if option.cost[0] > budget else "may exceed"
    return f"{exceeds} the budget of {money(budget)}"


def _details(
    option: Option, plan: Plan, now: float, zone: tzinfo | None
) -> tuple[tuple[str, str], ...]:
    """Return labels and figures; a figure that is not known is empty."""
    finish = option.finish
    on_time = finish.in_time if finish and plan.deadline is not None else None
    lost = ""
    if finish and round(finish.failures):
        lost = f"about {finish.failures:,.0f} expected, {100 * finish.lost:.0f} % of the time"
    money = "" if cost(option) == NO_VALUE else cost(option)
    notes = (_priced(option.price) if option.price else "", over_budget(option, plan.budget))
    return (
        ("pace", _measured(option)),
        ("finishes", _ends(finish, plan, now, zone) if finish else ""),
        ("on time", "" if on_time is None else chance(on_time)),
        ("failures", "; ".join(filter(None, (_tried(option) if option.failures else "", lost)))),
        ("kinds", ", ".join(dict.fromkeys(map(clean, option.kinds)))),
        ("cost", "; ".join(filter(None, (money, *notes)))),
        (
            "set-up",
            "" if setup(option.setup) == NO_VALUE else f"{setup(option.setup)} of manual work",
        ),
        ("risk", option.risk.value if option.basis in (Basis.TRIAL, Basis.ESTIMATE) else ""),
    )


def _measured(option: Option) -> str:
    if not option.pace or pace(option) == NO_VALUE:
        return ""
    text = f"{pace(option)} steps/s ({rate(option.pace.low)} to {rate(option.pace.high)}, 90 %)"
    if option.basis is Basis.TRIAL:
        steps, took = plural(option.pace.steps, "step"), duration(option.pace.seconds)
        text += f"; {steps} in {took}, after {duration(option.pace.starting)} to start"
    if option.pace.memory:
        text += f"; {size(option.pace.memory)} of host memory"
    if option.pace.gpu_busy is not None:
        held = option.pace.gpu_memory
        of_memory = f", {size(held)} of its memory used" if held else ""
        text += f"; GPU busy {option.pace.gpu_busy:.0f} %{of_memory}"
    return text


def _ends(finish: Finish, plan: Plan, now: float, zone: tzinfo | None) -> str:
    at, early, late = (
        moment(plan.made + seconds, now=now, zone=zone)
        for seconds in (finish.seconds, finish.early, finish.late)
    )
    return at if at == NO_MOMENT else f"{at}; between {early} and {late} (90 %)"
