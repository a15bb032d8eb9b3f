"""What ``rocsteady watch`` shows of a run at one moment, in words; ``watch_app`` draws it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from itertools import pairwise

from rocsteady.model import IntentKind, RunOutcome, Value
from rocsteady.report.story import incident_title
from rocsteady.run.run_watcher import RankView, WatchView
from rocsteady.screens.runs import state_of
from rocsteady.store.values import (
    Bucket,
    DecisionRecord,
    Gauge,
    Intent,
    RunLine,
    RunRecord,
    paused_between,
)
from rocsteady.wording import duration, moment, plural, size, spare, until

RANK_QUIET = 5.0  # seconds without a step, after which a rank in a phase of its own stands out
RANKS_SHOWN = 64
SERIES = ("loss", "step time")  # in this order, from above
ODD = "*"  # after a rank that stands out
INCIDENTS_SHOWN = 3
LOSS, HOST = "loss", "host memory"  # gauges of the journal
READINGS_FOR = 180.0  # seconds; older ones say nothing of now
Detail = tuple[str, str | tuple[str, ...]]  # a label; a text to wrap, or cells that stay whole
_OF_GPU = re.compile(r"(GPU \d+) (\w+)")


class Series(Value, frozen=True, kw_only=True):
    """Values over time, for a curve, and the last of them in words."""

    label: str
    values: tuple[float, ...]
    last: str


def is_paused(story: RunRecord) -> bool:
    return story.run.ended is None and any(
        intent.kind is IntentKind.PAUSE and intent.outcome is None for intent in story.intents
    )


def state_in_words(line: RunLine, story: RunRecord) -> str:
    """Return the state of a run in a word or two; a paused one is not stalled."""
    return "paused" if line.alive and is_paused(story) else state_of(line)


def part_done(line: RunLine) -> float | None:
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


def pace(line: RunLine) -> str:
    words = []
    if line.step is not None:
        words.append(f"step {line.step:,}/{line.total:,}" if line.total else f"step {line.step:,}")
    if line.rate:
        slow = line.rate < 0.1  # noqa: PLR2004 - fewer digits would say nothing
        words.append(f"{1 / line.rate:.0f} s/step" if slow else f"{line.rate:.2f} steps/s")
    return "  ".join(words)


def outlook(view: WatchView, zone: tzinfo | None = None) -> str:
    """Return when the run finishes, how it ended, or since when it stands."""
    line, deadline = view.line, view.story.deadline
    now, ahead = view.now, view.story.forecast
    if line.run.ended is not None:
        outcome = "finished" if line.run.outcome is RunOutcome.DONE else f"{line.run.outcome},"
        return f"{outcome} {_moment(line.run.ended, now, zone)}"
    if line.alive is False:
        return f"its supervisor is gone; to resume: rocsteady run --resume {line.run.name}"
    if ahead is None or line.stalled:
        quiet = ""
        if line.stalled and line.last_progress is not None:
            quiet = f"no progress for {duration(now - line.last_progress)}"
        due = until(deadline, now=now, zone=zone) if deadline is not None else ""
        return "; ".join(each for each in (quiet, due) if each)
    text = f"finishes about {_moment(ahead.at, now, zone)}"
    if deadline is not None:
        text += f" (deadline {_moment(deadline, now, zone)}, {spare(ahead.at, deadline)})"
    return text


def series(story: RunRecord) -> tuple[Series, ...]:
    buckets = of_last_attempt(story.progress)
    found = []
    losses = tuple(each.gauges[LOSS].mean for each in buckets if LOSS in each.gauges)
    if losses:
        found.append(Series(label="loss", values=losses, last=f"{losses[-1]:.4g}"))
    times = step_times(buckets, story.intents)
    if len(times) > 1:
        last = f"{duration(times[-1])} (slowest {duration(max(times))})"
        found.append(Series(label="step time", values=times, last=last))
    return tuple(found)


def details(view: WatchView, zone: tzinfo | None = None) -> Iterator[Detail]:
    """Yield where the time goes, GPUs, ranks, what went wrong, and what was said last."""
    buckets = of_last_attempt(view.story.progress)
    spent: Counter[str] = Counter()
    for bucket in buckets:
        spent.update(bucket.seconds_in)
    total = sum(spent.values())
    if total > 0:
        shares = (f"{name} {seconds / total * 100:.0f} %" for name, seconds in spent.items())
        yield "time", tuple(shares)
    yield from _gauges(buckets)
    yield from _ranks(view.ranks)
    yield from _incidents(view.story, zone)
    if view.story.messages:
        message = view.story.messages[-1]
        yield "rocsteady", f"{_clock(message.at, zone)} {message.text}"


def of_last_attempt(progress: Sequence[Bucket]) -> tuple[Bucket, ...]:
    return tuple(bucket for bucket in progress if bucket.attempt == progress[-1].attempt)


def step_times(buckets: Sequence[Bucket], intents: Sequence[Intent] = ()) -> tuple[float, ...]:
    """Return the mean seconds of a step, a bucket each, without pauses."""
    moved = [(each.last_progress, each.last_step) for each in buckets if each.last_progress]
    return tuple(
        (end - begin - paused_between(intents, begin, end)) / (after - before)
        for (begin, before), (end, after) in pairwise(moved)
        if after > before
    )


def _gauges(buckets: Sequence[Bucket]) -> Iterator[Detail]:
    """Yield a row for each GPU, and one for the memory of the host, as last measured."""
    last: dict[str, Gauge] = {}
    for bucket in buckets:
        if bucket.start > buckets[-1].start - READINGS_FOR:
            last |= bucket.gauges
    gpus: dict[str, dict[str, Gauge]] = {}
    for name, gauge in last.items():
        if found := _OF_GPU.fullmatch(name):
            gpus.setdefault(found[1], {})[found[2]] = gauge
    for label, gauges in sorted(gpus.items()):
        texts = [
            f"{title}{gauges[name].mean:.0f} {unit}"
            for name, title, unit in (
                ("busy", "busy ", "%"),
                ("temperature", "", "°C"),
                ("power", "", "W"),
            )
            if name in gauges
        ]
        if "memory" in gauges:
            texts.append(size(gauges["memory"].mean))
        yield label, tuple(texts)
    if HOST in last:
        yield "host", size(last[HOST].mean)


def _ranks(ranks: Sequence[RankView]) -> Iterator[Detail]:
    """Yield the ranks side by side; those that stand out are never left out."""
    if len(ranks) < 2:  # noqa: PLR2004 - one rank is the run
        return
    odd = odd_ranks(ranks)
    shown = sorted(ranks, key=lambda each: (each.rank not in odd, each.rank))[:RANKS_SHOWN]
    cells = [
        f"{each.rank}: {each.step:,} {each.phase}{f' {ODD}' if each.rank in odd else ''}"
        for each in sorted(shown, key=lambda each: each.rank)
    ]
    if len(ranks) > len(shown):
        cells.append(f"and {plural(len(ranks) - len(shown), 'other rank')}")
    yield "ranks", tuple(cells)
    if odd:
        yield "", f"{ODD} behind the others, or waiting in another phase"


def _incidents(story: RunRecord, zone: tzinfo | None) -> Iterator[tuple[str, str]]:
    decided = {decision.attempt: decision for decision in story.decisions}
    named = {failed.attempt: failed for failed in story.failures}
    hung = {incident.attempt: incident for incident in story.incidents}
    retried = {attempt.number for attempt in story.attempts}
    numbers = sorted({*named, *hung})
    label = "incidents"
    if len(numbers) > INCIDENTS_SHOWN:
        yield label, f"{len(numbers) - INCIDENTS_SHOWN} earlier ones are in the report (key r)"
        label = ""
    for number in numbers[-INCIDENTS_SHOWN:]:
        title = named[number].failure.title if number in named else ""
        at = hung[number].at if number in hung else named[number].at
        what = title or incident_title(hung[number])
        blame = hung[number].blame if number in hung else None
        who = f" ({blame.why})" if blame and blame.ranks else ""
        then = _then(decided.get(number), retried=number + 1 in retried)
        yield label, f"{_clock(at, zone)} attempt {number}: {what.rstrip('.')}{who}; {then}"
        label = ""


def _then(decision: DecisionRecord | None, *, retried: bool) -> str:
    if decision is None:
        return "collecting evidence"
    if decision.ends:
        return "not restarted"
    same = decision.changes_nothing or decision.what.startswith("again")
    changed = "" if same else f" with {decision.what}"
    return f"restarted{changed}" if retried else f"restarting{changed}"


def _clock(at: float, zone: tzinfo | None) -> str:
    return datetime.fromtimestamp(at, tz=zone).strftime("%H:%M")


def _moment(at: float, now: float, zone: tzinfo | None) -> str:
    """Name a moment; of today, by its time only."""
    then, today = (datetime.fromtimestamp(each, tz=zone).date() for each in (at, now))
    return _clock(at, zone) if then == today else moment(at, now=now, zone=zone)
