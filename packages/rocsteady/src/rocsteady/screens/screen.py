"""What every screen is made of: pages of text, a line of progress, and where output goes.

All text is taken as it is: nothing in it is read as markup, and control characters are made
visible. Words are never broken, so a command or path can be copied whole.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeVar

import msgspec

from rocsteady.colours import BOLD, DIM, takes_colour
from rocsteady.printable import printable, printable_json
from rocsteady.typed_values import convert

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


_Value = TypeVar("_Value")

_COLOUR = re.compile(r"(\x1b\[[0-9;]{1,8}m)")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|(?:ms|s|min|h|d|[KMGT]i?B)\b)|(?<=\bROCm) (?=\d)")
PLAIN_WIDTH = 80  # of output that is not on a terminal


def layout(stream: TextIO) -> tuple[int, bool]:
    """Return the width to lay out for, and whether colour is welcome."""
    if not stream.isatty():
        return PLAIN_WIDTH, False
    return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns, takes_colour(stream)


def silence_stdout() -> None:
    """Keep Python from trying once more, at exit, to write what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show(text: str) -> None:
    """Write to stdout. A pipe that was closed by its reader costs nothing: the answer stands.

    What a terminal would act on is written out; colours pass if the terminal takes them.
    """
    _write(_coloured(text) if layout(sys.stdout)[1] else printable(text))


def without_secrets(value: _Value) -> _Value:
    """Return a value without passwords, tokens and keys, to be laid out as text."""
    from rocsteady.store.redaction import Secrets  # noqa: PLC0415 - not needed by every command

    return convert(Secrets().value(msgspec.to_builtins(value)), type(value))


def present(value: _Value, render: Callable[..., str], *, as_json: bool) -> None:
    """Write a value as one JSON object, or as the page that ``render`` makes of it."""
    if as_json:
        show_json(value)
    else:
        show(render(without_secrets(value), page=page_here()))


def show_json(value: object, *, indent: int = 2) -> None:
    _write(json_text(value, indent=indent))


def json_text(value: object, *, indent: int = 2) -> str:
    from rocsteady.store.redaction import Secrets  # noqa: PLC0415 - not needed by every command

    redacted = Secrets().value(msgspec.to_builtins(value))
    text = msgspec.json.encode(_as_unicode(redacted))
    laid_out = msgspec.json.format(text, indent=indent) if indent else text
    return printable_json(laid_out.decode()) + "\n"


