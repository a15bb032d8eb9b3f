"""Gives the numbers of a run to the tools that people watch already, while it goes on.

Whatever goes wrong with one of them is said once, and costs the run nothing.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from rocsteady.errors import RocsteadyError
from rocsteady.model import RunOutcome, Value
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.job.metrics import RUN, Metrics
from rocsteady.run.observer import ObservedRun, Observer
from rocsteady.store.forecast import story_ahead
from rocsteady.store.journal import Journal
from rocsteady.store.redaction import redactor_here
from rocsteady.store.run_account import (
    costs_of,
    decision_after,
    decision_with_reason,
    end_of,
    end_with_step,
    ended_well,
    failure_after,
    incident_title,
)
from rocsteady.store.values import RunLine, RunRecord
from rocsteady.system.atomic_file import write_whole

EXPORT_EVERY = 15.0  # seconds between two sets of numbers, at least
EXPORT_SHARE = 0.01  # of the time that may go into reading the journal for them
LOOK_EVERY = 2.0  # seconds between two looks whether numbers are due
READABLE = 0o644  # node_exporter is another user
MOST_TEXT = 500  # characters of an event
QUANTITIES = {  # and what each means, in one line
    "running": "1 while the run is in progress, else 0.",
    "done": "1 once the job is done, else 0.",
    "step": "Steps completed so far, as counted by the script.",
    "planned_steps": "Total number of steps.",
    "steps_per_second": "Recent steps per second.",
    "remaining_seconds": "Expected time until the run ends.",
    "goodput_ratio": "Share of the time spent training.",
    "lost_seconds": "Time lost to failures and restarts.",
    "attempts": "Number of times the command was started.",
    "incidents": "Number of incidents.",
    "last_progress_timestamp_seconds": "When the last step was completed.",
    "deadline_timestamp_seconds": "When the job must be done.",
    "updated_timestamp_seconds": "When these values were recorded.",
}


class MetricsEvent(Value, frozen=True, kw_only=True):
    at: float
    text: str


class RunMetrics(Value, frozen=True, kw_only=True):
    run: str
    at: float
    values: dict[str, float]  # by name of a quantity; without what is not known
    events: tuple[MetricsEvent, ...] = ()  # all so far, in order


class JsonLinesFile:
    """A file with one JSON object a line: the numbers of each interval, and each event once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = time.time()  # earlier events are those of a run resumed
        self._events: set[MetricsEvent] = set()

    def write(self, metrics: RunMetrics) -> None:
        about = {"version": 1, "run": metrics.run}
        events = [e for e in metrics.events if e.at >= self._began and e not in self._events]
        rows: list[dict[str, object]] = [
            {**about, "type": "event", "at": event.at, "text": event.text} for event in events
        ]
        rows.append({**about, "type": "metrics", "at": metrics.at, **metrics.values})
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(self._path, flags, READABLE), "ab") as stream:
            stream.write(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        self._events.update(events)


def write_for_prometheus(path: Path, metrics: RunMetrics) -> None:
    """Put a new file for the textfile collector of node_exporter in the place of the old one."""
    write_whole(path, exposition(metrics).encode(), mode=READABLE)


def exposition(metrics: RunMetrics) -> str:
    """Lay out the numbers as Prometheus reads them."""
    run = metrics.run.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return "".join(
        f"# HELP rocsteady_{name} {meaning}\n"
        f"# TYPE rocsteady_{name} gauge\n"
        f'rocsteady_{name}{{run="{run}"}} {metrics.values[name]}\n'
        for name, meaning in QUANTITIES.items()
        if name in metrics.values
    )


class RunExports(Observer):
    """Follows one run; a file is found from the folder of its job."""

    every = LOOK_EVERY

    def __init__(self, journal: Journal, run: str, wanted: Metrics, folder: Path) -> None:
        self._journal, self._run = journal, run
        self._due = 0.0
        self._failed: set[str] = set()
        self._writers: dict[str, Callable[[RunMetrics], None]] = {}  # by what may be shown
        if wanted.file:
            name = wanted.file.replace(RUN, run)
            self._writers[name] = JsonLinesFile(folder / Path(name).expanduser()).write
        if wanted.prometheus:
            name = wanted.prometheus.replace(RUN, run)
            path = folder / Path(name).expanduser()
            self._writers[name] = partial(write_for_prometheus, path)

    def ticked(self, run: ObservedRun) -> None:
        if time.monotonic() >= self._due:
            self._write(run.say)

    def ended(self, run: ObservedRun, end: AttemptEnd) -> None:
        """Write numbers at the next tick."""
        del run, end
        self._due = 0.0

    def close(self, say: Callable[[str], None]) -> None:
        with contextlib.suppress(RocsteadyError):
            self._journal.flush()
        self._write(say)

    def _write(self, say: Callable[[str], None]) -> None:
        began = time.monotonic()
        self._due = began + EXPORT_EVERY
        if not self._writers:
            return
        with contextlib.suppress(RocsteadyError):  # the journal is locked for long: later
            metrics = self._metrics()
            self._due += (time.monotonic() - began) / EXPORT_SHARE
            for name, write in self._writers.items():
                try:
                    write(metrics)
                except Exception as error:  # noqa: BLE001 - it costs some numbers, never the run
                    if name not in self._failed:
                        self._failed.add(name)
                        why = getattr(error, "strerror", None) or type(error).__name__
                        say(f"metrics not written to {name}: {why}.")

    def _metrics(self) -> RunMetrics:
        now, lines = time.time(), self._journal.runs()
        line = next(line for line in lines if line.run.name == self._run)
        return metrics_of(line, story_ahead(self._journal.story(self._run), lines, now=now), now)


def metrics_of(line: RunLine, story: RunRecord, now: float) -> RunMetrics:
    ended, costs = line.run.ended, costs_of(story, now)
    ahead = story.forecast
    values: dict[str, float | None] = {
        "running": float(ended is None and line.alive is not False),
        "done": float(line.run.outcome is RunOutcome.DONE),
        "step": line.step,
        "planned_steps": line.total,
        "steps_per_second": line.rate if ended is None else None,
        "remaining_seconds": max(0.0, ahead.at - now) if ahead and not line.stalled else None,
        "goodput_ratio": costs.useful / costs.whole if line.last_progress and costs.whole else None,
        "lost_seconds": story.seconds_lost,
        "attempts": len(story.attempts),
        "incidents": len(story.incidents),
        "last_progress_timestamp_seconds": line.last_progress,
        "deadline_timestamp_seconds": story.deadline,
        "updated_timestamp_seconds": now,
    }
    finite = {
        name: float(value)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    }
    return RunMetrics(run=line.run.name, at=now, values=finite, events=events_of(story))


def events_of(story: RunRecord) -> tuple[MetricsEvent, ...]:
    """Return what happened to a run: incidents, ends of attempts and what followed, its end."""
    events = [
        (each.at, f"incident {each.number}: {incident_title(each)}") for each in story.incidents
    ]
    for attempt in story.attempts:
        failure = failure_after(story, attempt.number)
        decision = decision_after(story, attempt.number)
        if attempt.ended is None or failure is None or decision is None:  # not yet
            continue
        end = end_with_step(end_of(attempt), attempt.last_step, ended_well=ended_well(attempt))
        text = f"attempt {attempt.number} {end}. {failure.title.rstrip('.')}."
        events.append((attempt.ended, f"{text} {decision_with_reason(decision)}"))
    if story.run.ended is not None:
        events.append((story.run.ended, f"the run ended: {story.run.outcome.value}"))
    hide = redactor_here().text
    return tuple(MetricsEvent(at=at, text=hide(text)[:MOST_TEXT]) for at, text in sorted(events))
