"""One option of a plan in words: for its row, and in full for ``plan --explain N``."""

from __future__ import annotations

from datetime import date, tzinfo
from urllib.parse import urlsplit

from rocsteady.plan import Basis, Finish, Plan, Price, Way
from rocsteady.printable import printable
from rocsteady.report.page import BOLD, YELLOW, Page
from rocsteady.report.table import NONE
from rocsteady.report.times import ENDLESS, MONTHS, NEVER, moment, moment_within
from rocsteady.wording import DAY, HOUR, MINUTE, duration, plural, size

TENTH, TEN = 0.0995, 9.995  # what is shown as 0.10 and 10.0 is no smaller
SLOWEST = 0.0001  # steps per second; below it the end says more
CERTAIN = 0.995  # no forecast is surer than this
BRIEF = 64  # characters of a reason on the first screen
LABEL = 12  # columns


def render_option(  # noqa: PLR0913 - a plan, one of its options, and how to show it
    way: Way, plan: Plan, *, now: float, width: int, colour: bool, zone: tzinfo | None = None
) -> str:
    """Show everything that is known about one option."""
    page = Page(width, colour=colour)
    number = f"Option {way.number}: " if way.number else ""
    page.line(f"{number}{titled(way)}", style=BOLD)
    for label, text in _details(way, plan, now, zone):
        if text:
            page.row(label, text, indent=2, column=LABEL)
    if way.changes:
        page.row("changes", clean(way.changes), indent=2, column=LABEL, style=YELLOW)
    for number_, sentence in enumerate(way.rests_on):
        text = clean(sentence).rstrip(".")
        page.row(
            "" if number_ else "based on", f"{text[:1].upper()}{text[1:]}.", indent=2, column=LABEL
        )
    for number_, source in enumerate(dict.fromkeys(map(clean, way.sources))):
        page.row("" if number_ else "sources", source, indent=2, column=LABEL)
    if way.do:
        page.line(f"  {'to run it':<{LABEL}}{clean(way.do)}")
    return str(page)


def based_on(way: Way, plan: Plan) -> str:
    """Say in a few words what the figures of an option are based on."""
    said = [_tried(way) if way.basis is Basis.TRIAL else way.basis.value]
    if way.finish and round(way.finish.failures):
        said.append(f"~{way.finish.failures:,.0f} expected")
    if way.changes:
        said.append(_changed(way))
    if way.setup and any(way.setup):
        said.append(f"{setup(way.setup)} to set up")
    if way.price:
        said.append(f"prices as of {priced_on(way.price)}")
    said.append(_over_budget(way, plan))
    return "; ".join(filter(None, said))


def brief_reason(way: Way) -> str:
    """Return why an option has no row, in parentheses and shortened; "" if nothing is said."""
    reason = clean(way.rests_on[0]).rstrip(".") if way.rests_on else ""
    if len(reason) > BRIEF:
        reason = f"{reason[: BRIEF - 3].rpartition(' ')[0].rstrip(',;:')}..."
    return f" ({reason})" if reason else ""


def titled(way: Way) -> str:
    """Return its title; its id if it has none."""
    return clean(way.title) or clean(way.id) or NONE


def pace(way: Way) -> str:
    """Say how many steps a second; "~" before what was not measured."""
    if not way.pace or not way.pace.rate > 0:
        return NONE
    rate = way.pace.rate
    if rate < SLOWEST:
        return f"<{SLOWEST}"
    if way.basis is Basis.ESTIMATE:
        rate = float(f"{rate:.2g}")
        return f"~{rate:,.0f}" if rate >= TEN else f"~{rate:g}"
    if rate < TENTH:
        return f"{rate:.2g}"
    digits = sum(rate < bound for bound in (10 * TEN, TEN))
    return f"{rate:,.{digits}f}"


def cost(way: Way) -> str:
    """Say what it costs: "~$25", "$3-6"."""
    if not way.cost or not any(way.cost):
        return NONE
    least, most = (_money(dollars) for dollars in way.cost)
    if least == most:
        return f"{'~' if way.basis is Basis.ESTIMATE else ''}${most}"
    return f"${least}-{most}"


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
    spread = max((side for side in _sides(finish) if side < ENDLESS), default=0.0)
    return moment_within(made + finish.seconds, spread=spread, now=now, zone=zone)


