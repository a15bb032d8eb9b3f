"""One option of a plan in words: for its row, and in full for ``plan --explain N``."""

from __future__ import annotations

from datetime import date, tzinfo
from urllib.parse import urlsplit

from rocsteady.plan.values import Basis, Finish, Option, Plan, Price
from rocsteady.printable import printable
from rocsteady.screens.text_page import BOLD, NONE, YELLOW, Page
from rocsteady.screens.times import ENDLESS, MONTHS, NEVER, moment, moment_within
from rocsteady.wording import CENT, DAY, HOUR, MINUTE, duration, money, plural, size

TENTH, TEN = 0.0995, 9.995  # what is shown as 0.10 and 10.0 is no smaller
MANY = 100  # steps per second; from here on digits after the point say little
SLOWEST = 0.0001  # steps per second; below it the end says more
CERTAIN = 0.995  # no forecast is surer than this
BRIEF = 64  # characters of a reason on the first screen
LABEL = 12  # columns


def render_option(  # noqa: PLR0913 - a plan, one of its options, and how to show it
    option: Option, plan: Plan, *, now: float, width: int, colour: bool, zone: tzinfo | None = None
) -> str:
    """Show everything that is known about one option."""
    page = Page(width, colour=colour)
    number = f"Option {option.number}: " if option.number else ""
    page.line(f"{number}{titled(option)}", style=BOLD)
    for label, text in _details(option, plan, now, zone):
        if text:
            page.row(label, text, indent=2, column=LABEL)
    if option.changes:
        page.row("changes", clean(option.changes), indent=2, column=LABEL, style=YELLOW)
    for number_, sentence in enumerate(option.rests_on):
        text = clean(sentence).rstrip(".")
        page.row(
            "" if number_ else "based on", f"{text[:1].upper()}{text[1:]}.", indent=2, column=LABEL
        )
    for number_, source in enumerate(dict.fromkeys(map(clean, option.sources))):
        page.row("" if number_ else "sources", source, indent=2, column=LABEL)
    if option.do:
        page.line(f"  {'to run it':<{LABEL}}{clean(option.do)}")
    return str(page)


def based_on(option: Option, plan: Plan) -> str:
    """Say in a few words what the figures of an option are based on."""
    parts = [_tried(option) if option.basis is Basis.TRIAL else option.basis.value]
    if option.finish and round(option.finish.failures):
        parts.append(f"~{option.finish.failures:,.0f} expected")
    if option.changes:
        parts.append(_changed(option))
    if option.setup and any(option.setup):
        parts.append(f"{setup(option.setup)} to set up")
    if option.price:
        parts.append(f"prices as of {priced_on(option.price)}")
    parts.append(_over_budget(option, plan))
    return "; ".join(filter(None, parts))


def brief_reason(option: Option) -> str:
    """Return why an option has no row, in parentheses and shortened; "" if nothing is said."""
    reason = clean(option.rests_on[0]).rstrip(".") if option.rests_on else ""
    if len(reason) > BRIEF:
        reason = f"{reason[: BRIEF - 3].rpartition(' ')[0].rstrip(',;:')}..."
    return f" ({reason})" if reason else ""


def titled(option: Option) -> str:
    """Return its title; its id if it has none."""
    return clean(option.title) or clean(option.id) or NONE


def gpu_busy(option: Option) -> str:
    """Say how busy the GPU was."""
    busy = option.pace.gpu_busy if option.pace else None
    return NONE if busy is None else f"{busy:.0f} %"


def pace(option: Option) -> str:
    """Say how many steps a second; "~" before what was not measured."""
    if not option.pace or not option.pace.rate > 0:
        return NONE
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
    """Say a bound of a pace to three digits."""
    return f"{steps:,.0f}" if steps >= MANY else f"{steps:.3g}"


def cost(option: Option) -> str:
    """Say what it costs: "~$25", "$3-6"."""
    if not option.cost or not any(option.cost):
        return NONE
    if option.cost[1] < CENT:
        return "<$0.01"
    least, most = (money(dollars)[1:] for dollars in option.cost)
    if least == most:
        return f"{'~' if option.basis is Basis.ESTIMATE else ''}${most}"
    return f"${'0' if option.cost[0] < CENT else least}-{most}"


