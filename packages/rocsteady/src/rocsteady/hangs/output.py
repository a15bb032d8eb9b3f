"""What a script prints, as counts: how much, and how often it showed that work goes on.

A bar that is drawn again counts only when its counter changed, a line only when it is new but for
its clock. Output may be gigabytes: memory is bounded, and of a flood only as much is read as a
small part of a processor allows, which shows as well as the whole that it moves. Where the job
names a pattern that counts its work, progress is what that says.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from math import isfinite
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from rocsteady.hangs.line_pattern import SEARCHED_LENGTH, LinePattern
from rocsteady.hangs.values import Output
from rocsteady.model import Value

LINE_LIMIT = 2048  # bytes of a line that are looked at
READ_PER_SECOND = 16 * 1024  # bytes looked at, on average
READ_AT_ONCE = 64 * 1024  # bytes of a burst after a silence
REMEMBERED = 128  # lines and bars

Remembered = TypeVar("Remembered")
_ENDS = re.compile(rb"[\r\n]")
_NEWLINE, _RETURN = b"\n", b"\r"
LABEL_LIMIT = 80  # characters by which a bar is known again
EPOCH_SECONDS = range(1_000_000_000, 3_000_000_000)  # 2001 to 2065
MAX_DIGITS = 18  # of a number that counts something
TIME_WORDS = frozenset({
    "elapsed", "uptime", "time", "eta", "waited", "waiting", "remaining", "since", "after", "for",
})  # fmt: skip
STEP_WORDS = ("step", "epoch", "iter", "batch")
SPINNERS = frozenset("|/-\\")
_MOVING = dict.fromkeys((*range(10240, 10496), *range(9680, 9684)))  # ⠋ ◐

_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # window title
    r"|[@-Z\\-_])"
)
_MOVES = re.compile(r"\x1b\[[0-9]*[AFK]")  # cursor up, or erase: the line is drawn again
_NUMBER = re.compile(
    r"[0-9]+(?:"
    r"(?P<date>[-/.][0-9]{1,2}[-/.][0-9]{2,4}(?![0-9/]))"
    r"|(?P<clock>:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)"
    r"|(?:[.,][0-9]+)* ?(?P<rate>[A-Za-z]{0,8}/(?:s|sec|it|step|iter|batch|min)\b)"
    r"|(?:[.,][0-9]+)* ?"
    r"(?P<unit>ms|us|ns|secs?|seconds?|s|mins?|minutes?|m|hrs?|hours?|h)(?![A-Za-z0-9_/])"
    r"|(?:[.,][0-9]+)*(?P<plain>)"
    r")"
)
_PAIR = re.compile(
    r"([0-9]+)(?:\.[0-9]+)? ?(?:[kKMGT]?i?B)? ?/ ?([0-9]+)(?:\.[0-9]+)? ?(?:[kKMGT]?i?B)?(?![\w/.])"
)
_NAMED = re.compile(
    r"(?:step|epoch|iteration|iter|batch)s?['\"]? ?[:=#\[(]? ?"
    r"([0-9]+)(\.[0-9]+)?(?: ?(?:/|of) ?([0-9]+))?"
)
_EPOCH_OF = re.compile(r"epochs?['\"]? ?[:=#\[(]? ?([0-9]+)(?:\.[0-9]+)?(?: ?(?:/|of) ?([0-9]+))?")
_BARE_COUNT = re.compile(r"([0-9]+)it ?\[")  # tqdm without a total
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")
_ANY_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_BAR = re.compile(
    r"[█▉▊▋▌▍▎▏━╸╺]|\|[#=\-> .0-9]{4,}\||\[[#=\->.]{4,}\]|\[[0-9]+:[0-9]{2}(?::[0-9]{2})?[<,]"
)
_IT_PER_S = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:it|steps?|batch(?:es)?|iters?)/s")
_S_PER_IT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?s/(?:it|step|batch|iter)")
OUTPUT_KEPT = 256 * 1024  # bytes of what was printed since it was last read
READ_WITHIN = 0.02  # seconds of CPU for all lines that wait, and the one that is begun by then
_LOSS = re.compile(
    r"(?<![a-z])loss(?:['\"\]]{0,2} ?[:=] ?| (?:is |of )?)(?:tensor\()?"
    r"([-+]?(?:[0-9]{1,20}(?:\.[0-9]{0,20})?(?:e[-+]?[0-9]{1,3})?|nan|inf(?:inity)?))"
    r"(?:(?<=nan)\.0|(?<=inf)\.0)?(?![0-9a-z_]|/[0-9])"  # as PyTorch Lightning writes them
)
_OTHERS = re.compile(r"(?:val|valid|validation|test|eval|dev|best|min|old|prev)[ _./-]?$")
LENGTH_BEFORE = 12  # characters before the word that may say whose loss it is
LINE_LENGTH = 400  # characters of a line that are looked at


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
        self._progress: PrintedProgress | None = None
        self._loss: float | None = None
        self.losses_not_finite = 0  # in a row, up to the last that was printed

    def take_loss(self) -> float | None:
        """Return the loss that was printed last, once; None if none was printed since."""
        loss, self._loss = self._loss, None
        return loss

    @property
    def output(self) -> Output:
        return Output(bytes=self._bytes, lines=self._lines, counters=self._signs, at=self._at)

    @property
    def progress(self) -> PrintedProgress | None:
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
        if (loss := printed_loss(text)) is not None and isfinite(loss):
            self._loss, self.losses_not_finite = loss, 0
        elif loss is not None:
            self.losses_not_finite += 1
        line = take_apart(text.strip())
        is_new = line.text not in self._lines_seen
        _remember(self._lines_seen, line.text, None)
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


def _remember(memory: OrderedDict[str, Remembered], key: str, value: Remembered) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)


# The numbers in a printed line that count work, told from its clocks and rates.
#
# Written for speed, because a script may print a lot: one pass over the numbers of a line, and each
# further question only where a word or a sign in the line gives reason to ask it.


class PrintedProgress(Value, frozen=True, kw_only=True):
    """What the newest counter in the output says."""

    n: int
    total: int | None
    rate: float | None  # a second
    epoch: int | None = None  # which is also n, if the line counts nothing else
    epochs: int | None = None  # in all
    unnamed: bool = False  # a bar that does not say what it counts: one epoch, probably

    @property
    def of_epoch(self) -> bool:
        """Whether it counts within an epoch, probably: a line may also have the run's step."""
        return self.epoch is not None and (self.n, self.total) != (self.epoch, self.epochs)


