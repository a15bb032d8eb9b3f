"""Reading the journal back: the list of runs, and the whole story of one."""

from __future__ import annotations

import math
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from itertools import pairwise

from msgspec.structs import replace

from rocsteady.errors import JournalError
from rocsteady.model import IntentKind, RunState
from rocsteady.store.database import select
from rocsteady.store.forecast import totals
from rocsteady.store.identity import Identity, is_alive
from rocsteady.store.values import (
    AttemptCost,
    AttemptRecord,
    Bucket,
    DecisionRecord,
    Incident,
    Intent,
    MessageRecord,
    NamedFailure,
    Run,
    RunLine,
    RunRecord,
    paused_between,
)
from rocsteady.system.root import well_formed

RATE_OVER = 15 * 60.0  # seconds of late progress that a rate is taken from
STALLED_AFTER, STALLED_STEPS = 30.0, 20  # seconds without progress; also so many usual steps
DOUBTED_AFTER, DOUBTED_STEPS = 10.0, 3  # the same after a verdict that it does not move
NOT_MOVING = frozenset({RunState.SLOW, RunState.HUNG, RunState.STOPPED})
RECENT_SECONDS = 60.0  # seconds, for the rate of a run that is stalled


def run_named(connection: sqlite3.Connection, name: str) -> Run:
    """Return a run to the byte: so its command can be started again."""
    for run in select(connection, Run, "WHERE name = ?", name):
        return run
    raise JournalError(f"there is no run {name!r} in this journal; to list them: rocsteady status")


def run_and_choices(
    connection: sqlite3.Connection, name: str
) -> tuple[Run, tuple[AttemptRecord | DecisionRecord, ...]]:
    """Return a run, and the rows that say with what it was or is to be started."""
    run = run_named(connection, name)
    attempts = select(connection, AttemptRecord, "WHERE run = ?", run.id)
    return run, (*attempts, *select(connection, DecisionRecord, "WHERE run = ?", run.id))


def refuse_second(
    connection: sqlite3.Connection, command: object, job: object, here: Identity
) -> None:
    """Raise if a run with this command or its checkpoints is going on here."""
    for run in select(connection, Run, "WHERE ended IS NULL AND boot_id = ?", here.boot_id):
        if run.process == here.process or not is_alive(run.process):
            continue
        shared = _shared(_checkpoints(run.job), _checkpoints(job))
        if run.command == command or shared:
            same, files = "the same command", "the same files"
            if run.command != command:
                same, files = "the same checkpoints", f"{shared!r}"
            what = f"run {run.name} with {same} is running in this folder"
            raise JournalError(
                f"{what}, and both would write to {files}. To stop it: rocsteady stop {run.name}."
                " To start a second run anyway: --resume never"
            )


def _shared(first: list[str], second: list[str]) -> str:
    """Return a pattern of the first that also covers a pattern of the second, or is covered."""
    for one in map(os.path.normpath, first):
        for other in map(os.path.normpath, second):
            if fnmatch(one, other) or fnmatch(other, one):
                return one
    return ""


def _checkpoints(job: object) -> list[str]:
    """Return the patterns of a job's checkpoints, as far as the journal has any."""
    resume = job.get("resume") if isinstance(job, dict) else None
    patterns = resume.get("checkpoints") if isinstance(resume, dict) else None
    found = patterns if isinstance(patterns, list | tuple) else ()
    return [each for each in found if isinstance(each, str)]


def run_lines(connection: sqlite3.Connection, here: Identity, now: float) -> tuple[RunLine, ...]:
    runs = select(connection, Run, "ORDER BY started DESC, id DESC")
    return tuple(_line(connection, _shown(run), here, now) for run in runs)


