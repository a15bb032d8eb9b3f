"""A long text and a list of runs on a full screen: what fits, from where the reader is."""

from __future__ import annotations

from collections.abc import Sequence

from rocsteady.printable import printable
from rocsteady.screens.runs import state_of
from rocsteady.screens.text_page import BOLD, DIM, Page
from rocsteady.screens.watch import clipped
from rocsteady.store.values import RunLine

SCROLL_KEYS = "up and down scroll  space next page  q back"
CHOICE_KEYS = "up and down, or a number, choose  enter shows  q quit"
MORE = 2  # lines for the title and the keys


def text_room(height: int) -> int:
    """Return how many lines of a text a screen has room for."""
    return max(1, height - MORE)


def render_text(  # noqa: PLR0913 - each is said by name
    title: str, lines: Sequence[str], *, first: int, width: int, height: int, colour: bool
) -> str:
    """Lay out the lines from ``first`` on, below a title."""
    styled = Page(width, colour=colour).styled
    room = text_room(height)
    shown = [clipped(printable(line.expandtabs(4)), width) for line in lines[first : first + room]]
    last = min(first + room, len(lines))
    head = clipped(f"{title}  (lines {first + 1} to {last} of {len(lines)})", width)
    rest = [""] * (room - len(shown))
    keys = styled(clipped(SCROLL_KEYS, width), DIM)
    return "\n".join([styled(head, BOLD), *shown, *rest, keys][:height])


def render_choice(
    lines: Sequence[RunLine], chosen: int, *, width: int, height: int, colour: bool
) -> str:
    """Lay out runs, one a line, the chosen one marked."""
    styled = Page(width, colour=colour).styled
    room = text_room(height)
    first = max(0, chosen - room + 1)
    rows = []
    for number, line in list(enumerate(lines))[first : first + room]:
        mark = ">" if number == chosen else " "
        step = "" if line.step is None else f"step {line.step:,}"
        total = f"/{line.total:,}" if line.total and step else ""
        text = f"{mark} {number + 1}  {line.run.name:<24} {state_of(line):<12} {step}{total}"
        rows.append(styled(clipped(printable(text), width).rstrip(), BOLD * (number == chosen)))
    head = styled(clipped("Choose a run", width), BOLD)
    rest = [""] * (room - len(rows))
    return "\n".join([head, *rows, *rest, styled(clipped(CHOICE_KEYS, width), DIM)][:height])
