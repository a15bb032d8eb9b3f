"""``rocsteady doctor --fleet``: one line for each machine, or several alike, that differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rocsteady.colours import BOLD
from rocsteady.doctor.fleet import FleetDifference, FleetGroup, FleetReport
from rocsteady.screens.doctor import LABELS
from rocsteady.screens.screen import Page
from rocsteady.wording import plural

NAMED = 3  # machines on one line; more are counted
COLUMN = 24


def render_fleet(report: FleetReport, *, width: int, colour: bool) -> str:
    page = Page(width, colour=colour)
    for group in report.groups:
        _group(page, group)
        page.line()
    if not report.groups:
        page.line("No machine could be read.", style=BOLD)
    for file in report.unreadable:
        page.paragraph(f"not read: {file.file}: {file.why}")
    return str(page)


def _group(page: Page, group: FleetGroup) -> None:
    total = plural(len(group.machines), "machine")
    same = "all match" if len(group.matching) == len(group.machines) else None
    matching = same or f"{len(group.matching)} match"
    page.paragraph(f"{total}. {matching}: {', '.join(group.normal)}.", style=BOLD)
    if group.rules:
        page.paragraph(f"On all of them: {', '.join(group.rules)}.")
    if group.varying:
        page.paragraph(f"Different on most, so not compared: {', '.join(group.varying)}.")
    lines: defaultdict[str, list[str]] = defaultdict(list)
    for machine in group.different:
        lines["; ".join(_difference(it) for it in machine.differences)].append(machine.name)
    for text, names in lines.items():
        page.row(_some(names), text, column=COLUMN)
    for rule in group.partial_rules:
        label = LABELS[rule.severity].strip()
        where = f" on {len(rule.machines)} of {len(group.machines)}"
        page.row(_some(rule.machines), f"{label} {rule.rule}{where}: {rule.summary}", column=COLUMN)


def _difference(it: FleetDifference) -> str:
    others = f" (others {', '.join(it.lacks)})" if it.lacks else " (not the others)"
    if it.has:
        return f"{it.label} {', '.join(it.has)}{others}"
    return f"{it.label} {', '.join(it.lacks)} missing"


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
