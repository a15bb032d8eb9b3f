"""The screen of a plan: what is to be done, the ways to do it, the one to take, and its command.

What does not fit beside a way stands below it. A wider terminal folds less.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from pathlib import PureWindowsPath
from types import MappingProxyType

from rocsteady.plan import Basis, Plan, Way
from rocsteady.report.option import NONE, cells, clean, counted_steps, priced_on, titled
from rocsteady.report.page import BOLD, DIM, YELLOW, Page, counted
from rocsteady.report.times import moment, roughly, spelled

INDENT, GAP = 2, 2
RIGHT = ("", "it/s", "by then", "cost", "set-up")  # columns of figures
RESTS = "rests on"
LEAST_WAY, MOST_WAY = 23, 34  # columns of a title; a longer one is wrapped
LEAST_RESTS = 32
FOLDS = (  # what goes below the row, one after the other, until the rest fits
    (RESTS,),
    ("90 %",),
    ("cost", "set-up", "risk"),
    ("by then",),
)
LIMITS = MappingProxyType(
    {
        "data": "the loader",
        "simulation": "the simulation, in the script's own code,",
        "own code": "the script's own Python code",
        "compute": "computing",
        "compile": "compiling",
        "checkpoint": "writing checkpoints",
        "evaluate": "evaluation",
        "other ranks": "waiting for other ranks",
    }
)
LIMIT = 0.4  # of the time; a smaller part is no limit, only the largest
IDS = 3  # that are told of what is ruled out
SHARES = 4  # parts of the time that are told
MANY = 10  # times as fast; from here on a fraction says little
JUST_NOW = 120  # seconds
AGED = 3600  # seconds after which a plan says how old it is


def render_plan(
    plan: Plan, *, now: float, width: int, colour: bool, zone: tzinfo | None = None
) -> str:
    """Lay out the screen; times are local, or of the zone given."""
    page = Page(width, colour=colour)
    page.paragraph(_head(plan, now, zone))
    page.paragraph(_tried(plan, now))
    if plan.ways:
        page.line()
        _ways(page, plan, now, zone)
    if plan.ruled_out:
        page.line()
        _listed(page, "Ruled out:", plan.ruled_out)
    if plan.not_tried:
        page.line()
        _listed(page, "Not tried:", plan.not_tried)
    page.line()
    _take(page, plan)
    if plan.limits:
        page.line()
        page.paragraph(_limits(plan))
    warnings = _warnings(plan, now)
    if warnings:
        page.line()
    for warning in warnings:
        page.paragraph(warning, style=YELLOW)
    return str(page)


def _head(plan: Plan, now: float, zone: tzinfo | None) -> str:
    """Say what is to be done, until when."""
    unknown = "how much is left is not known"
    parts = [_script(plan), unknown if plan.left is None else f"{counted_steps(plan.left)} left"]
    if plan.deadline is not None:
        ahead = plan.deadline - now
        due = moment(plan.deadline, now=now, zone=zone)
        near = f"in {spelled(ahead)}" if ahead >= 0 else f"{spelled(-ahead)} ago"
        parts.append(f"{'due' if ahead >= 0 else 'was due'} {due} ({near})")
    else:
        parts.append("no deadline")
    return f"{', '.join(parts)}."


def _tried(plan: Plan, now: float) -> str:
    if not plan.trials:
        return "Nothing was tried."
    age = max(0.0, now - plan.made)
    ago = "just now" if age < JUST_NOW else f"{roughly(age)} ago"
    return f"{counted(plan.trials, 'trial')}, {spelled(plan.trial_seconds)} in all, {ago}."


def _script(plan: Plan) -> str:
    """Name the script as a person would."""
    words = [PureWindowsPath(clean(word)).name or clean(word) for word in plan.command]
    for before, word in zip(["", *words], words, strict=False):
        if before == "-m" or word.endswith((".py", ".sh")):
            return word
    return words[0] if words else clean(plan.folder)


def _ways(page: Page, plan: Plan, now: float, zone: tzinfo | None) -> None:
    rows = [cells(way, plan, now=now, zone=zone) for way in plan.ways]
    empty = {name for name in rows[0] if all(row[name] in ("", NONE) for row in rows)} - {"way"}
    names = [name for name in rows[0] if name not in empty]
    shown, widths = _fitted(names, rows, page.width)
    _line(page, {name: name for name in shown}, widths, style=BOLD)
    below = INDENT + widths[""] + 2 * GAP
    for way, row in zip(plan.ways, rows, strict=True):
        _line(page, {name: row[name] for name in shown}, widths)
        folded = [_labelled(name, row[name]) for name in names if name not in shown]
        page.paragraph("; ".join(filter(None, folded)), indent=below, style=DIM)
        if way.changes:
            page.paragraph(f"Changes: {clean(way.changes)}", indent=below, style=YELLOW)
        if way.do and way is not plan.ways[0] and way.do != _run(way):
            page.line(" " * below + clean(way.do))


def _fitted(
    names: Sequence[str], rows: Sequence[Mapping[str, str]], width: int
) -> tuple[list[str], dict[str, int]]:
    """Return the columns that fit, the title not squeezed, and their widths."""
    needed = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
    title, rests = needed["way"], needed[RESTS]
    needed[RESTS] = min(rests, LEAST_RESTS)
    shown, room = list(names), 0
    for fold in ((), *FOLDS):
        shown = [name for name in shown if name not in fold]
        others = sum(needed[name] + GAP for name in shown if name != "way")
        room = width - INDENT - others
        if room >= min(title, LEAST_WAY):
            break
    needed["way"] = max(len("way"), min(title, room, MOST_WAY))
    needed[RESTS] += max(0, room - needed["way"])
    return shown, needed


def _labelled(name: str, text: str) -> str:
    """Say what a figure is that stands below its row."""
    if text == NONE:
        return ""
    if name in ("cost", "set-up", "risk"):
        return f"{name} {text}"
    if name == "90 %" and text:
        return f"{text} (90 %)"
    return f"{text} {name}" if name == "by then" else text


def _line(page: Page, row: Mapping[str, str], widths: Mapping[str, int], style: str = "") -> None:
    """Add one row; what is too long is wrapped under its own column."""
    lines = {
        name: textwrap.wrap(text, widths[name], break_on_hyphens=False)
        for name, text in row.items()
    }
    for number in range(max(map(len, lines.values()))):
        parts = []
        for name, cell in lines.items():
            text = cell[number] if number < len(cell) else ""
            parts.append(text.rjust(widths[name]) if name in RIGHT else text.ljust(widths[name]))
        page.line((" " * INDENT + (" " * GAP).join(parts)).rstrip(), style=style)


def _listed(page: Page, head: str, ways: Sequence[Way]) -> None:
    """List what has no row, with why and the finding or observation that says so."""
    page.line(head, style=BOLD)
    rows = [{"way": titled(way), RESTS: _why(way)} for way in ways]
    title = min(max(len(row["way"]) for row in rows), MOST_WAY, page.width // 3)
    widths = {"way": title, RESTS: page.width - INDENT - title - GAP}
    for row in rows:
        _line(page, row, widths)


def _why(way: Way) -> str:
    said = "; ".join(clean(text).rstrip(".") for text in way.rests_on) or way.basis.value
    ids = [clean(source) for source in way.sources if "://" not in source and source not in said]
    return f"{said} [{', '.join(ids[:IDS])}]" if ids else said


def _take(page: Page, plan: Plan) -> None:
    if not plan.ways:
        page.paragraph(clean(plan.take) or "No way is left: all are ruled out.", style=BOLD)
        return
    best = plan.ways[0]
    page.paragraph(clean(plan.take) or f"Take {best.number}: {titled(best)}.", style=BOLD)
    if best.do and (plan.trials or best.basis is not Basis.ESTIMATE):
        page.line(f"  {clean(best.do)}")
    others = [way for way in plan.ways[1:] if way.do == _run(way)]
    if others:
        page.paragraph(f"Another way: {_run(others[0])}", style=DIM)


def _run(way: Way) -> str:
    return f"rocsteady run --plan {way.number}"


def _limits(plan: Plan) -> str:
    """Say where the time goes, and what would help most."""
    known = [it for it in plan.limits if it.share is not None]
    shares = ", ".join(f"{clean(it.part)} {_percent(it.share)}" for it in plan.limits[:SHARES])
    if not known or len(known) < len(plan.limits):
        return f"Where the time goes: {shares} (too few samples of the stack)."
    first, share = known[0], known[0].share or 0.0
    name = LIMITS.get(first.part, clean(first.part))
    is_the = "is the limit" if share >= LIMIT else "takes the most"
    where = f", most of it in {clean(first.where)}" if first.where else ""
    said = f"Where the time goes: {shares}: {name} {is_the}{where}."
    best = max((it for it in plan.limits if it.best), key=lambda it: it.gain, default=None)
    if not best:
        return said
    help_ = clean(best.best).rstrip(".")
    return f"{said} {help_[:1].upper()}{help_[1:]}{_gain(best.gain)}."


def _percent(share: float | None) -> str:
    return "not known" if share is None else f"{100 * share:.0f} %"


def _gain(gain: float) -> str:
    if round(gain, 1) <= 1:
        return ""
    times = f"{gain:.0f}" if round(gain, 1) >= MANY else f"{gain:.1f}"
    return f": {times} times as fast, by the phases measured"


def _warnings(plan: Plan, now: float) -> list[str]:
    """Say what the plan lacks, then what its maker says."""
    said = []
    if plan.left is None:
        said.append(
            "No total is known, so no end can be told: give total in rocsteady.toml and plan again."
        )
    if plan.deadline is None:
        said.append("No deadline is known: deadline in rocsteady.toml sets one.")
    old = [way for way in plan.ways if way.price and way.price.old]
    if old:
        days = ", ".join(f"{way.number} ({priced_on(way.price)})" for way in old if way.price)
        said.append(f"Old prices: {days}. Look at today's before you rent.")
    if now - plan.made > AGED:
        age = spelled(now - plan.made)
        said.append(f"Made {age} ago: what starts now ends that much later.")
    return said + [clean(warning) for warning in plan.warnings]
