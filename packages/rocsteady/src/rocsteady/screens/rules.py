"""Rules as a list, the whole story of one, and the state of the knowledge they come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocsteady.doctor.knowledge.rules import PLACEHOLDER, Rule
from rocsteady.doctor.knowledge.values import Severity, Source
from rocsteady.doctor.values import KnowledgeReport
from rocsteady.screens.text_page import BOLD, YELLOW, Page
from rocsteady.wording import plural

STANDS_FOR = {"gpu.extras": "device-<gfx>", "gpu.discrete.indices": "<numbers>"}  # no machine


def render_rule_list(rules: Iterable[Rule], *, width: int, colour: bool) -> str:
    page = Page(width, colour=colour)
    listed = list(rules)
    column = max((len(rule.id) for rule in listed), default=0) + 2
    for severity in Severity:
        page.line(severity.value.upper(), style=BOLD)
        for rule in listed:
            if rule.severity is severity:
                page.row(rule.id, rule.title, indent=2, column=column)
    return str(page)


def render_rule(rule: Rule, sources: Mapping[str, Source], *, width: int, colour: bool) -> str:
    page = Page(width, colour=colour)
    page.line(f"{rule.id}  {rule.severity.value}", style=BOLD)
    page.paragraph(f"{rule.title}.")
    page.line()
    page.paragraph(rule.why)
    page.line()
    page.line("What to do", style=BOLD)
    page.paragraph(rule.fix.text, indent=2)
    page.lines(typed(rule.fix.commands), indent=4)
    for place, commands in (
        ("In a container:", rule.fix.container),
        ("In PowerShell:", rule.fix.windows),
    ):
        if commands:
            page.paragraph(place, indent=2)
            page.lines(typed(commands), indent=4)
    if rule.fix.needs:
        page.paragraph(f"Needs: {', '.join(need.value for need in rule.fix.needs)}.", indent=2)
    if rule.fix.verify:
        page.paragraph(f"To check that it worked: {rule.fix.verify}", indent=2)
    page.line()
    page.line("Sources", style=BOLD)
    page.paragraph(f"Confidence: {rule.confidence.value}.", indent=2)
    confirmed = ", ".join(rule.confirmed_on) or "no, not by rocsteady's authors"
    page.paragraph(f"Confirmed on hardware: {confirmed}.", indent=2)
    for key in rule.sources:
        _source(page, sources[key])
    return str(page)


def typed(commands: Iterable[str]) -> list[str]:
    """Return commands as one would type them; what a machine would fill in is in angle brackets."""
    return [
        PLACEHOLDER.sub(lambda found: STANDS_FOR.get(found[1], f"<{found[1]}>"), command)
        for command in commands
    ]


def _source(page: Page, source: Source) -> None:
    number = f"#{source.number}" if source.number else ""
    page.paragraph(f"{source.owner}/{source.name}{number}, {source.date}: {source.title}", indent=2)
    if source.url:
        page.line(f"    {source.url}")


LABEL = 20
LISTED = 5  # ignored entries by name; --json has them all


def render_knowledge(report: KnowledgeReport, *, width: int, colour: bool) -> str:
    page = Page(width, colour=colour)
    age = plural(report.state.age_days, "day")
    page.line(f"Knowledge {report.state.version} ({age} old)", style=BOLD)
    for table in report.tables:
        days = plural(table.age_days or 0, "day")
        newest = f"newest source {table.newest_source} ({days} old)" if table.newest_source else ""
        page.line(f"{table.name:<{LABEL}}{table.entries:>6,}  {newest}".rstrip())
    page.line(f"{'your own':<{LABEL}}{report.own:>6,}  {report.own_folder}")
    newer = "newer than this rocsteady understands" if report.ignored else ""
    page.line(f"{'ignored':<{LABEL}}{len(report.ignored):>6,}  {newer}".rstrip())
    page.lines(report.ignored[:LISTED], indent=2)
    for note in report.state.notes:
        page.paragraph(note, style=YELLOW)
    page.line()
    page.line(f"To upgrade: {report.upgrade}")
    return str(page)