class PrintedLine(NamedTuple):
    text: str  # without clocks, rates and spinners
    label: str  # the same without any number: which bar it is
    counters: tuple[str, ...]  # the numbers that count work: n of n/total, a step, an epoch
    numbers: tuple[str, ...]  # without any of those: percentages, or else all numbers
    bar: bool
    progress: PrintedProgress | None


def strip_ansi(text: str) -> tuple[str, bool]:
    """Return the text without colours, and whether it moves the cursor to draw anew."""
    if "\x1b" not in text:
        return text, False
    return _ANSI.sub("", text), bool(_MOVES.search(text))


def take_apart(text: str) -> PrintedLine:
    bar = ("|" in text or "[" in text or not text.isascii()) and bool(_BAR.search(text))
    still = _without_clocks(text if text.isascii() else text.translate(_MOVING))
    numbers = _ANY_NUMBER.findall(still)
    if not numbers:
        return PrintedLine(still, still, (), (), bar, None)
    lower = still.lower()
    named = _named(lower)
    pairs = _PAIR.findall(still) if "/" in still else []
    bare = _BARE_COUNT.findall(still) if "it" in still else []
    return PrintedLine(
        text=still,
        label=_ANY_NUMBER.sub("#", _BAR.sub("", still) if bar else still)[:LABEL_LIMIT],
        counters=(*(n for n, _ in pairs), *(n + part for n, part, _ in named), *bare),
        numbers=tuple(_PERCENT.findall(still) if "%" in still else numbers),
        bar=bar,
        progress=_with_epochs(
            _progress(
                text,
                [*((n, total) for n, _, total in named), *pairs],
                bare,
                unnamed=bar and "step" not in lower and "epoch" not in lower,
            ),
            lower,
        ),
    )


def _without_clocks(text: str) -> str:
    """Leave out what changes by itself: times, rates, spinners, and blanks that pad them."""
    kept = "".join(_kept(text))
    return " ".join(word for word in kept.split() if word not in SPINNERS)


def _kept(text: str) -> Iterator[str]:
    at = 0
    for number in _NUMBER.finditer(text):
        if number.lastgroup != "plain" or _is_time(text, number.start(), number.end()):
            yield text[at : number.start()]
            at = number.end()
    yield text[at:]