def clean(text: str) -> str:
    """Return text of others on one line, without what would move the cursor."""
    return printable(" ".join(text.split()))


def _sides(finish: Finish) -> tuple[float, float]:
    return max(0.0, finish.seconds - finish.early), max(0.0, finish.late - finish.seconds)


def _tidy(number: float) -> str:
    return f"{number:,.0f}" if number >= TEN else f"{round(number, 1):g}"


def _money(dollars: float) -> str:
    return (
        f"{dollars:,.0f}"
        if dollars >= TEN or dollars == int(dollars)
        else f"{max(dollars, 0.01):.2f}"
    )


def _priced(price: Price) -> str:
    host = urlsplit(price.source).netloc or clean(price.source)
    old = " (old)" if price.old else ""
    return f"${_money(price.dollars)} per hour at {host} as of {priced_on(price)}{old}"


def _tried(way: Way) -> str:
    """Say what trials and earlier runs have shown."""
    if way.failures:
        return f"{plural(way.failures, 'failure')} in {plural(way.failed_steps, 'step')}"
    steps = way.failed_steps or (way.pace.steps if way.pace else 0)
    return f"trial: 0 failures in {plural(steps, 'step')}" if steps else "trial"


def _changed(way: Way) -> str:
    if way.variant:
        return "changes the model"
    return "changes the numbers" if way.basis is Basis.TRIAL else "needs changes to the script"


def _over_budget(way: Way, plan: Plan) -> str:
    if plan.budget is None or not way.cost or way.cost[1] <= plan.budget:
        return ""
    exceeds = "over" if way.cost[0] > plan.budget else "may exceed"
    return f"{exceeds} the budget of ${_money(plan.budget)}"


def _details(way: Way, plan: Plan, now: float, zone: tzinfo | None) -> tuple[tuple[str, str], ...]:
    """Return labels and figures; a figure that is not known is empty."""
    finish = way.finish
    on_time = finish.in_time if finish and plan.deadline is not None else None
    lost = ""
    if finish and round(finish.failures):
        lost = f"about {finish.failures:,.0f} expected, {100 * finish.lost:.0f} % of the time"
    money = "" if cost(way) == NONE else cost(way)
    notes = (_priced(way.price) if way.price else "", _over_budget(way, plan))
    return (
        ("pace", _measured(way)),
        ("finishes", _ends(finish, plan, now, zone) if finish else ""),
        ("on time", "" if on_time is None else chance(on_time)),
        ("failures", "; ".join(filter(None, (_tried(way) if way.failures else "", lost)))),
        ("kinds", ", ".join(dict.fromkeys(map(clean, way.kinds)))),
        ("cost", "; ".join(filter(None, (money, *notes)))),
        ("set-up", "" if setup(way.setup) == NONE else f"{setup(way.setup)} of work by hand"),
        ("risk", way.risk.value if way.basis in (Basis.TRIAL, Basis.ESTIMATE) else ""),
    )


def _measured(way: Way) -> str:
    """Say the pace, its interval and how it was measured."""
    if not way.pace or pace(way) == NONE:
        return ""
    said = f"{pace(way)} steps/s ({way.pace.low:.3g} to {way.pace.high:.3g}, 90 %)"
    if way.basis is Basis.TRIAL:
        steps, took = plural(way.pace.steps, "step"), duration(way.pace.seconds)
        said += f"; {steps} in {took}, after {duration(way.pace.starting)} to start"
    if way.pace.memory:
        said += f"; {size(way.pace.memory)} of host memory"
    return said


def _ends(finish: Finish, plan: Plan, now: float, zone: tzinfo | None) -> str:
    """Say when it finishes, and between when and when."""
    at, early, late = (
        moment(plan.made + seconds, now=now, zone=zone)
        for seconds in (finish.seconds, finish.early, finish.late)
    )
    return at if at == NEVER else f"{at}; between {early} and {late} (90 %)"
