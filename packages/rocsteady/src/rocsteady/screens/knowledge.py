"""How old the knowledge is, what it contains, and how to upgrade it."""

from __future__ import annotations

from rocsteady.doctor.values import KnowledgeReport
from rocsteady.screens.text_page import BOLD, YELLOW, Page
from rocsteady.wording import plural

LABEL = 20
LISTED = 5  # ignored entries by name; --json has them all


def render_knowledge(report: KnowledgeReport, *, width: int, colour: bool) -> str:
    """Lay out the screen."""
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
