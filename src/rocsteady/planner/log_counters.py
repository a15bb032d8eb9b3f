"""Counters in what a script printed: which of them counts the whole job, and how to find it again.

"step 40/1200" and a bar that shows 40/1200 count the job. "Epoch 1: 10/32" and a counter that goes
back to the beginning count an epoch, unless it goes on from one epoch to the next. What counts
something else, as "correct 45/100", is none.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import strptime

from rocsteady.evidence.counters import strip_ansi
from rocsteady.host.logfile import TEXT_STAMP
from rocsteady.model import Value
from rocsteady.untrusted_file import read_tail

LOG_LIMIT = 1024 * 1024  # bytes of the end of a log that are looked at
LINE_LIMIT = 2048  # characters
TAIL = 8  # lines that are kept to be shown
SEVERAL = 3  # values of a counter that did not begin again with the next epoch
EPOCH = "epoch"
WORDS = """
    batch chunk document episode epoch example file fold frame game generation image iter iteration
    it match minibatch period replay rollout round sample step task timestep trial update
"""
WORK = frozenset(WORDS.split())
_COUNT = re.compile(
    r"(?P<before>(?P<word>\b[A-Za-z_]{2,24})['\"]?[ \t]{0,3}[:=#]?[ \t]{0,6}[\[(]?[ \t]{0,6}"
    r"|[|\[][ \t]{0,6})"  # a bar
    r"(?P<n>[0-9]{1,12})(?P<between>[ ]?(?:/|of)[ ]{0,6}(?P<total>[0-9]{1,12}))?"
    r"(?![0-9A-Za-z_./:%])"
)
_EPOCH = re.compile(r"(?i)\bepoch")


class LogCounter(Value, frozen=True, kw_only=True):
    """A number that grew while a script printed it."""

    word: str  # what it counts, "epoch"; "": a bar that does not say
    n: int  # in the end
    total: int | None  # None: it was not printed
    pattern: str  # finds it in a line; its groups are n and total
    values: int  # how many different ones there were
    first: int  # and which was the first
    falls: bool  # it began again
    in_epoch: bool  # it stands behind the word epoch
    each: float | None = None  # optimizer steps from one to the next, as far as that could be seen


class Printed(Value, frozen=True, kw_only=True):
    """What a script printed, as far as it tells how far it was."""

    counters: tuple[LogCounter, ...] = ()
    tail: tuple[str, ...] = ()  # the last lines


@dataclass
class _Seen:
    """A counter while a log is read."""

    values: list[tuple[float, int]] = field(default_factory=list)  # when each was first printed
    falls: bool = False
    in_epoch: bool = False
    before: str = ""
    between: str = ""


def read_printed(log: Path, steps: Sequence[tuple[float, int]] = ()) -> Printed:
    """Read the kept log of an attempt; ``steps`` says when which optimizer step was made."""
    seen: dict[tuple[str, int | None], _Seen] = {}
    tail: list[str] = []
    for at, line in _lines(log):
        tail = [*tail, line.rstrip()][-TAIL:]
        for found in _COUNT.finditer(line):
            _take_in(seen, found, at, line)
    counters = tuple(_counter(word, total, one, steps) for (word, total), one in seen.items())
    return Printed(counters=counters, tail=tuple(tail))


def of_the_job(
    counters: Iterable[LogCounter], *, batches: int = 0, finished: bool = False
) -> LogCounter | None:
    """Return the counter that counts the whole job, the finest if there are several.

    ``batches`` is how many there are in an epoch: a counter up to that many is one of an epoch. One
    that is full while the script goes on has counted something else.
    """
    counters = tuple(counters)
    epochs = [one for one in counters if one.word == EPOCH]
    passed = any(one.values > 1 for one in epochs)  # from one epoch to the next
    whole = [
        one
        for one in counters
        if one.word != EPOCH
        and not one.falls
        and (one.total is None or (one.total != batches and (finished or one.n < one.total)))
        and not (epochs and one.word.endswith("batch"))
        and not (one.in_epoch and not (passed and one.values >= SEVERAL))
    ]
    return max(whole, key=lambda one: (one.total is not None, one.values), default=None)


def epochs_in(counters: Iterable[LogCounter]) -> LogCounter | None:
    """Return the counter of epochs; one that is printed with how many there are comes first."""
    found = [one for one in counters if one.word == EPOCH and not one.falls]
    return max(found, key=lambda one: (one.total is not None, one.values), default=None)


def _lines(log: Path) -> Iterator[tuple[float, str]]:
    try:
        text = read_tail(log, LOG_LIMIT, follow=False).decode("utf-8", "replace")
    except OSError:
        return
    at = 0.0
    for line in text.splitlines():
        stamp = TEXT_STAMP.match(line)
        if stamp:
            at = timegm(strptime(line[:19], "%Y-%m-%dT%H:%M:%S")) + float(stamp[2])
        said, _ = strip_ansi(line[stamp.end() if stamp else 0 :][:LINE_LIMIT])
        if said.strip():
            yield at, said


def _take_in(
    seen: dict[tuple[str, int | None], _Seen], found: re.Match[str], at: float, line: str
) -> None:
    word = (found["word"] or "").lower()
    word = word if word in WORK else word.removesuffix("s")
    n, total = int(found["n"]), int(found["total"]) if found["total"] else None
    if (word and word not in WORK) or (total is None and not word) or (total or n) < max(n, 1):
        return
    one = seen.setdefault((word, total), _Seen())
    last = one.values[-1][1] if one.values else -1
    one.falls = one.falls or n < last
    one.in_epoch = one.in_epoch or (word != EPOCH and bool(_EPOCH.search(line, 0, found.start())))
    one.before, one.between = found["before"], found["between"] or ""
    if n != last:
        one.values.append((at, n))


def _counter(
    word: str, total: int | None, one: _Seen, steps: Sequence[tuple[float, int]]
) -> LogCounter:
    (first_at, first), (last_at, last) = one.values[0], one.values[-1]
    each = None
    if last > first and steps and not one.falls:
        each = (_step_at(steps, last_at) - _step_at(steps, first_at)) / (last - first)
    return LogCounter(
        word=word,
        n=last,
        total=total,
        pattern=_pattern(one),
        values=len(one.values),
        first=first,
        falls=one.falls,
        in_epoch=one.in_epoch,
        each=each,
    )


def _step_at(steps: Sequence[tuple[float, int]], at: float) -> int:
    return max((step for when, step in steps if when <= at), default=0)


def _pattern(one: _Seen) -> str:
    """Write a pattern that finds the counter, however wide its numbers are."""
    begins = re.sub(r"(\\?[ \t])+", r"\\s*", re.escape(one.before))
    if not one.between:
        return rf"{begins}(?P<n>\d+)"
    between = re.sub(r" +", " *", one.between.rstrip("0123456789"))
    return rf"{begins}(?P<n>\d+){between}(?P<total>\d+)"
