"""One way of a plan in the words of its row: pace, end, chance, cost, set-up, what it rests on."""

from __future__ import annotations

import math
from datetime import date, tzinfo
from urllib.parse import urlsplit

from rocsteady.plan import Basis, Finish, Plan, Price, Way
from rocsteady.printable import printable
from rocsteady.report.times import DAY, ENDLESS, HOUR, MINUTE, MONTHS, NEVER, moment_within, roughly

NONE = "-"
MATTERS = 0.01  # of the time to the end; an interval below it is not told
TENTH, TEN = 0.0995, 9.995  # what is shown as 0.10 and 10.0 is no smaller
SLOWEST = 0.0001  # steps a second; below it the end tells more
CERTAIN = 0.995  # no forecast is surer than this


def cells(way: Way, plan: Plan, *, now: float, zone: tzinfo | None) -> dict[str, str]:
    """Return what stands in each column."""
    finish = way.finish
    return {
        "": str(way.number),
        "way": titled(way),
        "it/s": pace(way),
        "finishes": _finishes(finish, plan.made, now, zone) if finish else NONE,
        "90 %": _interval(finish, plan) if finish else "",
        "by then": _by_then(finish, plan),
        "cost": cost(way),
        "set-up": setup(way.setup),
        "risk": way.risk.value,
        "rests on": rests_on(way, plan),
    }


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


def rests_on(way: Way, plan: Plan) -> str:
    """Say what the figures rest on."""
    said = [clean(text).rstrip(".") for text in way.rests_on]
    if not (said and said[0].lower().startswith(way.basis.value)):
        said.insert(0, _basis(way))
    if way.finish and round(way.finish.failures):
        some = f"{way.finish.failures:,.0f}"
        times = "failure" if some == "1" else "failures"
        said.append(f"about {some} {times} expected, {100 * way.finish.lost:.0f} % of the time")
    if way.price:
        said.append(_priced(way.price))
    if plan.budget is not None and way.cost and way.cost[1] > plan.budget:
        passes = "is over" if way.cost[0] > plan.budget else "may pass"
        said.append(f"{passes} the budget of ${_money(plan.budget)}")
    return "; ".join(filter(None, said))


def priced_on(price: Price) -> str:
    """Return the day of a price as a person writes it."""
    try:
        day = date.fromisoformat(price.as_of)
    except ValueError:
        return clean(price.as_of)
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def counted_steps(number: int) -> str:
    """Say how many steps: "1 step", "1,970,000 steps"."""
    return f"{number:,} {'step' if number == 1 else 'steps'}"


def clean(text: str) -> str:
    """Return text of others on one line, without what would move the cursor."""
    return printable(" ".join(text.split()))


def _finishes(finish: Finish, made: float, now: float, zone: tzinfo | None) -> str:
    spread = max((side for side in _sides(finish) if side < ENDLESS), default=0.0)
    return moment_within(made + finish.seconds, spread=spread, now=now, zone=zone)


def _interval(finish: Finish, plan: Plan) -> str:
    """Say where the end lies, 90 %, if that matters."""
    before, after = _sides(finish)
    if not finish.seconds < ENDLESS:
        return ""
    if not finish.late < ENDLESS:
        return f"or {NEVER}"
    due = math.nan if plan.deadline is None else plan.deadline - plan.made
    close = finish.early <= due <= finish.late
    wider = max(before, after)
    if not close and (wider < MATTERS * finish.seconds or wider < min(60, finish.seconds / 4)):
        return ""
    if roughly(before) == roughly(after):
        return f"+- {roughly(after)}"
    sides = ((f"-{roughly(before)}", before), (f"+{roughly(after)}", after))
    return " ".join(side for side, seconds in sides if round(seconds))


def _sides(finish: Finish) -> tuple[float, float]:
    return max(0.0, finish.seconds - finish.early), max(0.0, finish.late - finish.seconds)


def _by_then(finish: Finish | None, plan: Plan) -> str:
    if plan.deadline is None or finish is None or finish.in_time is None:
        return NONE
    return chance(finish.in_time)


def _tidy(number: float) -> str:
    return f"{number:,.0f}" if number >= TEN else f"{round(number, 1):g}"


def _basis(way: Way) -> str:
    if way.basis is not Basis.TRIAL or not way.pace:
        return way.basis.value
    return f"trial, {counted_steps(way.pace.steps)} in {roughly(way.pace.seconds)}"


def _money(dollars: float) -> str:
    return (
        f"{dollars:,.0f}"
        if dollars >= TEN or dollars == int(dollars)
        else f"{max(dollars, 0.01):.2f}"
    )


def _priced(price: Price) -> str:
    host = urlsplit(price.source).netloc or clean(price.source)
    old = ", old" if price.old else ""
    return f"${_money(price.dollars)} an hour, {host}, {priced_on(price)}{old}"
