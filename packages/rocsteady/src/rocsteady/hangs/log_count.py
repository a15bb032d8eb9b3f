"""Work counted by a pattern in what a script prints: the newest line that matches tells.

Printing only keeps the end of what was printed. Who asks how far it is has it read, from its last
line back, so that the cost follows the asking and not the printing, and a flood loses old lines
first.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator

from rocsteady.hangs.counters import MOST_DIGITS, Progress, strip_ansi
from rocsteady.run.job.line_pattern import LINE, LinePattern

KEPT = 256 * 1024  # bytes of what was printed since it was last read
READ_WITHIN = 0.02  # seconds of CPU for all lines that wait, and the one that is begun by then
_ENDS = re.compile(rb"[\r\n]")


class LogCount:
    """Reads on when it is asked. One thread may print while another asks."""

    def __init__(self, pattern: LinePattern) -> None:
        self._pattern = pattern
        self._kept = bytearray()
        self._cut = False  # the first line that is kept has lost its beginning
        self._lock = threading.Lock()
        self._progress: Progress | None = None

    def feed(self, chunk: bytes) -> None:
        """Take what was printed."""
        with self._lock:
            self._kept += chunk
            if len(self._kept) > KEPT:
                del self._kept[:-KEPT]
                self._cut = True

    def progress(self, *, ended: bool = False) -> Progress | None:
        """Return what the newest line that matches says."""
        deadline = time.thread_time() + READ_WITHIN
        for line, whole in self._lines(ended=ended):
            found = self._found(line, whole=whole)
            if found is not None:
                self._progress = found
                break
            if time.thread_time() > deadline:
                break
        return self._progress

    def _lines(self, *, ended: bool) -> Iterator[tuple[bytes, bool]]:
        """Yield the lines that were not read yet, the last first, and whether each has its end."""
        with self._lock:
            *lines, rest = _ENDS.split(bytes(self._kept))
            cut, self._cut = self._cut, self._cut and not lines
            self._kept[:] = rest
        if not cut or lines:
            yield rest, ended
        yield from ((line, True) for line in reversed(lines[cut:]) if line)

    def _found(self, line: bytes, *, whole: bool) -> Progress | None:
        # A character has four bytes at most; colours come on top.
        text, _ = strip_ansi(line[: 8 * LINE].decode("utf-8", "replace"))
        whole = whole and len(line) <= LINE
        text = text[:LINE]
        found = self._pattern.search(text)
        if found is None:
            return None
        n = _number(found.groups["n"])
        if n is None or (found.end == len(text) and not whole):  # more digits may follow
            return None
        return Progress(n=n, total=_number(found.groups.get("total")), rate=None)


def _number(text: str | None) -> int | None:
    """Read a whole number, also with commas in it; None if it is none that counts work."""
    digits = (text or "").replace(",", "")
    return int(digits) if digits.isdecimal() and len(digits) <= MOST_DIGITS else None
