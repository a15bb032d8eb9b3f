"""What a script prints, as counts: how much, and how often it showed that work goes on.

A bar that is drawn again counts only when its counter changed, a line only when it is new but for
its clock. Output may be gigabytes: memory is bounded, and of a flood only as much is read as a
small part of a processor allows, which shows as well as the whole that it moves. Where the job
names a pattern that counts its work, progress is what that says.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TypeVar

from rocsteady.hangs.counters import PrintedLine, Progress, strip_ansi, take_apart
from rocsteady.hangs.log_count import LogCount
from rocsteady.hangs.printed_loss import printed_loss
from rocsteady.hangs.values import Output
from rocsteady.run.job.line_pattern import LinePattern

LINE_LIMIT = 2048  # bytes of a line that are looked at
READ_PER_SECOND = 16 * 1024  # bytes looked at, on average
READ_AT_ONCE = 64 * 1024  # bytes of a burst after a silence
REMEMBERED = 128  # lines and bars

Remembered = TypeVar("Remembered")
_ENDS = re.compile(rb"[\r\n]")
_NEWLINE, _RETURN = b"\n", b"\r"


class OutputCounter:
    """Reads what is printed, piece by piece."""

    def __init__(self, pattern: str = "") -> None:
        self._count = LogCount(LinePattern(pattern)) if pattern else None
        self._ended = False
        self._bytes = self._lines = self._signs = 0
        self._at = 0.0
        self._fed_at = 0.0
        self._left = float(READ_AT_ONCE)
        self._line = bytearray()
        self._line_at = 0.0
        self._blind = False  # the beginning of this line was not read
        self._drawn_again = False  # this line began with a carriage return
        self._returned = False  # it was ended by one, and what follows is not known yet
        self._lines_seen: OrderedDict[str, None] = OrderedDict()
        self._bars: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._progress: Progress | None = None
        self._loss: float | None = None

    def take_loss(self) -> float | None:
        """Return the loss that was printed last, once; None if none was printed since."""
        loss, self._loss = self._loss, None
        return loss

    @property
    def output(self) -> Output:
        """What was printed so far."""
        return Output(bytes=self._bytes, lines=self._lines, counters=self._signs, at=self._at)

    @property
    def progress(self) -> Progress | None:
        """N, total and rate, for an estimate of the end."""
        return self._count.progress(ended=self._ended) if self._count else self._progress

    def end(self) -> None:
        """Take the last line as whole: nothing more will be printed."""
        self._ended = True

    def feed(self, chunk: bytes, at: float) -> None:
        """Take what was printed at ``at``, in seconds of the monotonic clock."""
        if self._count is not None:
            self._count.feed(chunk)
        self._bytes += len(chunk)
        self._lines += chunk.count(_NEWLINE)
        earned = max(0.0, at - self._fed_at) * READ_PER_SECOND
        self._fed_at, self._left = at, min(READ_AT_ONCE, self._left + earned)
        looked_at = chunk[: int(self._left)]
        self._left -= len(looked_at)
        self._take_snapshot(looked_at, at)
        if len(looked_at) < len(chunk):
            self._pass_over(whole_line=chunk.endswith(_NEWLINE))

    def _pass_over(self, *, whole_line: bool) -> None:
        self._line.clear()
        self._returned = self._drawn_again = False
        self._blind = not whole_line

    def _take_snapshot(self, chunk: bytes, at: float) -> None:
        start = 0
        for end in _ENDS.finditer(chunk):
            self._grow(chunk[start : end.start()], at)
            self._end(end.group())
            start = end.end()
        self._grow(chunk[start:], at)

    def _grow(self, piece: bytes, at: float) -> None:
        if not piece:
            return
        if self._returned:  # and something else than a line's end follows: it is drawn over
            self._judge(drawn=True)
            self._returned, self._drawn_again = False, True
        if not self._blind:
            self._line += piece[: LINE_LIMIT - len(self._line)]
            self._line_at = at

    def _end(self, how: bytes) -> None:
        if how == _RETURN:
            self._returned = True
            return
        self._judge(drawn=self._drawn_again)
        self._blind = self._drawn_again = self._returned = False

    def _judge(self, *, drawn: bool) -> None:
        """Count a line that is complete, and begin the next."""
        text, moves = strip_ansi(self._line.decode("utf-8", "replace"))
        self._line.clear()
        if not text.strip():
            return
        if (loss := printed_loss(text)) is not None:
            self._loss = loss
        line = take_apart(text.strip())
        is_new = self._is_new(line)
        drawn = drawn or moves or line.bar
        if self._changed(line, line.counters or line.numbers if drawn else line.counters) or (
            is_new and not drawn
        ):
            self._signs += 1
            self._at = self._line_at
            self._progress = line.progress or self._progress

    def _changed(self, line: PrintedLine, counters: tuple[str, ...]) -> bool:
        if not counters:
            return False
        before = self._bars.get(line.label)
        _remember(self._bars, line.label, counters)
        return before != counters

    def _is_new(self, line: PrintedLine) -> bool:
        seen = line.text in self._lines_seen
        _remember(self._lines_seen, line.text, None)
        return not seen


def _remember(memory: OrderedDict[str, Remembered], key: str, value: Remembered) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)