def _as_unicode(value: Any) -> Any:  # noqa: ANN401 - what JSON has
    """Write bytes of arguments and paths that are no UTF-8 as JSON can have them."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_as_unicode(name): _as_unicode(each) for name, each in value.items()}
    return [_as_unicode(each) for each in value] if isinstance(value, (list, tuple)) else value


def tell(text: str) -> None:
    sys.stderr.write(f"{printable(text)}\n")  # a line of progress makes room for it
    sys.stderr.flush()


def _coloured(text: str) -> str:
    """Make everything visible but the colours, which a page adds around what is visible already."""
    pieces = _COLOUR.split(text)
    return "".join(piece if number % 2 else printable(piece) for number, piece in enumerate(pieces))


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    except UnicodeEncodeError:
        sys.stdout.write(text.encode("ascii", "backslashreplace").decode("ascii"))


NARROW, WIDE = 40, 120  # columns to lay out for, whatever the terminal says
NO_VALUE = "-"  # what a cell without a value shows
COLUMN_GAP = 2  # columns between those of a table
LEAST_LAST = 30  # columns of a last column that wraps; with less it goes below its row


class Column(NamedTuple):
    """A column of a table: its heading, where its text stands, and how narrow it may get."""

    name: str
    right: bool = False
    least: int = 0  # columns to which its text may be wrapped; 0: never wrapped


class Page:
    def __init__(self, width: int, *, colour: bool) -> None:
        from rich.console import Console  # noqa: PLC0415 - 30 ms, and many commands show no page

        self.width = max(NARROW, min(width, WIDE))
        self.colour = colour
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

    def heading(self, text: str) -> None:
        self.line()
        self.line(text, style=BOLD)

    def styled_line(self, *pieces: tuple[str, str]) -> None:
        from rich.text import Text  # noqa: PLC0415 - loaded with the console

        self._console.print(Text.assemble(*(_text(text, style) for text, style in pieces)))

    def lines(self, lines: Iterable[str], *, indent: int = 0) -> None:
        for line in lines:
            self.line(" " * indent + line)

    def paragraph(self, text: str, *, indent: int = 0, style: str = "") -> None:
        before, _, command = text.partition(": rocsteady ")
        if " -- " in command and len(text) > self.width - indent:  # the user's own: copied whole
            self.paragraph(f"{before}:", indent=indent, style=style)
            self.styled_line((" " * (indent + 2), ""), (f"rocsteady {command}", style))
            return
        for line in wrapped(text, self.width - indent):
            self.styled_line((" " * indent, ""), (line, style))

    def step(self, number: int | None, text: str) -> None:
        """Add what to do, numbered if there is more than one thing."""
        if number is None:
            self.paragraph(text, indent=2)
        else:
            self.row(f"{number}.", text, indent=2, column=3)

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
        used = [n for n in range(len(columns)) if any(row[n] not in ("", NO_VALUE) for row in rows)]
        widths = _fit({n: columns[n] for n in used}, rows, self.width - indent)
        folded = [n for n in used if n not in widths]
        below = indent + min(widths[used[0]], COLUMN_GAP) + COLUMN_GAP
        self._cells({n: _text(columns[n].name, BOLD) for n in widths}, columns, widths, indent)
        for number, row in enumerate(rows):
            cells = {n: _text(row[n], (styles or {}).get((number, n), "")) for n in widths}
            self._cells(cells, columns, widths, indent)
            texts = [
                row[n] if columns[n].least else f"{columns[n].name} {row[n]}"
                for n in folded
                if row[n] not in ("", NO_VALUE)
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

        row = Table.grid(padding=(0, COLUMN_GAP, 0, 0))
        for n, width in widths.items():
            row.add_column(
                width=width, overflow="fold", justify="right" if columns[n].right else "left"
            )
        row.add_row(*cells.values())
        self._console.print(Padding(row, (0, 0, 0, indent)), soft_wrap=False)

    def __str__(self) -> str:
        return "".join(f"{line.rstrip()}\n" for line in self._drawn.getvalue().split("\n")[:-1])


def page_here() -> Page:
    """Return an empty page for stdout."""
    width, colour = layout(sys.stdout)
    return Page(width, colour=colour)


def wrapped(text: str, width: int) -> list[str]:
    """Break text into lines; words, paths and addresses stay whole, which rich would break.

    So do a number and its unit, which a space that does not break keeps together meanwhile.
    """
    text, width = " ".join(text.split()), max(width, NARROW // 2)
    text = _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


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
    words = {
        n: max(map(cell_len, " ".join(row[n] for row in rows).split() or [""])) for n in columns
    }
    least = {
        n: min(width, max(columns[n].least, min(words[n], WORD)) if columns[n].least else width)
        for n, width in widths.items()
    }
    while len(widths) > 1 and sum(least[n] + COLUMN_GAP for n in widths) - COLUMN_GAP > room:
        widths.popitem()
    for n in reversed(widths):
        excess = sum(width + COLUMN_GAP for width in widths.values()) - COLUMN_GAP - room
        widths[n] = max(least[n], widths[n] - max(excess, 0))
    return widths


WORD = 24  # letters of a word that is kept whole in a narrow column
REDRAWS = 5  # a second, on a terminal
LINE_EVERY = 10.0  # seconds, without one
BAR_WIDTH = 20  # columns


class ProgressLine(NamedTuple):
    """How far something is, in words, and the part that is done if that is known."""

    text: str
    part: float | None = None  # from 0 to 1


@contextlib.contextmanager
def progress(now: Callable[[float], ProgressLine]) -> Iterator[None]:
    """Show how far something is until the block ends; ``now`` is given the seconds since."""
    began = time.monotonic()

    def current() -> ProgressLine:
        return now(time.monotonic() - began)

    on_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    with _redrawn(current) if on_terminal else _lines(current):
        yield


def _redrawn(current: Callable[[], ProgressLine]) -> contextlib.AbstractContextManager[object]:
    from rich.console import Console  # noqa: PLC0415 - only for what takes long
    from rich.live import Live  # noqa: PLC0415
    from rich.progress_bar import ProgressBar  # noqa: PLC0415
    from rich.spinner import Spinner  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    spinner = Spinner("line")  # every terminal has its characters

    def draw() -> Table:
        text, part = current()
        row = Table.grid(padding=(0, 1, 0, 0))
        row.add_column()
        bar = [] if part is None else [ProgressBar(total=1.0, completed=part, width=BAR_WIDTH)]
        for _ in bar:
            row.add_column()
        row.add_column(no_wrap=True, overflow="ellipsis")
        row.add_row(spinner, *bar, Text(printable(text)))
        return row

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    return Live(
        get_renderable=draw,
        console=console,
        refresh_per_second=REDRAWS,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    )


@contextlib.contextmanager
def _lines(current: Callable[[], ProgressLine]) -> Iterator[None]:
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(LINE_EVERY):
            text, part = current()
            done = "" if part is None else f"{part:.0%}, "
            tell(f"rocsteady: {done}{text}")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()