def setup(minutes: tuple[float, float] | None) -> str:
    """Say how long the work by hand takes: "30-60 min", "1-2 h"."""
    if not minutes or not any(minutes):
        return NONE
    unit, name = 1, "min"
    for bigger, called in ((HOUR // MINUTE, "h"), (DAY // MINUTE, "d")):
        if minutes[1] >= 2 * bigger:
            unit, name = bigger, called
    least, most = (_tidy(each / unit) for each in minutes)
    return f"{most} {name}" if least == most else f"{least}-{most} {name}"


def chance(share: float) -> str:
    """Say a chance, never as if it were certain."""
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
    """Say when it finishes, no more exactly than that is known."""
    return moment_within(made + finish.seconds, spread=spread(finish), now=now, zone=zone)


def spread(finish: Finish) -> float:
    """Return how many seconds a finish may be off."""
    return max((side for side in _sides(finish) if side < ENDLESS), default=0.0)


def clean(text: str) -> str:
    """Return text of others on one line, without what would move the cursor."""
    return printable(" ".join(text.split()))


def _sides(finish: Finish) -> tuple[float, float]:
    return max(0.0, finish.seconds - finish.early), max(0.0, finish.late - finish.seconds)


def _tidy(number: float) -> str:
    return f"{number:,.0f}" if number >= TEN else f"{round(number, 1):g}"


def _priced(price: Price) -> str:
    host = urlsplit(price.source).netloc or clean(price.source)
    old = " (old)" if price.old else ""
    return f"{money(price.dollars)} per hour at {host} as of {priced_on(price)}{old}"


def _tried(option: Option) -> str:
    """Say what trials and earlier runs have shown."""
    if option.failures:
        return f"{plural(option.failures, 'failure')} in {plural(option.failed_steps, 'step')}"
    steps = option.failed_steps or (option.pace.steps if option.pace else 0)
    return f"trial: 0 failures in {plural(steps, 'step')}" if steps else "trial"


def _changed(option: Option) -> str:
    if option.variant:
        return "changes the model"
    return "changes the numbers" if option.basis is Basis.TRIAL else "needs changes to the script"


def _over_budget(option: Option, plan: Plan) -> str:
    if plan.budget is None or not option.cost or option.cost[1] <= plan.budget:
        return ""
    exceeds = "over" if option.cost[0] > plan.budget else "may exceed"
    return f"{exceeds} the budget of {money(plan.budget)}"


def _details(
    option: Option, plan: Plan, now: float, zone: tzinfo | None
) -> tuple[tuple[str, str], ...]:
    """Return labels and figures; a figure that is not known is empty."""
    finish = option.finish
    on_time = finish.in_time if finish and plan.deadline is not None else None
    lost = ""
    if finish and round(finish.failures):
        lost = f"about {finish.failures:,.0f} expected, {100 * finish.lost:.0f} % of the time"
    money = "" if cost(option) == NONE else cost(option)
    notes = (_priced(option.price) if option.price else "", _over_budget(option, plan))
    return (
        ("pace", _measured(option)),
        ("finishes", _ends(finish, plan, now, zone) if finish else ""),
        ("on time", "" if on_time is None else chance(on_time)),
        ("failures", "; ".join(filter(None, (_tried(option) if option.failures else "", lost)))),
        ("kinds", ", ".join(dict.fromkeys(map(clean, option.kinds)))),
        ("cost", "; ".join(filter(None, (money, *notes)))),
        ("set-up", "" if setup(option.setup) == NONE else f"{setup(option.setup)} of manual work"),
        ("risk", option.risk.value if option.basis in (Basis.TRIAL, Basis.ESTIMATE) else ""),
    )


def _measured(option: Option) -> str:
    """Say the pace, its interval and how it was measured."""
    if not option.pace or pace(option) == NONE:
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
    """Say when it finishes, and between when and when."""
    at, early, late = (
        moment(plan.made + seconds, now=now, zone=zone)
        for seconds in (finish.seconds, finish.early, finish.late)
    )
    return at if at == NEVER else f"{at}; between {early} and {late} (90 %)"
