"""Gives the numbers of a run to the tools that people watch already, while it goes on.

Whatever goes wrong with one of them is said once, and costs the run nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from rocsteady import __version__
from rocsteady.errors import RocsteadyError
from rocsteady.report.run_metrics import RunEvent, RunMetrics, known, metrics_of
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.job.address import host_of
from rocsteady.run.job.job_file import user_configuration
from rocsteady.run.job.metrics import RUN, Metrics
from rocsteady.run.job.values import Job
from rocsteady.run.observer import ObservedRun, Observer
from rocsteady.run.telling.forecast import story_ahead
from rocsteady.store.journal import Journal
from rocsteady.store.redaction import redactor_here
from rocsteady.store.values import Run
from rocsteady.system.atomic_file import write_whole

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData

EVERY = 15.0  # seconds between two sets of numbers, at least
SHARE = 0.01  # of the time that may go into reading the journal for them
LOOK_EVERY = 2.0  # seconds between two looks whether numbers are due
POST_WITHIN = 5.0  # seconds
OTLP_PATH = "/v1/metrics"
INSTALL = 'the package {} is missing: pip install "rocsteady[metrics]"'
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
    _events: set[RunEvent] = field(default_factory=set)

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
            from prometheus_client import CollectorRegistry, Gauge, generate_latest  # noqa: PLC0415
        except ModuleNotFoundError:
            return INSTALL.format("prometheus-client")
        registry = CollectorRegistry()
        for quantity in known(metrics):
            gauge = Gauge(
                f"rocsteady_{quantity.name}", quantity.meaning, ["run"], registry=registry
            )
            gauge.labels(run=metrics.run).set(metrics.values[quantity.name])
        try:
            write_whole(self.path, generate_latest(registry), mode=READABLE)
        except OSError as error:
            return error.strerror or type(error).__name__
        return ""


@dataclass
class OtlpCollector:
    """A collector of OpenTelemetry, asked over HTTP."""

    address: str
    name: str

    def write(self, metrics: RunMetrics) -> str:
        """Send them; the SDK takes its headers from OTEL_EXPORTER_OTLP_HEADERS."""
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415
                OTLPMetricExporter,
            )
            from opentelemetry.sdk.metrics.export import MetricExportResult  # noqa: PLC0415
        except ModuleNotFoundError:
            return INSTALL.format("opentelemetry-exporter-otlp-proto-http")
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # said once, by us
        url = self.address.rstrip("/")
        exporter = OTLPMetricExporter(
            url if url.endswith(OTLP_PATH) else url + OTLP_PATH, timeout=POST_WITHIN
        )
        try:
            accepted = exporter.export(_otlp_data(metrics)) is MetricExportResult.SUCCESS
        finally:
            exporter.shutdown()
        return "" if accepted else "no collector accepted them there"


def _otlp_data(metrics: RunMetrics) -> MetricsData:
    """Lay out the numbers as the SDK has them."""
    from opentelemetry.sdk.metrics import export  # noqa: PLC0415 - of an extra
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

    resource = Resource({"service.name": "rocsteady", "rocsteady.run": metrics.run})
    at = int(metrics.at * 1e9)
    gauges = [
        export.Metric(
            name=f"rocsteady.{quantity.name}",
            description=quantity.meaning,
            unit=quantity.unit or "1",
            data=export.Gauge([export.NumberDataPoint({}, at, at, metrics.values[quantity.name])]),
        )
        for quantity in known(metrics)
    ]
    scope = export.ScopeMetrics(InstrumentationScope("rocsteady", __version__), gauges, "")
    return export.MetricsData([export.ResourceMetrics(resource, [scope], "")])


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
