"""How far something is, on stderr: a line that rich redraws, or a new one now and then."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from rocsteady.printable import printable
from rocsteady.screens.screen import tell

if TYPE_CHECKING:
    from rich.table import Table

REDRAWS = 5  # a second, on a terminal
LINE_EVERY = 10.0  # seconds, without one
BAR = 20  # columns


class Progress(NamedTuple):
    """How far something is, in words, and the part that is done if that is known."""

    text: str
    part: float | None = None  # from 0 to 1


@contextlib.contextmanager
def progress(now: Callable[[float], Progress]) -> Iterator[None]:
    """Show how far something is until the block ends; ``now`` is given the seconds since."""
    began = time.monotonic()

    def current() -> Progress:
        return now(time.monotonic() - began)

    on_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    with _redrawn(current) if on_terminal else _lines(current):
        yield


def _redrawn(current: Callable[[], Progress]) -> contextlib.AbstractContextManager[object]:
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
        bar = [] if part is None else [ProgressBar(total=1.0, completed=part, width=BAR)]
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
def _lines(current: Callable[[], Progress]) -> Iterator[None]:
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
