"""One run on a full screen: how far it is, when it ends, what went wrong, what it prints.

Every line fits the width, and all of them together the height; the log gets what is left.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo

from rocsteady.model import IntentKind, RunOutcome, Value
from rocsteady.printable import printable
from rocsteady.report.run_report import incident_title
from rocsteady.screens.deadline import spare, until
from rocsteady.screens.runs import state_of, style_of
from rocsteady.screens.sparkline import long_bar
from rocsteady.screens.text_page import BOLD, DIM, RED, YELLOW, Page, wrapped
from rocsteady.screens.times import moment
from rocsteady.screens.watch_series import gauge_rows, of_last_attempt, series_rows
from rocsteady.store.values import DecisionRecord, Forecast, RunLine, RunStory
from rocsteady.wording import duration, plural

LABEL = 12  # columns
BAR_LEAST, BAR_MOST = 10, 40  # columns
SPARK_MOST = 60  # columns
RANK_QUIET = 5.0  # seconds without a step, after which a rank in a phase of its own stands out
LEAST_LOG = 3  # lines; incidents give way to them
MOST_RANK_LINES = 8
MOST_INCIDENT_LINES = 2  # of one
MOST_SAID_LINES = 4  # a hang's place is at the end of what is said of it
KEYS = "s stacks  p pause  R restart  x stop  r report  ? help  q quit"


class RankView(Value, frozen=True, kw_only=True):
    """One rank as its heartbeat shows it."""

    rank: int
    step: int
    phase: str
    quiet: float  # seconds since its last step


class WatchView(Value, frozen=True, kw_only=True):
    """What the screen shows of a run at one moment."""

    now: float
    line: RunLine
    story: RunStory
    ranks: tuple[RankView, ...] = ()
    log: tuple[str, ...] = ()  # its last lines
    note: str = ""  # a question, or what became of a key; "": the keys


def render_watch(  # noqa: PLR0913 - each is said by name
    view: WatchView,
    *,
    width: int,
    height: int,
    colour: bool,
    blocks: bool = True,  # the terminal has block characters
    zone: tzinfo | None = None,
) -> str:
    """Lay the screen out, in no more than ``height`` lines of ``width`` columns."""
    return "\n".join(_Screen(view, width, colour=colour, blocks=blocks, zone=zone).lines(height))


def is_paused(story: RunStory) -> bool:
    """Tell whether the user has paused a run."""
    return story.run.ended is None and any(
        intent.kind is IntentKind.PAUSE and intent.outcome is None for intent in story.intents
    )


def state_in_words(line: RunLine, story: RunStory) -> str:
    """Say how a run is: a paused one is not stalled."""
    return "paused" if line.alive and is_paused(story) else state_of(line)


def percent_done(line: RunLine) -> float | None:
    """Return the part that is done, from 0 to 1, if the total is known."""
    return min(1.0, line.step / line.total) if line.total and line.step is not None else None


def odd_ranks(ranks: Sequence[RankView]) -> frozenset[int]:
    """Return the ranks that differ from most others: behind, or quiet in a phase of their own."""
    if len(ranks) < 2:  # noqa: PLR2004 - there is nothing to differ from
        return frozenset()
    step = Counter(rank.step for rank in ranks).most_common(1)[0][0]
    behind = frozenset(rank.rank for rank in ranks if rank.step < step - 1)
    if behind:
        return behind
    phase, count = Counter(rank.phase for rank in ranks).most_common(1)[0]
    if count * 2 <= len(ranks):
        return frozenset()
    return frozenset(
        rank.rank for rank in ranks if rank.phase != phase and rank.quiet >= RANK_QUIET
    )


def clipped(text: str, width: int) -> str:
    """Cut a line to a number of columns; some characters take two, some none."""
    if len(text) <= width and text.isascii():
        return text
    used, kept = 0, []
    for mark in text:
        used += _columns(mark)
        if used > width:
            break
        kept.append(mark)
    return "".join(kept)


def _columns(mark: str) -> int:
    if unicodedata.combining(mark):
        return 0
    return 2 if unicodedata.east_asian_width(mark) in "WF" else 1


class _Screen:
    """Collects the lines of one screen."""

    def __init__(
        self, view: WatchView, width: int, *, colour: bool, blocks: bool, zone: tzinfo | None
    ) -> None:
        self._view, self._width, self._blocks, self._zone = view, width, blocks, zone
        self._styled = Page(width, colour=colour).styled

    def lines(self, height: int) -> list[str]:
        """Return the lines, from top to bottom, the keys on the last one."""
        top = [*self._head(), *self._pace(), *self._ranks()]
        incidents = list(self._incidents())
        said = list(self._said())
        room = height - 1  # for the keys
        keep = max(0, room - len(top) - len(said) - LEAST_LOG)
        if len(incidents) > keep:
            incidents = incidents[len(incidents) - keep :]  # the last ones
        body = [*top, *incidents, *said][: max(0, room)]
        log = self._log(room - len(body))
        rest = [""] * (room - len(body) - len(log))
        return [*body, *log, *rest, self._foot()][:height]

    def _head(self) -> Iterator[str]:
        view, line = self._view, self._view.line
        name = clipped(line.run.name, min(30, self._width))
        state = state_in_words(line, view.story)
        attempt = f", attempt {line.attempts}" if line.attempts > 1 else ""
        words = clipped(f"{state}{attempt}", max(0, self._width - len(name) - 2))
        style = YELLOW if state == "paused" else style_of(line)
        part = percent_done(line)
        pieces = [self._styled(name, BOLD), *([self._styled(words, style)] if words else [])]
        numbers = list(self._numbers())
        taken = sum(len(each) + 2 for each in (*numbers, "100 %"))
        beside = len(name) + len(words) + 4
        together = beside + taken + BAR_LEAST <= self._width
        if part is not None:
            room = self._width - taken - (beside if together else 0)
            drawn = long_bar(part, max(0, min(BAR_MOST, room)), blocks=self._blocks)
            numbers.insert(0, f"{drawn} {int(part * 100)} %")
        if together:
            yield "  ".join([*pieces, *map(printable, numbers)])
        else:
            yield "  ".join(pieces)
            yield from self._flow("", numbers, indent=0)
        if ahead := self._ahead():
            yield self._clip(ahead)

    def _numbers(self) -> Iterator[str]:
        line = self._view.line
        if line.step is not None:
            yield f"step {line.step:,}/{line.total:,}" if line.total else f"step {line.step:,}"
        if line.rate:
            yield f"{line.rate:.2f} steps/s" if line.rate >= 0.1 else f"{1 / line.rate:.0f} s/step"  # noqa: PLR2004 - fewer digits would say nothing

    def _ahead(self) -> str:
        view, line, deadline = self._view, self._view.line, self._view.story.deadline
        now, ahead = view.now, view.story.forecast
        if line.run.ended is not None:
            outcome = "finished" if line.run.outcome is RunOutcome.DONE else f"{line.run.outcome},"
            return f"{outcome} {self._moment(line.run.ended)}"
        if line.alive is False:
            return f"its supervisor is gone; to resume: rocsteady run --resume {line.run.name}"
        if ahead is None or line.stalled:
            quiet = ""
            if line.stalled and line.last_progress is not None:
                quiet = f"no progress for {duration(now - line.last_progress)}"
            due = until(deadline, now=now, zone=self._zone) if deadline is not None else ""
            return "; ".join(each for each in (quiet, due) if each)
        return self._finishes(ahead, deadline)

    def _finishes(self, ahead: Forecast, deadline: float | None) -> str:
        text = f"finishes about {self._moment(ahead.at)}"
        if deadline is not None:
            text += f" (deadline {self._moment(deadline)}, {spare(ahead.at, deadline)})"
        return text

    def _pace(self) -> Iterator[str]:
        progress = self._view.story.progress
        if not progress:
            return
        buckets = of_last_attempt(progress)
        room = max(1, min(SPARK_MOST, self._width - LABEL - 36))
        for label, text in series_rows(
            buckets, self._view.story.intents, room, blocks=self._blocks
        ):
            yield self._row(label, text)
        spent: Counter[str] = Counter()
        for bucket in buckets:
            spent.update(bucket.seconds_in)
        total = sum(spent.values())
        if total > 0:
            shares = [f"{name} {seconds / total * 100:.0f} %" for name, seconds in spent.items()]
            yield from self._flow("time", shares)
        for label, text in gauge_rows(buckets, blocks=self._blocks):
            yield self._clip(f"{label:<{LABEL}}{text}")

    def _ranks(self) -> Iterator[str]:
        ranks = self._view.ranks
        if len(ranks) < 2:  # noqa: PLR2004 - one rank is the run
            return
        odd = odd_ranks(ranks)
        cells = {
            each.rank: f"{each.rank}: {each.step:,} {each.phase}{' *' if each.rank in odd else ''}"
            for each in ranks
        }
        wide = max(map(len, cells.values())) + 2
        across = max(1, (self._width - LABEL) // wide)
        numbers = list(cells)
        rows = [numbers[n : n + across] for n in range(0, len(numbers), across)]
        if len(rows) > MOST_RANK_LINES:  # those that stand out are never left out
            numbers = sorted(numbers, key=lambda rank: (rank not in odd, rank))
            numbers = numbers[: MOST_RANK_LINES * across]
            rows = [numbers[n : n + across] for n in range(0, len(numbers), across)]
        for number, row in enumerate(rows):
            label = "ranks" if not number else ""
            drawn = [
                self._styled(cells[rank], RED * (rank in odd)) + " " * (wide - len(cells[rank]))
                for rank in row
            ]
            yield f"{label:<{LABEL}}{''.join(drawn)}".rstrip()
        if len(cells) > len(numbers):
            yield self._row("", f"and {plural(len(cells) - len(numbers), 'other rank')}")
        if odd:
            yield self._row("", "* behind the others, or waiting in another phase")

    def _incidents(self) -> Iterator[str]:
        """Yield each failure with what was done about it."""
        story = self._view.story
        decided = {decision.attempt: decision for decision in story.decisions}
        named = {failed.attempt: failed for failed in story.failures}
        hung = {incident.attempt: incident for incident in story.incidents}
        retried = {attempt.number for attempt in story.attempts}
        label = "incidents"
        for number in sorted({*named, *hung}):
            title = named[number].failure.title if number in named else ""
            at = hung[number].at if number in hung else named[number].at
            what = title or incident_title(hung[number])
            blame = hung[number].blame if number in hung else None
            who = f" ({blame.why})" if blame and blame.ranks else ""
            then = _then(decided.get(number), retried=number + 1 in retried)
            text = f"{self._clock(at)} attempt {number}: {what.rstrip('.')}{who}; {then}"
            for line in wrapped(text, self._width - LABEL)[:MOST_INCIDENT_LINES]:
                yield self._row(label, line)
                label = ""

    def _said(self) -> Iterator[str]:
        """Yield the last thing that rocsteady said."""
        messages = self._view.story.messages
        if messages:
            text = f"{self._clock(messages[-1].at)} {messages[-1].text}"
            label = "rocsteady"
            for line in wrapped(text, self._width - LABEL)[:MOST_SAID_LINES]:
                yield self._row(label, line)
                label = ""

    def _log(self, room: int) -> list[str]:
        if room < 1:
            return []
        last = self._view.log[-room:]
        if not last:
            return [self._row("log", "(nothing printed yet)")]
        labels = ["log", *[""] * (len(last) - 1)]
        texts = (text.expandtabs(4).rstrip() for text in last)  # with the spaces of its bars
        return [
            self._clip(f"{each:<{LABEL}}{text}") for each, text in zip(labels, texts, strict=True)
        ]

    def _foot(self) -> str:
        note = self._view.note
        text = clipped(printable(note or KEYS), self._width)
        return self._styled(text, BOLD if note else DIM)

    def _row(self, label: str, text: str) -> str:
        """Return one line, cut to the width."""
        return self._clip(f"{label:<{LABEL}}{' '.join(text.split())}")

    def _flow(self, label: str, pieces: Sequence[str], indent: int = LABEL) -> Iterator[str]:
        """Yield pieces side by side, on as many lines as they need."""
        row = f"{label:<{indent}}"
        for piece in pieces:
            if len(row) > indent and len(row) + len(piece) > self._width:
                yield self._clip(row.rstrip())
                row = " " * indent
            row += f"{piece}  "
        yield self._clip(row.rstrip())

    def _clip(self, text: str) -> str:
        return clipped(printable(text), self._width).rstrip()

    def _clock(self, at: float) -> str:
        return datetime.fromtimestamp(at, tz=self._zone).strftime("%H:%M")

    def _moment(self, at: float) -> str:
        """Name a moment; of today, by its time only."""
        then, now = (datetime.fromtimestamp(t, tz=self._zone).date() for t in (at, self._view.now))
        return self._clock(at) if then == now else moment(at, now=self._view.now, zone=self._zone)


def _then(decision: DecisionRecord | None, *, retried: bool) -> str:
    """Say what was done after a failure."""
    if decision is None:
        return "collecting evidence"
    if decision.ends:
        return "not restarted"
    same = decision.changes_nothing or decision.what.startswith("again")
    changed = "" if same else f" with {decision.what}"
    return f"restarted{changed}" if retried else f"restarting{changed}"
