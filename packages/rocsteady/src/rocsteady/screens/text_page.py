"""Lines of text for a terminal of any width: wrapped, indented, and coloured only if wanted."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Mapping
from typing import TextIO

from rocsteady.printable import printable

NARROW, WIDE = 40, 120  # columns to lay out for, whatever the terminal says
RED, GREEN, YELLOW, DIM, BOLD = "31", "32", "33", "2", "1"


def takes_colour(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether colours are welcome: on a terminal, and unless the user wants none."""
    plain = "NO_COLOR" in environment or environment.get("TERM") == "dumb" or os.name == "nt"
    return stream.isatty() and not plain


def coloured(text: str, style: str) -> str:
    """Wrap text in a colour."""
    return f"\x1b[{style}m{text}\x1b[0m"


class Page:
    """Collects lines."""

    def __init__(self, width: int, *, colour: bool) -> None:
        self.width = max(NARROW, min(width, WIDE))
        self._colour = colour
        self._lines: list[str] = []

    def line(self, text: str = "", *, style: str = "") -> None:
        """Add one line as it is: what is meant to be copied is never broken."""
        self._lines.append(self.styled(text, style))

    def line_as_it_is(self, text: str) -> None:
        """Add a line whose parts are already printable and styled."""
        self._lines.append(text)

    def paragraph(self, text: str, *, indent: int = 0, style: str = "") -> None:
        """Add text, wrapped."""
        for line in wrapped(text, self.width - indent):
            self.line(" " * indent + line, style=style)

    def row(self, label: str, text: str, *, indent: int = 0, column: int, style: str = "") -> int:
        """Add a label and beside it wrapped text; below it, if the page is too narrow for both.

        Returns the column at which the text begins.
        """
        start = indent + column
        if self.width - start < NARROW - indent or len(label) >= column:
            if label:
                self.line(" " * indent + label, style=style)
            self.paragraph(text, indent=indent + 2)
            return indent + 2
        first, *rest = wrapped(text, self.width - start) or [""]
        beside = self.styled(label, style) + " " * (column - len(label))
        self._lines.append(" " * indent + beside + printable(first))
        for line in rest:
            self.line(" " * start + line)
        return start

    def lines(self, lines: Iterable[str], *, indent: int = 0) -> None:
        """Add lines that must not be broken."""
        for line in lines:
            self.line(" " * indent + line)

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in self._lines) + "\n"

    def styled(self, text: str, style: str) -> str:
        """Return text that is safe to print, in colour if that is wanted."""
        safe = printable(text)
        return coloured(safe, style) if self._colour and style and safe else safe


def wrapped(text: str, width: int, *, least: int = 20) -> list[str]:
    """Break text into lines; words, paths and addresses stay whole."""
    text, width = " ".join(text.split()), max(width, least)
    if len(text) <= width:
        return [text] if text else []
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
