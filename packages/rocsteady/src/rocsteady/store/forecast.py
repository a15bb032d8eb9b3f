"""When a run will be done, from what was seen of it so far. Pure functions.

The pace is taken as a level that may wander: how much it wandered from one stretch to the next is
how much it may wander still. A pace that was even gives its mean and a narrow interval; one that
changed gives the late one and a wide interval. What restarts and stalls cost is counted apart from
the pace, and expected as often as it was seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from statistics import median
from typing import NamedTuple

import msgspec
from rocsteady_train import goodput

from rocsteady.model import Deadline, Forecast
from rocsteady.store.values import SAVED_GAUGE, Bucket, DecisionRecord, Run, RunLine, RunRecord
from rocsteady.typed_values import convert

STRETCHES = 12  # of equal time, that the work so far is cut into
FEWEST_STRETCHES = 3  # stretches that say something
ENOUGH_WORK = 10.0  # seconds of work
UNSEEN_DEVIATION = 0.06  # deviation of the pace from one hour to another
MINUTE, HOUR = 60.0, 3600.0  # seconds
YOUNG, YOUNG_GRAIN = 600.0, 3.0  # seconds
WIDE = 1.645  # standard deviations either side of the middle, for 90 %
WIDEST_SPREAD = 3.0  # as a logarithm
NEAR, STALL = 5, 4.0  # a stall takes so many times as long as moves do so near to it
LONGEST_RESTART = HOUR  # what takes longer was left by its supervisor, which is no failure
LEAST_SHARE = 0.02  # of the time that is work, however often it fails
PRIOR_BETWEEN = 4 * 3600.0  # seconds between failures, as long as nothing is known
LATEST_RUNS = 50  # runs that count


class ProgressPoint(NamedTuple):
    at: float  # by the wall clock
    step: int
    attempt: int


class Restarts(NamedTuple):
    between: float  # seconds between two, by earlier runs
    started: float  # the run, by the wall clock
    saving: float | None = None  # seconds between two checkpoints, where that was seen


class _Move(NamedTuple):
    seconds: float
    steps: int
    attempt: int


class _MeasuredPace(NamedTuple):
    rate: float  # steps a second
    variance: float  # of its logarithm, as what follows
    wanders: float  # variance that comes with each further stretch
    trend: float  # change with each stretch, in the middle
    stretch: float  # seconds
    seen: int  # stretches
    stalls: int
    stalled: float  # seconds


def due(deadline: Deadline | None, started: float) -> float | None:
    """Return the moment that a deadline means for a run that started then."""
    if deadline is None:
        return None
    if deadline.within is not None:
        return started + deadline.within.total_seconds()
    return deadline.at.timestamp() if deadline.at else None


def due_of(run: Run) -> float | None:
    deadline = run.job.get("deadline")
    if deadline is None:
        return None
    try:
        return due(convert(deadline, Deadline), run.started)
    except msgspec.ValidationError:
        return None  # of another version


def forecast(
    points: Sequence[ProgressPoint],
    total: int | None,
    *,
    now: float,
    restarts: Restarts,
    since: int = 0,
) -> Forecast | None:
    """Return when it will be done; None as long as too little was seen, or it counts over again.

    The pace is that of the attempts after ``since``: those before it went another way.
    """
    if not points or total is None or points[-1].step >= total:
        return None
    if any(one.attempt == two.attempt and two.step < one.step / 2 for one, two in pairwise(points)):
        return None  # as that of an epoch: its total is not the job's
    pace = _pace([move for move in _moves(points) if move.attempt > since])
    if pace is None:
        return None
    left, each = total - points[-1].step, 1 / pace.rate
    now, work = max(now, points[-1].at), left * each
    off, (stalled, more_stalled) = _off(pace, work), _stalls(pace, work)
    again, between, saving = _costs(points, now, each, restarts)
    share = max(LEAST_SHARE, goodput.share_of_work(max(1.0, saving), 0.0, again, between))
    failures, cost = work / between, again + saving / 2
    more = WIDE * cost * math.sqrt(failures) + more_stalled
    expected, middle = cost * failures + stalled, (work + stalled) / share
    begin = now - min(now - points[-1].at, each)  # a step is under way
    return Forecast(
        at=begin + middle,
        early=begin + min(work / off + max(0.0, expected - more), middle),
        late=begin + (work * off + stalled) / share + more,
        rate=pace.rate,
        left=left,
        failures=failures,
    )


def needed(left: int, until: float, now: float) -> float:
    """Return the steps a second that it takes to be done by a moment."""
    return left / (until - now) if until > now else math.inf


def points_of(buckets: Sequence[Bucket]) -> list[ProgressPoint]:
    """Return how far a run was when; of a bucket only the end is exact.

    Once a minute, and of a run that began a few minutes ago more often, so that something can be
    said in its first minute.
    """
    points: dict[tuple[int, float], ProgressPoint] = {}
    moved = [bucket.start for bucket in buckets if bucket.last_progress is not None]
    young = bool(moved) and moved[-1] - moved[0] < YOUNG
    for bucket in buckets:
        if bucket.last_progress is not None:
            key = bucket.attempt, bucket.start // (YOUNG_GRAIN if young else MINUTE)
            points[key] = ProgressPoint(bucket.last_progress, bucket.last_step, bucket.attempt)
    return list(points.values())


def saving_of(buckets: Sequence[Bucket]) -> float | None:
    """Return the seconds between two checkpoints; None if fewer than two were seen."""
    saved = [bucket.start for bucket in buckets if SAVED_GAUGE in bucket.gauges] or [
        bucket.start for bucket in buckets if bucket.seconds_in.get("checkpoint")
    ]
    return interval(saved)


def interval(times: Sequence[float]) -> float | None:
    """Return the usual seconds from one of these moments to the next; None if there are not two."""
    return median(two - one for one, two in pairwise(times)) if len(times) > 1 else None


def totals(buckets: Sequence[Bucket]) -> int | None:
    """Return how many steps it is in all, as it was told last; None if it is beyond that."""
    told = next((bucket.total for bucket in reversed(buckets) if bucket.total is not None), None)
    return None if told is not None and buckets[-1].last_step > told else told


def _off(pace: _MeasuredPace, work: float) -> float:
    """Return by what factor the work may take longer, or less: as it changed, it may go on to."""
    ahead = work / pace.stretch
    unseen = UNSEEN_DEVIATION**2 / (1 + pace.stretch * pace.seen / HOUR)
    trend = (pace.trend * min(ahead, 2 * pace.seen) / 2) ** 2
    wandering = pace.wanders * min(ahead, pace.seen) / 3
    deviation = math.sqrt(pace.variance + max(wandering, trend) + unseen)
    return math.exp(min(WIDEST_SPREAD, WIDE * (1 + 1.5 / (pace.seen - 1)) * deviation))


def _moves(points: Sequence[ProgressPoint]) -> Iterator[_Move]:
    """Yield what was done from one point to the next, within each attempt."""
    for one, two in pairwise(points):
        if one.attempt == two.attempt and two.at > one.at and two.step > one.step:
            yield _Move(two.at - one.at, two.step - one.step, one.attempt)


def _without_stalls(moves: Sequence[_Move]) -> Iterator[_Move]:
    """Yield the moves, and for those that were held up what they would have taken else."""
    each = [move.seconds / move.steps for move in moves]
    for at, move in enumerate(moves):
        usual = median(each[max(0, at - NEAR) : at + NEAR + 1])
        stalled = each[at] > STALL * usual
        yield move._replace(seconds=usual * move.steps) if stalled else move


def _pace(moves: Sequence[_Move]) -> _MeasuredPace | None:
    """Find the level of the pace now, by a Kalman filter over stretches of equal time."""
    clean = list(_without_stalls(moves))
    lost = [one.seconds - two.seconds for one, two in zip(moves, clean, strict=True) if one != two]
    whole = sum(move.seconds for move in clean)
    rates = list(_stretches(clean, whole / STRETCHES))
    if len(rates) < FEWEST_STRETCHES or whole < ENOUGH_WORK:
        return None
    changes = [math.log(two / one) for one, two in pairwise(rates)]
    power = sum(change**2 for change in changes) / len(changes)
    opposed = [-one * two for one, two in pairwise(changes)]
    noise = min(max(0.0, sum(opposed) / len(opposed)), power / 2)
    wanders = power - 2 * noise
    level, variance = rates[0], noise
    for rate in rates[1:]:
        variance += wanders
        gain = variance / (variance + noise) if variance + noise else 1.0
        level += gain * (rate - level)
        variance *= 1 - gain
    return _MeasuredPace(
        rate=level,
        variance=variance,
        wanders=wanders,
        trend=median(changes),
        stretch=whole / len(rates),
        seen=len(rates),
        stalls=len(lost),
        stalled=sum(lost),
    )


def _stretches(moves: Sequence[_Move], wanted: float) -> Iterator[float]:
    """Yield the rate of stretches of about the time wanted; what is left over at the end waits."""
    seconds, steps = 0.0, 0
    for move in moves:
        seconds, steps = seconds + move.seconds, steps + move.steps
        if seconds >= wanted * (1 - 1e-9):
            yield steps / seconds
            seconds, steps = 0.0, 0


def _stalls(pace: _MeasuredPace, work: float) -> tuple[float, float]:
    """Return the seconds that stalls will take, as they did so far, and by how much that is off."""
    if not pace.stalls:
        return 0.0, 0.0
    count = work / (pace.stretch * pace.seen) * pace.stalls
    one = pace.stalled / pace.stalls
    return count * one, WIDE * one * math.sqrt(count + 1)


def _costs(
    points: Sequence[ProgressPoint], now: float, each: float, restarts: Restarts
) -> tuple[float, float, float]:
    """Return the seconds that a restart takes, between two failures, and between two saves."""
    ends = [(one, two) for one, two in pairwise(points) if one.attempt != two.attempt]
    lost = [max(0.0, two.at - one.at) for one, two in ends]
    redone = [max(0, one.step - two.step) * each for one, two in ends]
    again = median(lost) if lost else max(0.0, points[0].at - restarts.started)
    saving = restarts.saving
    if saving is None:
        saving = 2 * sum(redone) / len(redone) if redone else 0.0
    seconds = max(0.0, now - restarts.started)
    between = goodput.between_failures(seconds, len(ends), prior=restarts.between)
    return min(again, LONGEST_RESTART), between, saving


def fell_after(decisions: Iterable[DecisionRecord]) -> int:
    """Return the attempt after which a run last fell back to another option; 0 if it never did."""
    return max((each.attempt for each in decisions if each.decision.fallback), default=0)


def between_failures(lines: Iterable[RunLine], *, but: int) -> float:
    """Return the seconds between two failures.

    Runs that have ended count, each attempt after the first as a failure. Not the run ``but``: its
    own failures are counted by the training, which has them in its checkpoint.
    """
    ended = (line for line in lines if line.run.ended is not None and line.run.id != but)
    seconds, failures = 0.0, 0
    for line in islice(ended, LATEST_RUNS):
        seconds += max(0.0, (line.run.ended or 0.0) - line.run.started)
        failures += max(0, line.attempts - 1)
    return goodput.between_failures(seconds, failures, prior=PRIOR_BETWEEN)


def lines_ahead(
    lines: Sequence[RunLine], story_of: Callable[[str], RunRecord], *, now: float
) -> tuple[RunLine, ...]:
    return tuple(_line_ahead(line, lines, story_of, now) for line in lines)


def story_ahead(story: RunRecord, lines: Sequence[RunLine], *, now: float) -> RunRecord:
    """Look ahead for one run; ``lines`` are all of the journal."""
    deadline, ahead = due_of(story.run), None
    if story.run.ended is None:
        ahead = forecast(
            points_of(story.progress),
            totals(story.progress),
            now=now,
            restarts=Restarts(
                between=between_failures(lines, but=story.run.id),
                started=story.run.started,
                saving=saving_of(story.progress),
            ),
            since=fell_after(story.decisions),
        )
    return msgspec.structs.replace(story, deadline=deadline, forecast=ahead)


def _line_ahead(
    line: RunLine, lines: Sequence[RunLine], story_of: Callable[[str], RunRecord], now: float
) -> RunLine:
    if line.run.ended is not None or line.total is None:
        return msgspec.structs.replace(line, deadline=due_of(line.run))
    story = story_ahead(story_of(line.run.name), lines, now=now)
    ahead = None if line.stalled else story.forecast
    return msgspec.structs.replace(line, deadline=story.deadline, forecast=ahead)
