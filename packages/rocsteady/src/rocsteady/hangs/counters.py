"""The numbers in a printed line that count work, told from its clocks and rates.

Written for speed, because a script may print a lot: one pass over the numbers of a line, and each
further question only where a word or a sign in the line gives reason to ask it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rocsteady.model import Value

LABEL_LIMIT = 80  # characters by which a bar is known again
EPOCH_SECONDS = range(1_000_000_000, 3_000_000_000)  # 2001 to 2065
MOST_DIGITS = 18  # of a number that counts something
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
_BARE_COUNT = re.compile(r"([0-9]+)it ?\[")  # tqdm without a total
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")
_ANY_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_BAR = re.compile(
    r"[█▉▊▋▌▍▎▏━╸╺]|\|[#=\-> .0-9]{4,}\||\[[#=\->.]{4,}\]|\[[0-9]+:[0-9]{2}(?::[0-9]{2})?[<,]"
)
_IT_PER_S = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:it|steps?|batch(?:es)?|iters?)/s")
_S_PER_IT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?s/(?:it|step|batch|iter)")


class Progress(Value, frozen=True, kw_only=True):
    """What the newest counter in the output says."""

    n: int
    total: int | None
    rate: float | None  # a second


class PrintedLine(NamedTuple):
    """A printed line, taken apart."""

    text: str  # without clocks, rates and spinners
    label: str  # the same without any number: which bar it is
    counters: tuple[str, ...]  # the numbers that count work: n of n/total, a step, an epoch
    numbers: tuple[str, ...]  # without any of those: percentages, or else all numbers
    bar: bool
    progress: Progress | None


def strip_ansi(text: str) -> tuple[str, bool]:
    """Return the text without colours, and whether it moves the cursor to draw anew."""
    if "\x1b" not in text:
        return text, False
    return _ANSI.sub("", text), bool(_MOVES.search(text))


def take_apart(text: str) -> PrintedLine:
    """Find what counts in a line."""
    bar = ("|" in text or "[" in text or not text.isascii()) and bool(_BAR.search(text))
    still = _without_clocks(text if text.isascii() else text.translate(_MOVING))
    numbers = _ANY_NUMBER.findall(still)
    if not numbers:
        return PrintedLine(still, still, (), (), bar, None)
    named = _named(still)
    pairs = _PAIR.findall(still) if "/" in still else []
    bare = _BARE_COUNT.findall(still) if "it" in still else []
    return PrintedLine(
        text=still,
        label=_ANY_NUMBER.sub("#", _BAR.sub("", still) if bar else still)[:LABEL_LIMIT],
        counters=(*(n for n, _ in pairs), *(n + part for n, part, _ in named), *bare),
        numbers=tuple(_PERCENT.findall(still) if "%" in still else numbers),
        bar=bar,
        progress=_progress(text, [*((n, total) for n, _, total in named), *pairs], bare),
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
    """Tell a bare number that is a time: by its size, its place, or the word before it."""
    whole = text[start:end].partition(".")[0]
    if len(whole) == len(str(EPOCH_SECONDS.start)) and int(whole) in EPOCH_SECONDS:
        return True
    before = text[:start].rstrip(" :=([")
    if not before:  # "[  12.345] text", as the kernel writes
        return text.startswith("[") and text[end : end + 1] == "]" and "." in text[start:end]
    word = before[-12:].rpartition(" ")[2] if before[-1].isalpha() else ""
    return word.lower() in TIME_WORDS


def _named(still: str) -> list[tuple[str, str, str]]:
    lower = still.lower()
    return _NAMED.findall(lower) if any(word in lower for word in STEP_WORDS) else []


def _progress(text: str, counted: list[tuple[str, str]], bare: list[str]) -> Progress | None:
    """Return the last counter: an epoch stands before the step in it."""
    n, total = counted[-1] if counted else (bare[-1], "") if bare else ("", "")
    if not n or len(n) > MOST_DIGITS or len(total) > MOST_DIGITS:
        return None
    if total and int(n) > int(total):  # an address such as redis://cache:6379/0
        return None
    return Progress(n=int(n), total=int(total or 0) or None, rate=_rate(text))


def _rate(text: str) -> float | None:
    each_second = _IT_PER_S.search(text) if "/s" in text else None
    if each_second:
        return float(each_second.group(1))
    each = _S_PER_IT.search(text) if "s/" in text else None
    seconds = float(each.group(1)) if each else 0.0
    return 1 / seconds if seconds else None
