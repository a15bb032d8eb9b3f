"""How old the knowledge is, what it holds, and what another one would change."""

from __future__ import annotations

from rocsteady.doctor.values import KnowledgeDifference, KnowledgeState
from rocsteady.model import Value
from rocsteady.report.text_page import BOLD, YELLOW, Page
from rocsteady.wording import plural

LABEL = 12
ORIGINS = {"bundle": "a bundle that you installed", "package": "the package"}


class KnowledgeCounts(Value, frozen=True, kw_only=True):
    """What ``rocsteady knowledge`` says."""

    version: int = 1
    state: KnowledgeState
    origin: str  # bundle or package
    own: int  # entries of the user's own
    entries: dict[str, int]  # by kind


def render_counts(counts: KnowledgeCounts, *, width: int, colour: bool) -> str:
    """Lay out the screen."""
    page = Page(width, colour=colour)
    age = plural(counts.state.age_days, "day")
    page.line(f"Knowledge base dated {counts.state.date} ({age} old)", style=BOLD)
    page.row("From", ORIGINS[counts.origin], column=LABEL)
    for kind, count in counts.entries.items():
        page.row(kind, f"{count:,}", column=LABEL)
    if counts.own:
        page.row("your own", f"{counts.own:,} of these", column=LABEL)
    for note in counts.state.notes:
        page.paragraph(note, style=YELLOW)
    return str(page)


def render_difference(found: KnowledgeDifference, *, width: int, colour: bool) -> str:
    """List the names of what is new, gone and changed."""
    page = Page(width, colour=colour)
    for sign, names in (("+", found.added), ("-", found.removed), ("~", found.changed)):
        for name in names:
            page.line(f"{sign} {name}")
    numbers = (
        f"{len(found.added)} added, {len(found.removed)} removed, {len(found.changed)} changed"
    )
    page.line(f"{numbers}.", style=BOLD)
    return str(page)
