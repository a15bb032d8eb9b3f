"""One line at the foot of a terminal that is drawn anew; nothing where there is no terminal."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from rocsteady.printable import printable
from rocsteady.screens.screen import layout, tell

EVERY = 0.1  # seconds, at least, between two drawings
DRAWN_EVERY, SAID_EVERY = 0.2, 10.0  # seconds: on a terminal, and without one
SPINNER = "|/-\\"  # every terminal has these
BAR = 20  # columns


class Redrawn:
    """A line that tells how far it is."""

    def __init__(self, stream: TextIO, width: int) -> None:
        self._stream, self._width = stream, width
        self.wanted = stream.isatty()
        self._drawn = 0.0
        self._there = False

    def draw(self, text: str, *, now: bool = False) -> None:
        """Draw it, unless it was drawn just before."""
        if not self.wanted or (not now and time.monotonic() - self._drawn < EVERY):
            return
        self._drawn, self._there = time.monotonic(), True
        room = max(self._width - 1, 1)
        self._stream.write("\r" + printable(text)[:room].ljust(room))
        self._stream.flush()

    def clear(self) -> None:
        """Take it away, so that other lines can be written."""
        if self._there:
            self._stream.write("\r" + " " * max(self._width - 1, 1) + "\r")
            self._stream.flush()
            self._there = False


@contextlib.contextmanager
def progress(text: Callable[[float], str]) -> Iterator[None]:
    """Show how far something is: a line that is redrawn, or now and then one without a terminal.

    ``text`` is given the seconds since the start.
    """
    line, ended, began = Redrawn(sys.stderr, layout(sys.stderr)[0]), threading.Event(), time.time()

    def draw() -> None:
        said = time.time()
        for mark in itertools.cycle(SPINNER):
            if ended.wait(DRAWN_EVERY):
                return
            now = time.time()
            line.draw(f"{mark} {text(now - began)}")
            if not line.wanted and now - said >= SAID_EVERY:
                said = now
                tell(f"rocsteady: {text(now - began)}")

    drawing = threading.Thread(target=draw, daemon=True)
    drawing.start()
    try:
        yield
    finally:
        ended.set()
        drawing.join()
        line.clear()


def bar(done: float) -> str:
    """Draw how much of it is done, from 0 to 1."""
    full = round(min(max(done, 0.0), 1.0) * BAR)
    return f"[{'#' * full}{'.' * (BAR - full)}]"
