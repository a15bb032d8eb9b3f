"""Pages of text for a terminal of any width: rich wraps, aligns and colours.

All text is taken as it is: nothing in it is read as markup, and control characters are made
visible. Words are never broken, so a command or path can be copied whole.
"""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TextIO

from rocsteady.printable import printable

if TYPE_CHECKING:
    from rich.text import Text

NARROW, WIDE = 40, 120  # columns to lay out for, whatever the terminal says
RED, GREEN, YELLOW, DIM, BOLD = "red", "green", "yellow", "dim", "bold"
NONE = "-"  # what a cell without a value shows
GAP = 2  # columns between those of a table
LEAST_LAST = 30  # columns of a last column that wraps; with less it goes below its row


class Column(NamedTuple):
    """A column of a table: its heading, where its text stands, and how narrow it may get."""

    name: str
    right: bool = False
    least: int = 0  # columns to which its text may be wrapped; 0: never wrapped


def takes_colour(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether colours are welcome: on a terminal, and unless the user wants none."""
    plain = "NO_COLOR" in environment or environment.get("TERM") == "dumb" or os.name == "nt"
    return stream.isatty() and not plain


def coloured(text: str, style: str) -> str:
    page = Page(len(text), colour=True)
    page.line(text, style=style)
    return str(page).removesuffix("\n")


class Page:
    def __init__(self, width: int, *, colour: bool) -> None:
        from rich.console import Console  # noqa: PLC0415 - 30 ms, and many commands show no page

        self.width = max(NARROW, min(width, WIDE))
        self._drawn = io.StringIO()
        self._console = Console(
            file=self._drawn,
            width=self.width,
            color_system="standard" if colour else None,
            force_terminal=colour,
            no_color=not colour,
            markup=False,
            emoji=False,
            highlight=False,
            soft_wrap=True,
            legacy_windows=False,
        )

    def line(self, text: str = "", *, style: str = "") -> None:
        """Add one line as it is: what is meant to be copied is never broken."""
        self.styled_line((text, style))

    def styled_line(self, *pieces: tuple[str, str]) -> None:
        from rich.text import Text  # noqa: PLC0415 - loaded with the console

        self._console.print(Text.assemble(*(_text(text, style) for text, style in pieces)))

    def lines(self, lines: Iterable[str], *, indent: int = 0) -> None:
        for line in lines:
            self.line(" " * indent + line)

    def paragraph(self, text: str, *, indent: int = 0, style: str = "") -> None:
        for line in wrapped(text, self.width - indent):
            self.styled_line((" " * indent, ""), (line, style))

    def row(self, label: str, text: str, *, indent: int = 0, column: int, style: str = "") -> int:
        """Add a label and beside it wrapped text; below it, if the page is too narrow for both.

        Returns the column at which the text begins.
        """
        start = indent + column
        if self.width - start < NARROW - indent or len(label) >= column:
            if label:
                self.styled_line((" " * indent, ""), (label, style))
            self.paragraph(text, indent=indent + 2)
            return indent + 2
        first, *rest = wrapped(text, self.width - start) or [""]
        beside = " " * (column - len(label)) + first
        self.styled_line((" " * indent, ""), (label, style), (beside, ""))
        self.lines(rest, indent=start)
        return start

    def table(
        self,
        columns: Sequence[Column],
        rows: Sequence[Sequence[str]],
        styles: Mapping[tuple[int, int], str] | None = None,
        *,
        indent: int = 0,
    ) -> None:
        """Add rows of cells under headings; ``styles`` colours cells by row and column.

        A column without a value in any row is left out. The last columns go below their row if
        there is no room for them, which a table of rich cannot do.
        """
        used = [n for n in range(len(columns)) if any(row[n] not in ("", NONE) for row in rows)]
        widths = _fit({n: columns[n] for n in used}, rows, self.width - indent)
        folded = [n for n in used if n not in widths]
        below = indent + min(widths[used[0]], GAP) + GAP
        self._cells({n: _text(columns[n].name, BOLD) for n in widths}, columns, widths, indent)
        for number, row in enumerate(rows):
            cells = {n: _text(row[n], (styles or {}).get((number, n), "")) for n in widths}
            self._cells(cells, columns, widths, indent)
            texts = [
                row[n] if columns[n].least else f"{columns[n].name} {row[n]}"
                for n in folded
                if row[n] not in ("", NONE)
            ]
            self.paragraph("; ".join(texts), indent=below, style=DIM)

    def _cells(
        self,
        cells: Mapping[int, Text],
        columns: Sequence[Column],
        widths: Mapping[int, int],
        indent: int,
    ) -> None:
        from rich.padding import Padding  # noqa: PLC0415 - only pages with tables need them
        from rich.table import Table  # noqa: PLC0415

        row = Table.grid(padding=(0, GAP, 0, 0))
        for n, width in widths.items():
            row.add_column(width=width, justify="right" if columns[n].right else "left")
        row.add_row(*cells.values())
        self._console.print(Padding(row, (0, 0, 0, indent)), soft_wrap=False)

    def __str__(self) -> str:
        return "".join(f"{line.rstrip()}\n" for line in self._drawn.getvalue().split("\n")[:-1])


def wrapped(text: str, width: int) -> list[str]:
    """Break text into lines; words, paths and addresses stay whole, which rich would break."""
    text, width = " ".join(text.split()), max(width, NARROW // 2)
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text  # noqa: PLC0415 - loaded with the console

    return Text(printable(text), style)


def _fit(columns: Mapping[int, Column], rows: Sequence[Sequence[str]], room: int) -> dict[int, int]:
    """Return the columns that fit, with their widths; those that may be wrapped get narrower."""
    from rich.cells import cell_len  # noqa: PLC0415 - loaded with the console

    widths = {
        n: max(map(cell_len, (column.name, *(row[n] for row in rows))))
        for n, column in columns.items()
    }
    least = {n: min(width, columns[n].least or width) for n, width in widths.items()}
    while len(widths) > 1 and sum(least[n] + GAP for n in widths) - GAP > room:
        widths.popitem()
    for n in reversed(widths):
        excess = sum(width + GAP for width in widths.values()) - GAP - room
        widths[n] = max(least[n], widths[n] - max(excess, 0))
    return widths
