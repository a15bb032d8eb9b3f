"""The builds of torch for one GPU, as a list with a command for each."""

from __future__ import annotations

from rocsteady.colours import BOLD, DIM, GREEN, RED, YELLOW
from rocsteady.doctor.knowledge.values import Backing, Severity
from rocsteady.doctor.values import TorchOffer, TorchOffers
from rocsteady.screens.screen import Page
from rocsteady.wording import plural

COLUMN = 10
BUILDS_SHOWN = 4  # builds in full; the others by name


def render_offers(found: TorchOffers, *, page: Page, everything: bool = False) -> str:
    python = f", Python {found.python}" if found.python else ""
    others = f" and {', '.join(found.others)}" if found.others else ""
    page.paragraph(f"torch builds for {found.gfx}{others} on {found.system}{python}", style=BOLD)
    most = len(found.offers) if everything else BUILDS_SHOWN
    told: set[str] = set()
    for offer in found.offers[:most]:
        page.line()
        _offer(page, offer, told)
    page.line()
    rest = [f"{offer.torch} (ROCm {offer.rocm})" for offer in found.offers[most:]]
    if rest:
        page.row("also", f"torch {', '.join(rest)}: see --all", column=COLUMN, style=DIM)
        page.line()
    page.paragraph(closing_sentence(found), style=BOLD)
    if found.left_out:
        counts = found.left_out.items()
        reasons = ", ".join(f"{plural(count, 'build')} ({why})" for why, count in counts)
        page.paragraph(f"Left out: {reasons}.", style=DIM)
    return str(page)


def closing_sentence(found: TorchOffers) -> str:
    note = f" {found.note}" if found.note else ""
    not_for_python = found.left_out.get(f"not for Python {found.python}", 0)
    if not found.offers and not_for_python:
        return (
            f"No torch build for {found.gfx} and Python {found.python} is known;"
            f" {plural(not_for_python, 'build')} for other Python versions. To list the builds"
            " for another version: --python 3.12"
        )
    if not found.offers:
        return (
            f"No torch build with code for {found.gfx} is known for {found.system}.{note} You"
            " can train on the CPU, on another GPU or on a rented one. To compare them:"
            " rocsteady plan"
        )
    usable = "" if found.usable() else " Each has a problem that blocks training."
    return f"{plural(len(found.offers), 'build')}.{usable}{note}"


def _offer(page: Page, offer: TorchOffer, told: set[str]) -> None:
    blocked = any(each.severity is Severity.BLOCKS for each in offer.problems)
    label = "broken" if blocked else offer.backing.value
    style = RED if blocked else YELLOW if offer.backing is Backing.BUILT else GREEN
    title = f"torch {offer.torch} for ROCm {offer.rocm}, {offer.title}"
    page.row(label, title, column=COLUMN, style=style)
    page.line(" " * COLUMN + offer.install)
    if offer.lacks:
        page.paragraph(f"No code for {', '.join(offer.lacks)}.", indent=COLUMN)
    for problem in offer.problems:
        once_more = "The same problem" if problem.summary in told else problem.summary
        page.paragraph(f"{once_more} ({problem.rule})", indent=COLUMN)
        told.add(problem.summary)
    if offer.note:
        page.paragraph(offer.note, indent=COLUMN, style=DIM)
