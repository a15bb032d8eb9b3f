"""Gives the numbers of a run to the tools that people watch already, while it goes on.

Whatever goes wrong with one of them is said once, and costs the run nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from rocsteady.errors import RocsteadyError
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.job.job_file import user_configuration
from rocsteady.run.job.metrics import RUN, Metrics
from rocsteady.run.job.values import Job
from rocsteady.run.observer import ObservedRun, Observer
from rocsteady.run.telling.run_metrics import MetricsEvent, RunMetrics, known, metrics_of
from rocsteady.store.forecast import story_ahead
from rocsteady.store.journal import Journal
from rocsteady.store.redaction import redactor_here
from rocsteady.store.values import Run
from rocsteady.system.atomic_file import write_whole

EXPORT_EVERY = 15.0  # seconds between two sets of numbers, at least
EXPORT_SHARE = 0.01  # of the time that may go into reading the journal for them
LOOK_EVERY = 2.0  # seconds between two looks whether numbers are due
READABLE = 0o644  # node_exporter is another user
MOST_TEXT = 500  # characters of an event


class Target(Protocol):
    """Takes the numbers of a run."""

    name: str  # that may be shown

    def write(self, metrics: RunMetrics, /) -> str:
        """Take them; return why that failed, or ""."""


@dataclass
class JsonLinesFile:
    """A file with one JSON object a line: the numbers of each interval, and each event once."""

    path: Path
    name: str
    _began: float = field(default_factory=time.time)  # earlier events are those of a run resumed
    _events: set[MetricsEvent] = field(default_factory=set)

    def write(self, metrics: RunMetrics) -> str:
        """Add what is new."""
        about = {"version": 1, "run": metrics.run}
        events = [e for e in metrics.events if e.at >= self._began and e not in self._events]
        rows: list[dict[str, object]] = [
            {**about, "type": "event", "at": event.at, "text": event.text} for event in events
        ]
        rows.append({**about, "type": "metrics", "at": metrics.at, **metrics.values})
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            with os.fdopen(os.open(self.path, flags, READABLE), "ab") as stream:
                stream.write(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        except OSError as error:
            return error.strerror or type(error).__name__
        self._events.update(events)
        return ""


@dataclass
class PrometheusFile:
    """A file for the textfile collector of node_exporter, always whole."""

    path: Path
    name: str

    def write(self, metrics: RunMetrics) -> str:
        """Put a new file in the place of the old one."""
        try:
            write_whole(self.path, exposition(metrics).encode(), mode=READABLE)
        except OSError as error:
            return error.strerror or type(error).__name__
        return ""


def exposition(metrics: RunMetrics) -> str:
    """Lay out the numbers as Prometheus reads them."""
    run = metrics.run.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return "".join(
        f"# HELP rocsteady_{quantity.name} {quantity.meaning}\n"
        f"# TYPE rocsteady_{quantity.name} gauge\n"
        f'rocsteady_{quantity.name}{{run="{run}"}} {metrics.values[quantity.name]}\n'
        for quantity in known(metrics)
    )


def exports_of(job: Job, run: Run, journal: Journal, folder: Path) -> RunExports:
    """Return what the job file asks for, else what the user's configuration does."""
    wanted = job.metrics or user_configuration().metrics or Metrics()
    return RunExports(journal, run.name, targets_of(wanted, run.name, folder))


def targets_of(wanted: Metrics, run: str, folder: Path) -> tuple[Target, ...]:
    """Return who is given the numbers of a run; a file is found from the folder of the job."""
    found: list[Target] = []
    if wanted.file:
        path = wanted.file.replace(RUN, run)
        found.append(JsonLinesFile(folder / Path(path).expanduser(), path))
    if wanted.prometheus:
        path = wanted.prometheus.replace(RUN, run)
        found.append(PrometheusFile(folder / Path(path).expanduser(), path))
    return tuple(found)


def _written(target: Target, metrics: RunMetrics) -> str:
    try:
        return target.write(metrics)
    except Exception as error:  # noqa: BLE001 - it costs some numbers, never the run
        return type(error).__name__


@dataclass
class RunExports(Observer):
    """Follows one run."""

    journal: Journal
    run: str
    targets: tuple[Target, ...]
    every: float = LOOK_EVERY
    _due: float = 0.0
    _failed: set[str] = field(default_factory=set)

    def ticked(self, run: ObservedRun) -> None:
        """Write what is due."""
        if time.monotonic() >= self._due:
            self._write(run.say)

    def ended(self, run: ObservedRun, end: AttemptEnd) -> None:
        """Write numbers at the next tick."""
        del run, end
        self._due = 0.0

    def close(self, say: Callable[[str], None]) -> None:
        """Write the end of the run."""
        with contextlib.suppress(RocsteadyError):
            self.journal.flush()
        self._write(say)

    def _write(self, say: Callable[[str], None]) -> None:
        began = time.monotonic()
        self._due = began + EXPORT_EVERY
        if not self.targets:
            return
        with contextlib.suppress(RocsteadyError):  # the journal is locked for long: later
            metrics = self._metrics()
            self._due += (time.monotonic() - began) / EXPORT_SHARE
            for target in self.targets:
                why = _written(target, metrics)
                if why and target.name not in self._failed:
                    self._failed.add(target.name)
                    say(f"metrics not written to {target.name}: {why}.")

    def _metrics(self) -> RunMetrics:
        now, lines = time.time(), self.journal.runs()
        line = next(line for line in lines if line.run.name == self.run)
        story = story_ahead(self.journal.story(self.run), lines, now=now)
        metrics, hide = metrics_of(line, story, now=now), redactor_here().text
        events = [
            msgspec.structs.replace(event, text=hide(event.text)[:MOST_TEXT])
            for event in metrics.events
        ]
        return msgspec.structs.replace(metrics, events=tuple(events))
