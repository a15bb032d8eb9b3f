"""One table for every screen: fits the terminal, wraps cells at words, folds what does not fit.

Columns that do not fit go below their row, from the last one on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rocsteady.screens.text_page import BOLD, DIM, Page, wrapped

NONE = "-"  # what a cell without a value shows
GAP = 2  # columns
LEAST_LAST = 30  # columns of a last column that wraps; with less it is folded


class Column(NamedTuple):
    """One column: its heading, where its text stands, and how narrow it may get."""

    name: str
    right: bool = False
    least: int = 0  # columns to which its text may be wrapped; 0: never wrapped


class Table:
    """Rows of cells under headings. A column without a value in any row is left out."""

    def __init__(
        self, columns: Sequence[Column], rows: Sequence[Sequence[str]], *, indent: int = 0
    ) -> None:
        self._columns, self._rows, self._indent = columns, rows, indent
        self._used = [
            n for n in range(len(columns)) if any(row[n] not in ("", NONE) for row in rows)
        ]
        self._widths = {
            n: max(len(columns[n].name), *(len(row[n]) for row in rows)) for n in self._used
        }

    def draw(self, page: Page, styles: Mapping[tuple[int, int], str] | None = None) -> None:
        """Add the table to a page; ``styles`` colours cells by row and column."""
        shown = self._fit(page.width - self._indent)
        folded = self._used[len(shown) :]
        below = self._indent + min(self._widths[self._used[0]], GAP) + GAP
        self._draw_row(page, [column.name for column in self._columns], shown, lambda _: BOLD)
        for number, row in enumerate(self._rows):
            style = {n: (styles or {}).get((number, n), "") for n in shown}
            self._draw_row(page, row, shown, style.__getitem__)
            texts = [self._labelled(n, row[n]) for n in folded if row[n] not in ("", NONE)]
            page.paragraph("; ".join(texts), indent=below, style=DIM)

    def _fit(self, width: int) -> list[int]:
        """Return the columns that fit, after making those narrower that may be wrapped."""
        shown = list(self._used)
        while len(shown) > 1 and self._needed(shown) > width:
            shown.pop()
        for n in reversed(shown):
            excess = sum(self._widths[each] + GAP for each in shown) - GAP - width
            if excess > 0 and self._columns[n].least:
                self._widths[n] = max(self._columns[n].least, self._widths[n] - excess)
        return shown

    def _needed(self, shown: Sequence[int]) -> int:
        """Return the least width of some columns."""
        least = (
            min(self._widths[n], self._columns[n].least or self._widths[n]) + GAP for n in shown
        )
        return sum(least) - GAP

    def _labelled(self, n: int, text: str) -> str:
        return text if self._columns[n].least else f"{self._columns[n].name} {text}"

    def _draw_row(
        self, page: Page, row: Sequence[str], shown: Sequence[int], style: Callable[[int], str]
    ) -> None:
        """Add one row; a cell that is too long is wrapped below itself."""
        cells = {n: wrapped(row[n], self._widths[n], least=1) or [""] for n in shown}
        for line in range(max(map(len, cells.values()))):
            pieces = []
            for n, texts in cells.items():
                text = texts[line] if line < len(texts) else ""
                space = " " * (self._widths[n] - len(text))
                styled = page.styled(text, style(n))
                pieces.append(space + styled if self._columns[n].right else styled + space)
            page.line_as_it_is(" " * self._indent + (" " * GAP).join(pieces))
