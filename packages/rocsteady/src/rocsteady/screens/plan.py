"""The screen of a plan: the work, the options, the recommendation and its command.

The table has what a person needs to choose; everything else is behind ``plan --explain N``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from pathlib import PureWindowsPath
from types import MappingProxyType

from rocsteady.plan.values import Basis, Limit, Option, Plan
from rocsteady.screens.option import (
    based_on,
    brief_reason,
    chance,
    clean,
    cost,
    finishes,
    gpu_busy,
    pace,
    priced_on,
    titled,
)
from rocsteady.screens.text_page import (
    BOLD,
    DIM,
    GREEN,
    LEAST_LAST,
    NONE,
    RED,
    YELLOW,
    Column,
    Page,
)
from rocsteady.screens.times import moment
from rocsteady.wording import duration, plural, rough_duration

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
LIMITS = MappingProxyType(
    {
        "data": "the data loader",
        "simulation": "the simulation in the script's own code",
        "own code": "the script's own Python code",
        "compute": "computation",
        "compile": "compilation",
        "checkpoint": "writing checkpoints",
        "evaluate": "evaluation",
        "other ranks": "waiting for other ranks",
    }
)
LIMIT = 0.4  # of the time; a smaller share is only the largest one
SHARES = 4  # of the time that are listed
MANY = 10  # times as fast; from here on a fraction says little
GROUPS = 3  # reasons that are listed; --explain all has the others
JUST_NOW = 120  # seconds
AGED = 3600  # seconds after which a plan says how old it is
DETAILS = 35  # column of the hint beside the command


def render_plan(
    plan: Plan, *, now: float, width: int, colour: bool, zone: tzinfo | None = None
) -> str:
    """Lay out the screen; times are local, or of the zone given."""
    page = Page(width, colour=colour)
    page.paragraph(_head(plan, now, zone))
    if plan.options:
        page.line()
        _options(page, plan, now, zone)
    for head, options in (("Ruled out", plan.ruled_out), ("Not measured", plan.not_tried)):
        if options:
            page.paragraph(f"{head}: {_grouped(options)}.")
    if plan.limits:
        page.paragraph(limits(plan))
    page.line()
    _recommendation(page, plan)
    for warning in _warnings(plan, now):
        page.paragraph(warning, style=YELLOW)
    return str(page)


def limits(plan: Plan) -> str:
    """Say where the time goes, and what would help most."""
    known = [it for it in plan.limits if it.share is not None]
    shares = ", ".join(f"{clean(it.part)} {_percent(it.share)}" for it in plan.limits[:SHARES])
    if not known or len(known) < len(plan.limits):
        return f"Time goes to: {shares} (too few stack samples)."
    first, share = known[0], known[0].share or 0.0
    name = LIMITS.get(first.part, clean(first.part))
    is_the = "is the bottleneck" if share >= LIMIT else "takes the most time"
    where = f", mostly in {clean(first.where)}" if first.where else ""
    summary = f"Time goes to: {shares}; {name} {is_the}{where}.{_idle_gpu(plan, first)}"
    best = max((it for it in plan.limits if it.best), key=lambda it: it.gain, default=None)
    if not best:
        return summary
    return f"{summary} Most to gain: {clean(best.best).rstrip('.')}{_gain(best.gain)}."


def _idle_gpu(plan: Plan, first: Limit) -> str:
    """Say how busy the GPU was, where something else takes the most time."""
    if first.part == "compute":
        return ""
    paces = (option.pace for option in plan.options if option.pace)
    busy = next((pace.gpu_busy for pace in paces if pace.gpu_busy is not None), None)
    return (
        "" if busy is None else f" The GPU was busy {busy:.0f} % of the time and idle for the rest."
    )


def _head(plan: Plan, now: float, zone: tzinfo | None) -> str:
    """Say what is to be done, by when, and what was tried."""
    left = "unknown amount of work" if plan.left is None else f"{plural(plan.left, 'step')} left"
    due = "no deadline"
    if plan.deadline is not None:
        ahead = plan.deadline - now
        near = f"in {duration(ahead)}" if ahead >= 0 else f"{duration(-ahead)} ago"
        due = f"deadline {moment(plan.deadline, now=now, zone=zone)} ({near})"
    age = max(0.0, now - plan.made)
    ago = "" if age < JUST_NOW else f", {rough_duration(age)} ago"
    took = "No trials were made"
    if plan.machine:
        took = (
            f"Nothing was tried on the recorded machine {clean(plan.machine)}: {_estimates(plan)}"
        )
    elif plan.trials:
        took = f"{plural(plan.trials, 'trial')} took {duration(plan.trial_seconds)}{ago}"
    return f"{_script(plan)}: {left}, {due}. {took}."


def _estimates(plan: Plan) -> str:
    return "all options are estimates" if plan.options else "no option is left"


def _script(plan: Plan) -> str:
    """Name the script as a person would."""
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
                finishes(finish, plan.made, now, zone) if finish else NONE,
                NONE if on_time is None else chance(on_time),
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
    explain = f"Details: {typed} --explain {best.number}"
    if best.do and (plan.trials or best.basis is not Basis.ESTIMATE):
        command = f"  {clean(best.do)}"
        if max(len(command) + 2, DETAILS) + len(explain) <= page.width:
            page.line(f"{command:<{DETAILS - 1}} {explain}")
            return
        page.line(command)
    page.line(f"  {explain}", style=DIM)


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


def _percent(share: float | None) -> str:
    return "not known" if share is None else f"{100 * share:.0f} %"


def _gain(gain: float) -> str:
    if round(gain, 1) <= 1:
        return ""
    times = f"{gain:.0f}" if round(gain, 1) >= MANY else f"{gain:.1f}"
    return f" (up to {times} times as fast)"


def _warnings(plan: Plan, now: float) -> list[str]:
    """Say what the plan lacks, then what its maker says."""
    sentences = []
    if plan.left is None:
        sentences.append(
            "The amount of work is unknown, so there is no forecast. Set total in rocsteady.toml"
            " and plan again."
        )
    if plan.deadline is None:
        sentences.append("No deadline is set. To set one: deadline in rocsteady.toml.")
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
