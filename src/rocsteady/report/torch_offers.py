"""The builds of torch for one GPU, as a list with a command for each."""

from __future__ import annotations

from rocsteady.report.page import BOLD, DIM, GREEN, RED, YELLOW, Page
from rocsteady.vocabulary import Severity, TorchOffer, TorchOffers
from rocsteady.wording import plural

COLUMN = 10
MOST = 4  # builds in full; the others by name


def render_offers(found: TorchOffers, *, width: int, colour: bool, everything: bool = False) -> str:
    """Lay out the screen."""
    page = Page(width, colour=colour)
    python = f", Python {found.python}" if found.python else ""
    page.paragraph(f"Builds of torch for {found.gfx} on {found.system}{python}", style=BOLD)
    most = len(found.offers) if everything else MOST
    for offer in found.offers[:most]:
        page.line()
        _offer(page, offer)
    page.line()
    others = [f"{offer.torch} (ROCm {offer.rocm})" for offer in found.offers[most:]]
    if others:
        page.row("also", f"torch {', '.join(others)}: see --all", column=COLUMN, style=DIM)
        page.line()
    page.paragraph(closing_sentence(found), style=BOLD)
    if found.left_out:
        told = ", ".join(f"{count} {why}" for why, count in found.left_out.items())
        page.paragraph(f"Left out: {told}.", style=DIM)
    return str(page)


def closing_sentence(found: TorchOffers) -> str:
    """Say how many there are."""
    if not found.offers:
        return f"No build of torch with code for {found.gfx} is known for {found.system}."
    usable = "" if found.usable() else " Each has a problem that blocks training."
    return f"{plural(len(found.offers), 'build')}.{usable}"


def _offer(page: Page, offer: TorchOffer) -> None:
    blocked = any(each.severity is Severity.BLOCKS for each in offer.problems)
    label = "broken" if blocked else "official" if offer.official else "untested"
    style = RED if blocked else GREEN if offer.official else YELLOW
    title = f"torch {offer.torch} for ROCm {offer.rocm}, {offer.title}"
    page.row(label, title, column=COLUMN, style=style)
    page.line(" " * COLUMN + offer.install)
    for problem in offer.problems:
        page.paragraph(f"{problem.summary} ({problem.rule})", indent=COLUMN)
    if offer.note:
        page.paragraph(offer.note, indent=COLUMN, style=DIM)