def story(connection: sqlite3.Connection, name: str) -> RunRecord:
    """Return all that is known of a run, as of one moment."""
    connection.execute("BEGIN")
    try:
        run = _shown(run_named(connection, name))
        attempts = select(connection, AttemptRecord, "WHERE run = ? ORDER BY number", run.id)
        progress = select(connection, Bucket, "WHERE run = ? ORDER BY start, attempt", run.id)
        losses = tuple(_losses(attempts, progress))
        return RunRecord(
            run=run,
            attempts=attempts,
            incidents=select(connection, Incident, "WHERE run = ? ORDER BY number", run.id),
            failures=select(connection, NamedFailure, "WHERE run = ? ORDER BY attempt", run.id),
            decisions=select(connection, DecisionRecord, "WHERE run = ? ORDER BY id", run.id),
            messages=_messages(connection, run),
            intents=select(connection, Intent, "WHERE run = ? ORDER BY id", run.id),
            progress=progress,
            losses=losses,
            seconds_lost=sum(loss.idle + loss.redoing for loss in losses),
        )
    finally:
        connection.execute("ROLLBACK")


def rate(buckets: Sequence[Bucket], intents: Sequence[Intent] = ()) -> float | None:
    """Return steps a second over the last of the buckets, without pauses; None: not known."""
    moving = [bucket for bucket in buckets if bucket.last_progress is not None]
    if not moving:
        return None
    end = moving[-1].last_progress or 0.0
    late = [b for b in moving if b.attempt == moving[-1].attempt and b.start >= end - RATE_OVER]
    late = late or moving[-1:]
    begin, first = late[0].first_progress or late[0].start, late[0].first_step
    if len(late) > 1:  # an attempt's first bucket begins at step 0, whatever it goes on from
        begin, first = late[0].last_progress or begin, late[0].last_step
    steps = late[-1].last_step - first
    seconds = end - begin - paused_between(intents, begin, end)
    return steps / seconds if seconds > 0 and steps > 0 else None


def attempt_of(connection: sqlite3.Connection, intent: Intent) -> tuple[Run, AttemptRecord] | None:
    """Return the attempt that an intent belongs to, if both were written down."""
    runs = select(connection, Run, "WHERE id = ?", intent.run)
    attempts = select(
        connection, AttemptRecord, "WHERE run = ? AND number = ?", intent.run, intent.attempt
    )
    return (runs[0], attempts[0]) if runs and attempts else None


def _messages(connection: sqlite3.Connection, run: Run) -> tuple[MessageRecord, ...]:
    """Return what was said of a run, and of the journal itself meanwhile: what it lost."""
    where = "WHERE run = ? OR (run IS NULL AND at BETWEEN ? AND ?) ORDER BY id"
    end = float("inf") if run.ended is None else run.ended
    return select(connection, MessageRecord, where, run.id, run.started, end)


def _line(connection: sqlite3.Connection, run: Run, here: Identity, now: float) -> RunLine:
    most = 120 if run.ended is None else 8  # of an old run, how far it was is enough
    newest = f"WHERE run = ? ORDER BY start DESC, attempt DESC LIMIT {most}"
    last = select(connection, Bucket, newest, run.id, without=("gauges",))[::-1]  # JSON, not shown
    pauses = "WHERE run = ? AND kind = ?", run.id, IntentKind.PAUSE.value
    speed = rate(last, select(connection, Intent, *pauses) if run.ended is None else ())
    step = _step(connection, run, last)
    total = totals(last)
    left = max(0, total - step) if total is not None and step is not None else None
    moved = [b.last_progress for b in last if b.last_progress is not None]
    if not moved and step and run.ended is not None:
        moved = [run.ended]  # it was over before it could be seen to move
    ours = run.boot_id == here.boot_id and bool(here.boot_id)
    gone = run.machine == here.machine and not ours
    alive = False if run.ended or gone else is_alive(run.process) if ours else None
    stalled = alive is not False and run.ended is None and _is_stalled(last, speed, now)
    if stalled:
        speed, left = _recent_rate(last, now), None
    return RunLine(
        run=run,
        alive=alive,
        attempts=_count(connection, "attempts", run.id),
        incidents=_count(connection, "incidents", run.id),
        step=step,
        total=total,
        rate=speed,
        last_progress=max(moved, default=None),
        seconds_left=left / speed if left is not None and speed else None,
        stalled=stalled,
    )


