"""What ``rocsteady run`` prints of its own: one event, one line, then what to do.

On a terminal a line begins with a coloured state word; without one, or without colour, the same
words follow ``rocsteady: ``. Commands that are meant to be copied are never broken.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TextIO

from rocsteady.colours import DIM, GREEN, RED, YELLOW, coloured, takes_colour
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.proof.stack_frames import queue_of
from rocsteady.hangs.proof.wait_set import Activity
from rocsteady.hangs.values import Wait
from rocsteady.model import FailureKind, RunEvent, Sign, WaitsFor
from rocsteady.printable import printable
from rocsteady.run.checkpoints.resume_detection import ResumeMethod, ResumeSign
from rocsteady.run.telling.events import (
    Crashed,
    Done,
    Event,
    Faults,
    GaveUp,
    Moving,
    Note,
    Quiet,
    Resumed,
    Started,
    Stopped,
    Waiting,
)
from rocsteady.screens.screen import PLAIN_WIDTH, wrapped
from rocsteady.store.redaction import shown_command
from rocsteady.wording import duration, inside_a_sentence, plural

NAME, PREFIX = "rocsteady", "rocsteady: "
WORD = 8  # columns of the state
SEPARATOR = " · "
STYLES = {
    RunEvent.HUNG: RED,
    RunEvent.CRASHED: RED,
    RunEvent.GAVE_UP: RED,
    RunEvent.SLOW: YELLOW,
    RunEvent.STARTING: YELLOW,
    RunEvent.WAITING: YELLOW,
    RunEvent.FAULTS: YELLOW,
    RunEvent.DONE: GREEN,
}
WAITS = {
    Wait.LOCK: "a lock",
    Wait.TREE: "another process",
    Wait.CHILD: "a child process",
    Wait.WORLD: "a file or the network",
    Wait.SLEEP: "a timer",
    Wait.SIGNAL: "a signal",
    Wait.DEVICE: "the GPU",
    Wait.DISK: "the disk or a driver",
}
_LINE = re.compile(r"^(\S+:\d+) (?!in )")


class Advice(NamedTuple):
    """What to do: words, and a command that can be copied."""

    words: str = ""
    command: str = ""

    def __str__(self) -> str:
        return f"{self.words} {self.command}".strip()


class Line(NamedTuple):
    facts: str
    advice: tuple[Advice, ...] = ()


class RunScreen:
    """Writes the events of a run, to stderr unless told otherwise."""

    def __init__(self, *, plain: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        try:
            self._fancy = takes_colour(self._stream) and not plain
            self._on_terminal = self._stream.isatty()
        except (AttributeError, OSError, ValueError):  # there is none
            self._fancy = self._on_terminal = False

    def lines(self, event: Event) -> list[str]:
        line, word = line_of(event), event.kind.value
        if not self._fancy:
            padded = f"{word:<{WORD}} " if word else ""
            indent = " " * len(padded)
            facts = [line.facts]
            if self._on_terminal:  # which would break them within words
                facts = wrapped(line.facts, _width(self._stream) - len(PREFIX + padded)) or [""]
            more = [f"{PREFIX}{indent}{each}" for each in (*facts[1:], *line.advice)]
            return [printable(text) for text in (PREFIX + padded + facts[0], *more)]
        return list(_laid_out(line, word, STYLES.get(event.kind, ""), _width(self._stream)))

    def text(self, event: Event) -> str:
        line, word = line_of(event), event.kind.value
        facts = f"{word}: {line.facts}" if word else line.facts
        *parts, last = (facts, *map(str, line.advice))
        before = [f"{part.removesuffix('.')}. " for part in parts]
        return "".join((*before, last)).replace(":. ", ": ")


def _width(stream: TextIO) -> int:
    """Return the columns of a terminal, which stdout need not be."""
    size = os.terminal_size((PLAIN_WIDTH, 24))
    with contextlib.suppress(OSError, ValueError):
        size = os.get_terminal_size(stream.fileno())
    return shutil.get_terminal_size(size).columns


def _laid_out(line: Line, word: str, style: str, width: int) -> Iterator[str]:
    """Break facts between words below each other, and never a command."""
    head = f"{NAME}  "
    start = len(head) + (WORD + 1 if word else 0)
    state = f"{coloured(word, style) if style else word}{' ' * (WORD + 1 - len(word))}"
    first, *rest = wrapped(printable(line.facts), width - start) or [""]
    yield coloured(head, DIM) + (state if word else "") + first
    yield from (" " * start + each for each in rest)
    indent = " " * len(head)
    for words, command in line.advice:
        both = printable(str(Advice(words, command)))
        if len(indent) + len(both) <= width or not (words and command):
            yield indent + both
        else:
            yield from (indent + each for each in wrapped(printable(words), width - len(indent)))
            yield f"{indent}  {printable(command)}"


def line_of(event: Event) -> Line:
    """Return an event in words."""
    return WRITERS[type(event)](event)


def one_line(command: Sequence[str]) -> str:
    """Return a command as it is typed; one with lines of its own cannot be copied from here."""
    return "YOUR COMMAND" if any("\n" in word for word in command) else shown_command(command)


def _started(event: Started) -> Line:
    facts: list[str] = [event.name + " again" * event.again]
    advice: tuple[Advice, ...] = ()
    if event.again:
        facts.append(one_line(event.command))
    if event.settings:
        facts.append(event.settings)
    if event.observe:
        facts.append("only observing, never stopped or restarted")
    elif event.method is not None:
        facts.append(event.method.words)
        method = event.method
        if method.how is ResumeSign.UNKNOWN and not method.reports:
            advice = (Advice(method.why_not),) * bool(method.why_not)
            advice += _to_resume(method, one_line(event.command))
    return Line(SEPARATOR.join(facts), advice)


def _to_resume(method: ResumeMethod | None, typed: str) -> tuple[Advice, ...]:
    """Say what makes a script resume, as far as that is known of it."""
    if method is None or not method.why_not:
        return (Advice("To set up resuming:", f"rocsteady init -- {typed}"),)
    code = tuple(Advice(command=line) for line in method.code)
    flag = Advice("To resume without editing it:", f"rocsteady run --resume-trainer -- {typed}")
    return (*(Advice("Write instead:"),) * bool(code), *code, *(flag,) * method.by_trainer)


def user_line(place: str) -> str:
    """Return the file and line of a place."""
    return place.partition(" ")[0]


def _quiet(event: Quiet) -> Line:
    verdict, kind = event.verdict, event.kind
    if event.again and kind is RunEvent.HUNG:
        return Line(f"{_at_step(event.step)} again, same line".strip())
    facts = [_at_step(event.step)] if event.step else []
    judged = verdict.blame
    apart = judged is not None and judged.unclear  # it names the places
    blamed = judged if judged and (judged.sign is not Sign.NONE or apart) else None
    if verdict.over:
        facts.append("the script has finished and does not exit")
    if blamed is not None:
        facts.append(blamed.why)
    if verdict.place and not apart and not (blamed and verdict.place in blamed.places):
        facts.append(_LINE.sub(r"\1 in ", verdict.place))  # "train.py:24 in main"
    if blamed is None and (waits := _waits(verdict)):
        facts.append(waits)
    if kind is RunEvent.HUNG:
        facts.append(duration(verdict.quiet))
        return Line(SEPARATOR.join(facts + ["only observing"] * event.observe))
    if kind is RunEvent.STOPPED:
        return Line(SEPARATOR.join([*facts, verdict.why]))
    what = "first step" if verdict.starting else "step"
    facts.append(f"no {what} for {duration(verdict.quiet)}")
    closed = verdict.waits is not None and verdict.waits.closed
    facts += [] if closed or verdict.over else ["not proven stuck"]
    facts.append(_patience(event))
    return Line(SEPARATOR.join(facts))


def _patience(event: Quiet) -> str:
    """Return how long it is left alone."""
    verdict = event.verdict
    if event.observe:
        return "only observing"
    if verdict.apart:
        return "left alone until all hosts are stuck"
    if verdict.limit is None:
        return "not stopped: its progress cannot be observed"
    return f"left alone for {duration(verdict.limit)} (--hang-after)"


def _waits(verdict: Verdict) -> str:
    """Return who waits for what, of the thread that is shown."""
    members = verdict.waits.members if verdict.waits else ()
    shown = [each for each in members if each.place == verdict.place] or [
        each for each in members if each.process.pid == verdict.culprit
    ]
    member = min(shown, key=lambda each: (not each.is_main, each.key), default=None)
    if member is None:
        return ""
    trains = any(each.trains and each.process.pid == member.process.pid for each in members)
    who = "" if trains else "worker "
    if member.activity is Activity.RUNS:
        return f"{who}running"
    what = queue_of(member.thread.frames) or WAITS.get(member.thread.wait)
    if what is None:
        return ""
    pid, idle = member.process.pid, (WaitsFor.RANKS, WaitsFor.MAYBE_RANKS)
    if verdict.blame and any(it.pid == pid and it.waits_for in idle for it in verdict.ranks):
        return "waiting for other ranks"
    closed = verdict.waits is not None and verdict.waits.closed
    return f"{who}{'deadlocked' if closed else 'waiting'} on {what}"


def _crashed(event: Crashed) -> Line:
    at = f" at {event.place}" if event.place else ""
    at = at if event.rank is None else f" on rank {event.rank}{at}"
    if event.own:
        yours = event.failure == FailureKind.SCRIPT_ERROR
        whose = "your script; not retried" if yours else "not retried"
        return Line(f"{event.what}{at} ({whose})")
    facts = [_at_step(event.step)] if event.step else []
    facts += [f"{inside_a_sentence(event.what)}{at}"]
    lower = " or ".join(f"{name} (now {value:,})" for name, value in event.lower[:2])
    facts += [f"to use less memory, lower {lower}"] * bool(lower)
    return Line(SEPARATOR.join(facts))


def _waiting(event: Waiting) -> Line:
    facts = [inside_a_sentence(event.trouble), *([event.advice] if event.advice else [])]
    tries = [] if event.next_try is None else [f"next try in {duration(event.next_try)}"]
    tries += [] if event.limit is None else [f"for up to {duration(event.limit)}"]
    facts.append(", ".join(tries))
    return Line(SEPARATOR.join(facts))


def _resumed(event: Resumed) -> Line:
    changes = event.option or event.changes or "no changes"
    where = event.at or event.checkpoint
    if event.by_itself and not event.checkpoint:
        where = "the script resumes on its own"
    vain = f"  ({event.in_vain} did not help)" if event.in_vain else ""
    return Line(f"{where or 'the same command'}, {changes}{vain}")


def _stopped(event: Stopped) -> Line:
    at = f" at {_at_step(event.step)}" if event.step else ""
    facts = [f"after {duration(event.seconds)}{at}"]
    facts += [f"the script exited with code {event.code}"] if event.code else []
    anew = "Nothing to resume from was found. To start it again:"  # where it begins is its own
    how = "To continue:" if event.resumes else anew
    return Line(SEPARATOR.join(facts), (Advice(how, event.resume),) if event.resume else ())


def _gave_up(event: GaveUp) -> Line:
    advice: list[Advice] = []
    if event.place:
        change = f": {event.change}" if event.change else ""
        advice.append(Advice(f"Fix {user_line(event.place)}{change}."))
    if event.no_resume:
        typed = one_line(event.no_resume)
        if not event.all_cut_off:
            advice += _to_resume(event.method, typed)
        advice.append(Advice("To start over:", f"rocsteady run --resume never -- {typed}"))
    elif event.fix is not None and not event.place:
        advice.append(Advice(event.fix.text))
        advice += [Advice(command=command) for command in event.fix.commands]
    advice += [Advice("Then:" if advice else "To try again:", event.then)] if event.then else []
    if event.cause:
        advice.append(Advice("To find the operation that fails, in at most 30 min:", event.cause))
    advice += [Advice(command=event.report)] if event.report else []
    why = inside_a_sentence(event.why.rstrip("."))
    return Line(f"after {duration(event.seconds)}{SEPARATOR}{why}", tuple(advice))


def _done(event: Done) -> Line:
    about = "" if event.exact else "about "
    took = duration(event.seconds)
    facts = [f"{about}{plural(event.steps, 'step')} in {took}" if event.steps else f"in {took}"]
    if event.deadline:
        facts.append(event.deadline)
    spoilt = f"the loss was NaN or infinite by step {event.not_finite:,}, to the end"
    facts += [spoilt] * bool(event.not_finite)
    facts += [f"trained; failed afterwards: {event.afterwards}"] * bool(event.afterwards)
    failures = [
        plural(count, *words)
        for count, words in ((event.hangs, ("hang",)), (event.crashes, ("crash", "crashes")))
        if count
    ]
    if failures:
        cost = f" cost {duration(event.lost)}" if event.lost >= 1 else ""
        facts.append(f"{' and '.join(failures)}{cost}")
    trouble = failures or event.not_finite or event.afterwards
    advice = []
    fix = f"Fix {user_line(event.place)}" if event.place else ""
    if event.keep:
        words = f"{fix}, or keep the workaround:" if fix else "To keep the workaround:"
        advice.append(Advice(words, event.keep))
    elif fix:
        advice.append(Advice(f"{fix}."))
    advice += [Advice(command=event.report)] if trouble and event.report else []
    return Line(SEPARATOR.join(facts), tuple(advice))


def _at_step(step: int | None) -> str:
    return f"step {step:,}" if step else ""


WRITERS: dict[type[Event], Callable[..., Line]] = {
    Note: lambda event: Line(" ".join(event.text.split())),
    Faults: lambda event: Line(f"injected into this run: {event.variable} is set"),
    Started: _started,
    Quiet: _quiet,
    Moving: lambda event: Line(f"{_at_step(event.step)} after {duration(event.after)}".lstrip()),
    Crashed: _crashed,
    Waiting: _waiting,
    Resumed: _resumed,
    Stopped: _stopped,
    GaveUp: _gave_up,
    Done: _done,
}