def _is_time(text: str, start: int, end: int) -> bool:
    """Return whether a bare number is a time, by its size, its place, or the word before it."""
    whole = text[start:end].partition(".")[0]
    if len(whole) == len(str(EPOCH_SECONDS.start)) and int(whole) in EPOCH_SECONDS:
        return True
    before = text[:start].rstrip(" :=([")
    if not before:  # "[  12.345] text", as the kernel writes
        return text.startswith("[") and text[end : end + 1] == "]" and "." in text[start:end]
    word = before[-12:].rpartition(" ")[2] if before[-1].isalpha() else ""
    return word.lower() in TIME_WORDS


def _named(lower: str) -> list[tuple[str, str, str]]:
    return _NAMED.findall(lower) if any(word in lower for word in STEP_WORDS) else []


def _progress(
    text: str, counted: list[tuple[str, str]], bare: list[str], *, unnamed: bool
) -> PrintedProgress | None:
    """Return the last counter: an epoch stands before the step in it."""
    n, total = counted[-1] if counted else (bare[-1], "") if bare else ("", "")
    if not n or len(n) > MAX_DIGITS or len(total) > MAX_DIGITS:
        return None
    if total and int(n) > int(total):  # an address such as redis://cache:6379/0
        return None
    rate = _rate(text)
    return PrintedProgress(n=int(n), total=int(total or 0) or None, rate=rate, unnamed=unnamed)


def _with_epochs(found: PrintedProgress | None, text: str) -> PrintedProgress | None:
    counted = _EPOCH_OF.search(text) if found and "epoch" in text else None
    if found is None or counted is None or max(map(len, counted.groups(""))) > MAX_DIGITS:
        return found
    return replace(found, epoch=int(counted[1]), epochs=int(counted[2] or 0) or None)


def _rate(text: str) -> float | None:
    each_second = _IT_PER_S.search(text) if "/s" in text else None
    if each_second:
        return float(each_second.group(1))
    each = _S_PER_IT.search(text) if "s/" in text else None
    seconds = float(each.group(1)) if each else 0.0
    return 1 / seconds if seconds else None


# Work counted by a pattern in what a script prints: the newest line that matches tells.
#
# Printing only keeps the end of what was printed. Who asks how far it is has it read, from its last
# line back, so that the cost follows the asking and not the printing, and a flood loses old lines
# first.


class LogCount:
    """Reads on when it is asked. One thread may print while another asks."""

    def __init__(self, pattern: LinePattern) -> None:
        self._pattern = pattern
        self._kept = bytearray()
        self._cut = False  # the first line that is kept has lost its beginning
        self._lock = threading.Lock()
        self._progress: PrintedProgress | None = None

    def feed(self, chunk: bytes) -> None:
        with self._lock:
            self._kept += chunk
            if len(self._kept) > OUTPUT_KEPT:
                del self._kept[:-OUTPUT_KEPT]
                self._cut = True

    def progress(self, *, ended: bool = False) -> PrintedProgress | None:
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

    def _found(self, line: bytes, *, whole: bool) -> PrintedProgress | None:
        # A character has four bytes at most; colours come on top.
        text, _ = strip_ansi(line[: 8 * SEARCHED_LENGTH].decode("utf-8", "replace"))
        whole = whole and len(line) <= SEARCHED_LENGTH
        text = text[:SEARCHED_LENGTH]
        found = self._pattern.search(text)
        if found is None:
            return None
        n = _number(found.groups["n"])
        if n is None or (found.end == len(text) and not whole):  # more digits may follow
            return None
        return PrintedProgress(n=n, total=_number(found.groups.get("total")), rate=None)


def _number(text: str | None) -> int | None:
    """Read a whole number, also with commas in it; None if it is none that counts work."""
    digits = (text or "").replace(",", "")
    return int(digits) if digits.isdecimal() and len(digits) <= MAX_DIGITS else None


# The training loss, as a script prints it. Asking the GPU for it would make training wait.


def printed_loss(line: str) -> float | None:
    """Return the training loss that a line tells; None if it tells none."""
    text = line[:LINE_LENGTH].lower()
    if "loss" not in text:
        return None
    for found in _LOSS.finditer(text):
        if not _OTHERS.search(text[max(0, found.start() - LENGTH_BEFORE) : found.start()]):
            return float(found[1])
    return None
