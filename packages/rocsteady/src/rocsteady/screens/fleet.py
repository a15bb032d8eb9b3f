"""``rocsteady fleet``: one line for each machine, or several alike, that differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rocsteady.colours import BOLD
from rocsteady.doctor.fleet import FleetDifference, FleetGroup, FleetReport, label_of
from rocsteady.doctor.knowledge.rules import Rule
from rocsteady.screens.doctor import LABELS
from rocsteady.screens.screen import Page
from rocsteady.wording import plural

VALUES_NAMED = 3  # machines or values on one line; more are counted
COLUMN = 24


def render_fleet(report: FleetReport, rules: Mapping[str, Rule], *, page: Page) -> str:
    for group in report.groups:
        _group(page, group, rules)
        page.line()
    if not report.groups:
        page.line("No machine could be read.", style=BOLD)
    for file in report.unreadable:
        page.paragraph(f"not read: {file.file}: {file.why}")
    return str(page)


def _group(page: Page, group: FleetGroup, rules: Mapping[str, Rule]) -> None:
    total = plural(len(group.machines), "machine")
    if len(group.machines) > 1:
        same = len(group.matching) == len(group.machines)
        total += ". All match" if same else f". {len(group.matching)} match"
    page.paragraph(f"{total}: {', '.join(group.normal)}.", style=BOLD)
    if group.rules:
        where = "On all of them" if len(group.machines) > 1 else "Found"
        worst_first = sorted(group.rules, key=lambda rule: list(LABELS).index(rules[rule].severity))
        named = (f"{LABELS[rules[rule].severity][:-1]} {rule}" for rule in worst_first)
        page.paragraph(f"{where}: {', '.join(named)} (rocsteady explain {worst_first[0]})")
    if group.varying:
        varying = (label_of(name).removesuffix(" in GiB") for name in group.varying)
        page.paragraph(f"Different on most, so not compared: {', '.join(varying)}.")
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
    others = f" (others {_some(it.lacks)})" if it.lacks else " (not the others)"
    return (
        f"{it.label} {_some(it.has)}{others}" if it.has else f"{it.label} {_some(it.lacks)} missing"
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - VALUES_NAMED
    return ", ".join(names[:VALUES_NAMED]) + (f" and {more} more" if more > 0 else "")