def _step(connection: sqlite3.Connection, run: Run, last: Sequence[Bucket]) -> int | None:
    """Return how far a run is; one that starts again is where it was until it moves."""
    if not last:
        return None
    now = last[-1]
    if any(b.attempt == now.attempt and b.last_progress is not None for b in last):
        return now.last_step
    newest = "WHERE run = ? AND last_progress IS NOT NULL ORDER BY start DESC, attempt DESC LIMIT 1"
    moved = select(connection, Bucket, newest, run.id, without=("gauges",))
    return max(now.last_step, moved[0].last_step) if moved else now.last_step


def _is_stalled(buckets: Sequence[Bucket], speed: float | None, now: float) -> bool:
    """Return whether a run makes no progress, by its verdict or its usual step time."""
    moving = [bucket for bucket in buckets if bucket.last_progress is not None]
    last = moving[-1] if moving else None
    if last is None or last.last_progress is None or last.last_step >= (last.total or math.inf):
        return False
    quiet = now - last.last_progress
    since = [  # what was said of an earlier attempt is over
        each
        for each in buckets
        if each.start + each.width > last.last_progress and each.attempt == buckets[-1].attempt
    ]
    if any(NOT_MOVING & each.seconds_as.keys() for each in since):
        least, steps = DOUBTED_AFTER, DOUBTED_STEPS
    elif buckets[-1].attempt != last.attempt:  # which is starting
        return False
    else:
        least, steps = STALLED_AFTER, STALLED_STEPS
    return quiet > max(least, steps / speed if speed else 0.0)


def _recent_rate(buckets: Sequence[Bucket], now: float) -> float:
    """Return steps a second up to now, of a run that is stalled."""
    steps = 0.0
    for bucket in buckets:
        begin, end = bucket.first_progress, bucket.last_progress
        if begin is not None and end is not None and end > now - RECENT_SECONDS:
            late = min(1.0, (end - (now - RECENT_SECONDS)) / max(end - begin, 1e-9))
            steps += late * max(0, bucket.last_step - bucket.first_step)
    return steps / RECENT_SECONDS


def _count(connection: sqlite3.Connection, table: str, run: int) -> int:
    rows = connection.execute(f"SELECT count(*) FROM {table} WHERE run = ?", (run,))  # noqa: S608 - our own name
    return int(rows.fetchone()[0])


def _losses(attempts: Sequence[AttemptRecord], progress: Sequence[Bucket]) -> Iterable[AttemptCost]:
    """Yield what each attempt that was followed by another cost."""
    of: dict[int, list[Bucket]] = defaultdict(list)
    for bucket in progress:
        of[bucket.attempt].append(bucket)
    for place, (attempt, following) in enumerate(pairwise(attempts)):
        own, then = of[attempt.number], of[following.number]
        # The time of a later attempt without a step is counted with the attempt before it.
        begun = (attempt.ended if place else None) or attempt.started
        stopped = max((b.last_progress for b in own if b.last_progress), default=begun)
        resumed = min(
            (b.first_progress for b in then if b.first_progress),
            default=following.ended or following.started,
        )
        later = (_first_step(each, of[each.number]) for each in attempts[place + 1 :])
        resumed_at = next((step for step in later if step is not None), None)
        redone = _redone(attempt, own, resumed_at)
        speed = rate(own)
        yield AttemptCost(
            attempt=attempt.number,
            idle=max(0.0, resumed - stopped),
            steps_redone=redone,
            redoing=redone / speed if speed else 0.0,
        )


def _first_step(attempt: AttemptRecord, own: Sequence[Bucket]) -> int | None:
    if attempt.first_step is not None:
        return attempt.first_step
    moving = [bucket for bucket in own if bucket.first_progress is not None]
    return (moving[0].first_step or moving[0].last_step) if moving else None


def _redone(attempt: AttemptRecord, own: Sequence[Bucket], resumed_at: int | None) -> int:
    """Return how many of its steps the next attempt that made any had to repeat."""
    if resumed_at is None or _first_step(attempt, own) is None:
        return 0
    last_step = own[-1].last_step if attempt.last_step is None else attempt.last_step
    return max(0, last_step - resumed_at)


def _shown(run: Run) -> Run:
    """Make a command well-formed, so that it can be shown and sent."""
    return replace(run, command=tuple(well_formed(word) for word in run.command))
