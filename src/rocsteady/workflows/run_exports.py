"""Gives the numbers of a run to the tools that people watch already, while it goes on.

Whatever goes wrong with one of them is said once, and costs the run nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from rocsteady.attempts.attempt_end import AttemptEnd
from rocsteady.errors import RocsteadyError
from rocsteady.forecast.runs import story_ahead
from rocsteady.host import webhook_post as sender
from rocsteady.host.atomic_file import write_whole
from rocsteady.host.bounded_call import AnswerKind, ask
from rocsteady.job.address import host_of
from rocsteady.job.job_file import user_configuration
from rocsteady.job.metrics import RUN, Metrics
from rocsteady.job.values import Job
from rocsteady.journal.journal import Journal
from rocsteady.journal.values import Run
from rocsteady.redaction.machine_names import redactor_here
from rocsteady.report.otlp import otlp_headers, otlp_post
from rocsteady.report.prometheus import render_prometheus
from rocsteady.report.run_metrics import RunMetrics, metrics_of
from rocsteady.supervisor.notifications import WebhookPost
from rocsteady.supervisor.observer import ObservedRun, Observer

EVERY = 15.0  # seconds between two sets of numbers, at least
SHARE = 0.01  # of the time that may go into reading the journal for them
LOOK_EVERY = 2.0  # seconds between two looks whether numbers are due
POST_WITHIN = timedelta(seconds=5)
READABLE = 0o644  # node_exporter is another user
MOST_TEXT = 500  # characters of an event
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"


class Target(Protocol):
    """Takes the numbers of a run."""

    name: str  # that may be shown

    def write(self, metrics: RunMetrics, /) -> str:
        """Take them; return why that failed, or ""."""


@dataclass
class PrometheusFile:
    """A file for the textfile collector of node_exporter, always whole."""

    path: Path
    name: str

    def write(self, metrics: RunMetrics) -> str:
        """Put a new file in the place of the old one."""
        try:
            write_whole(self.path, render_prometheus(metrics).encode(), mode=READABLE)
        except OSError as error:
            return error.strerror or type(error).__name__
        return ""


@dataclass
class OtlpCollector:
    """A collector of OpenTelemetry, asked by a process of its own, which may hang."""

    address: str
    name: str

    def write(self, metrics: RunMetrics) -> str:
        """Send them."""
        return sent(otlp_post(metrics, self.address, otlp_headers(os.environ.get(HEADERS, ""))))


def sent(post: WebhookPost) -> str:
    """Have a process send it; return why that failed, or ""."""
    command = [sys.executable, "-I", "-S", str(Path(sender.__file__))]
    answer = ask(command, within=POST_WITHIN, given=msgspec.json.encode(post))
    if answer.outcome is not AnswerKind.ANSWERED:
        return str(answer.outcome.value)
    return answer.text.strip() if answer.exit_code else ""


def exports_of(job: Job, run: Run, journal: Journal, folder: Path) -> RunExports:
    """Return what the job file asks for, else what the user's configuration does."""
    wanted = job.metrics or user_configuration().metrics or Metrics()
    return RunExports(journal, run.name, targets_of(wanted, run.name, folder))


def targets_of(wanted: Metrics, run: str, folder: Path) -> tuple[Target, ...]:
    """Return who is given the numbers of a run; a file is found from the folder of the job."""
    found: list[Target] = []
    if wanted.prometheus:
        path = wanted.prometheus.replace(RUN, run)
        found.append(PrometheusFile(folder / Path(path).expanduser(), path))
    if wanted.otlp:
        found.append(OtlpCollector(wanted.otlp, f"the collector at {host_of(wanted.otlp)}"))
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
        self._due = began + EVERY
        if not self.targets:
            return
        with contextlib.suppress(RocsteadyError):  # the journal is locked for long: later
            metrics = self._metrics()
            self._due += (time.monotonic() - began) / SHARE
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
