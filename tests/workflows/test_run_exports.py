"""The numbers of a run arrive as a file and at a collector; what goes wrong is said once."""

from __future__ import annotations

import errno
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from msgspec.structs import replace

from rocsteady.errors import JobError
from rocsteady.evidence.heartbeat_pages import Tracker, read_trackers
from rocsteady.job.job_file import parse_job
from rocsteady.job.metrics import Metrics, is_loopback, metrics_lines
from rocsteady.journal.journal import Journal
from rocsteady.journal.location import find_place
from rocsteady.report.otlp import otlp_headers
from rocsteady.report.prometheus import render_prometheus
from rocsteady.report.run_metrics import QUANTITIES, RunEvent, RunMetrics
from rocsteady.workflows.run_exports import (
    OtlpCollector,
    PrometheusFile,
    RunExports,
    targets_of,
)
from rocsteady.workflows.tracker_feeds import EventFile, TrackerFeeds

NUMBERS = RunMetrics(
    run="calm-otter",
    at=1000.5,
    step=70,
    values={"step": 70.0, "goodput_ratio": 0.75, "incidents": 1.0},
    events=(RunEvent(at=900.0, text="incident 1: hung"),),
)
DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD, GUIDE = DOCS / "grafana-dashboard.json", DOCS / "howto/other-tools.md"
posix = pytest.mark.skipif(os.name == "nt", reason="folders that cannot be written to are of POSIX")


class Handler(BaseHTTPRequestHandler):
    seen: ClassVar[list[tuple[str, dict[str, str], bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, dict(self.headers), body))
        self.send_response(403 if "refuse" in self.path else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[str]:
    Handler.seen.clear()
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    made.server_close()
    thread.join()


def test_a_file_for_node_exporter() -> None:
    text = render_prometheus(NUMBERS)

    lines = text.splitlines()
    assert 'rocsteady_goodput_ratio{run="calm-otter"} 0.75' in lines
    assert "# TYPE rocsteady_step gauge" in lines
    assert len(lines) == 3 * 3
    assert text.endswith("\n")
    assert len({quantity.name for quantity in QUANTITIES}) == len(QUANTITIES)


def test_the_file_is_replaced_whole_and_others_may_read_it(tmp_path: Path) -> None:
    target = PrometheusFile(tmp_path / "a.prom", "a.prom")

    assert target.write(NUMBERS) == ""
    assert target.write(NUMBERS) == ""

    assert (tmp_path / "a.prom").read_text() == render_prometheus(NUMBERS)
    assert [path.name for path in tmp_path.iterdir()] == ["a.prom"]
    if os.name != "nt":
        assert (tmp_path / "a.prom").stat().st_mode & 0o777 == 0o644


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    target = PrometheusFile(tmp_path / "gone/a.prom", "a.prom")
    assert target.write(NUMBERS) == "No such file or directory"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = PrometheusFile(tmp_path / "a.prom", "a.prom")
    target.write(NUMBERS)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rocsteady.host.atomic_file.os.fsync", full)
    assert target.write(NUMBERS) == "No space left on device"
    assert [path.name for path in tmp_path.iterdir()] == ["a.prom"]


@pytest.mark.skipif(os.name == "nt", reason="FIFOs of POSIX")
def test_a_fifo_in_place_of_an_event_file_blocks_nobody(tmp_path: Path) -> None:
    (tmp_path / "rocsteady").mkdir()
    os.mkfifo(tmp_path / "rocsteady" / "events")
    feed = EventFile(name="TensorBoard", path=tmp_path / "rocsteady" / "events")
    writer = threading.Thread(target=feed.write, args=(NUMBERS,), daemon=True)
    writer.start()

    writer.join(10)

    assert not writer.is_alive()


def test_a_collector_gets_otlp(collector: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20x,y=z")

    assert OtlpCollector(collector, "the collector").write(NUMBERS) == ""

    ((path, headers, body),) = Handler.seen
    assert path == "/v1/metrics"
    assert headers["Content-Type"] == "application/json"
    assert headers["Authorization"] == "Bearer x"
    (resource,) = json.loads(body)["resourceMetrics"]
    names = {
        each["key"]: each["value"]["stringValue"] for each in resource["resource"]["attributes"]
    }
    assert names == {"service.name": "rocsteady", "rocsteady.run": "calm-otter"}
    (scope,) = resource["scopeMetrics"]
    gauges = {each["name"]: each for each in scope["metrics"]}
    (point,) = gauges["rocsteady.goodput_ratio"]["gauge"]["dataPoints"]
    assert point == {"timeUnixNano": "1000500000000", "asDouble": 0.75}


def test_a_collector_that_refuses_or_is_not_there(collector: str) -> None:
    assert OtlpCollector(f"{collector}/refuse", "it").write(NUMBERS) == "HTTP status 403"
    assert OtlpCollector("http://127.0.0.1:1", "it").write(NUMBERS) == "Connection refused"


def test_headers_of_opentelemetry() -> None:
    assert otlp_headers("") == {}
    assert otlp_headers("a=1, b=c%3Dd") == {"a": "1", "b": "c=d"}


def test_what_a_job_file_says(tmp_path: Path) -> None:
    text = 'command = ["a"]\n[metrics]\nprometheus = "x-{run}.prom"\notlp = "http://h:1/?t=s"\n'
    job = parse_job(text)
    assert job.metrics is not None

    file, collector = targets_of(job.metrics, "calm-otter", tmp_path)

    assert isinstance(file, PrometheusFile)
    assert file.path == tmp_path / "x-calm-otter.prom"
    assert collector.name == "the collector at h"
    written, sent = metrics_lines(job.metrics)
    assert written == "metrics.prometheus: writes x-{run}.prom"
    assert "t=s" not in sent
    assert targets_of(Metrics(), "calm-otter", tmp_path) == ()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('prometheus = "a.txt"', "must end in .prom"),
        ('otlp = "collector:4318"', "must begin with https:// or http://"),
        ('otlp = ""', "must begin with https:// or http://"),
        ('prometheus = ""', "must end in .prom"),
        ('prometheus = ".prom"', "must name a file, such as rocsteady-{run}.prom"),
        ('prometheus = "/var/lib/.prom"', "must name a file, such as rocsteady-{run}.prom"),
        ('prometheus = "{runs}.prom"', "{runs} is not known; the name of the run is {run}"),
        ('statsd = "a"', "metrics.statsd: unknown key"),
        ("trackers = 1", "metrics.trackers"),
    ],
)
def test_what_is_wrong_with_a_job_file(line: str, problem: str) -> None:
    with pytest.raises(JobError, match=r"metrics") as raised:
        parse_job(f'command = ["a"]\n[metrics]\n{line}\n')
    assert problem in str(raised.value)


@pytest.mark.parametrize("address", ["http://localhost:5", "http://127.0.0.3", "https://[::1]:4"])
def test_this_machine(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["http://localhost.example.org", "http://10.0.0.1", "nonsense"])
def test_other_machines(address: str) -> None:
    assert not is_loopback(address)


def feeds(folder: Path) -> TrackerFeeds:
    return TrackerFeeds("calm-otter", folder, {})


def test_a_tracker_of_another_machine_is_left_alone(tmp_path: Path) -> None:
    said: list[str] = []
    made, where = feeds(tmp_path), {"uri": "https://mlflow.example.org", "run": "1"}
    remote = Tracker(kind="mlflow", where=where, python="/usr/bin/false", folder=str(tmp_path))
    cloud = Tracker(kind="tensorboard", where={"folder": "gs://bucket/runs"})

    for _ in range(2):
        assert not made.follow([remote, cloud], said.append)

    assert said == [
        "metrics not written to MLflow: its server is not on this machine.",
        "metrics not written to TensorBoard: its files are not on this machine.",
    ]
    assert made.open == ()


@posix
def test_a_log_folder_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    made = feeds(tmp_path)
    assert made.follow([Tracker(kind="tensorboard", where={"folder": str(folder)})], print)
    (tracker,) = made.open

    assert tracker.write(NUMBERS) == "its folder is gone"
    assert not folder.exists()


@posix
def test_an_interpreter_without_the_package(tmp_path: Path) -> None:
    said: list[str] = []
    made = feeds(tmp_path)
    told = Tracker(kind="wandb", where={}, python="/bin/false", folder=str(tmp_path))
    assert made.follow([told], said.append)

    made.close(said.append)

    why = "its process did not finish; see trackers.log in the run's folder"
    assert said[1:] == [f"metrics not written to W&B: {why}."]


def test_what_a_process_left_is_not_believed(tmp_path: Path) -> None:
    good = {"version": 1, "python": "/usr/bin/python3", "folder": "/", "trackers": []}
    one = {"kind": "wandb", "where": {"project": "p"}}
    for pid, told in enumerate(
        [
            {**good, "version": 2, "trackers": [one]},
            {**good, "python": "python", "trackers": [one]},
            {**good, "trackers": [{"kind": 1, "where": {}}]},
            {**good, "trackers": [one]},
            {**good, "trackers": [{**one, "where": {"project": "of a later process"}}]},
        ]
    ):
        (tmp_path / f"{pid}.trackers").write_text(json.dumps(told))

    (found,) = read_trackers(tmp_path)
    assert found == Tracker(
        kind="wandb", where={"project": "p"}, python="/usr/bin/python3", folder="/"
    )


def test_the_dashboard_of_grafana_asks_for_what_is_written() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    written = {f"rocsteady_{quantity.name}" for quantity in QUANTITIES}
    panels = board["panels"]

    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"rocsteady_\w+", target["expr"])
    }

    assert asked == written
    assert len({panel["id"] for panel in panels}) == len(panels)
    spots = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
    assert len(set(spots)) == len(panels)
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in panels)
    assert (
        board["templating"]["list"][1]["query"]["query"] == "label_values(rocsteady_running, run)"
    )


def test_the_guide_names_every_quantity() -> None:
    page = GUIDE.read_text(encoding="utf-8")
    assert [q.name for q in QUANTITIES if f"`rocsteady_{q.name}`" not in page] == []


@pytest.mark.parametrize("value", [1e300, -1e300, 3.5e38])
def test_an_event_file_takes_any_number_and_text(tmp_path: Path, value: float) -> None:
    odd = replace(
        NUMBERS, step=-5, values={"step": value}, events=(RunEvent(at=1.0, text='a\udcff\n"b'),)
    )
    file = EventFile("TensorBoard", tmp_path / "rocsteady" / "events")

    assert file.write(odd) == ""
    assert file.path.stat().st_size > 100


def test_what_one_tool_cannot_take_costs_neither_the_run_nor_the_others(tmp_path: Path) -> None:
    class Odd:
        name = "odd"

        def write(self, metrics: RunMetrics) -> str:
            raise OverflowError(metrics.run)

    said: list[str] = []
    with closing(Journal(find_place(tmp_path / "project", state=tmp_path / "state"))) as journal:
        journal.begin_run(("true",), job={}, strategy={}, name="calm-otter")
        file = PrometheusFile(tmp_path / "a.prom", "a.prom")
        RunExports(journal, "calm-otter", (Odd(), file), None).close(said.append)

    assert said == ["metrics not written to odd: OverflowError."]
    assert 'rocsteady_running{run="calm-otter"} 1.0' in file.path.read_text()


@pytest.mark.parametrize(
    ("uri", "here"),
    [
        ("mlruns", True),
        ("/home/me/mlruns", True),
        ("C:\\runs", True),
        ("file:///home/me/mlruns", True),
        ("file:mlruns", True),
        ("sqlite:///mlflow.db", True),
        ("http://127.0.0.1:5000", True),
        ("databricks", False),
        ("databricks-uc", False),
        ("databricks://profile", False),
        ("uc:https://catalog.example", False),
        ("azureml://region/x", False),
        ("file://server/share", False),
        ("https://mlflow.example", False),
    ],
)
def test_a_store_on_another_machine_is_never_written_to(
    tmp_path: Path, uri: str, *, here: bool
) -> None:
    said: list[str] = []
    where = {"uri": uri, "run": "1"}
    tracker = Tracker(kind="mlflow", where=where, python=str(tmp_path / "none"), folder="/")

    TrackerFeeds("calm-otter", tmp_path, {}).follow([tracker], said.append)

    assert ("not on this machine" not in said[0]) == here


def test_a_space_is_never_written_to(tmp_path: Path) -> None:
    said: list[str] = []
    where = {"project": "p", "name": "n", "_space_id": "me/space"}
    tracker = Tracker(kind="trackio", where=where, python=str(tmp_path / "none"), folder="/")

    TrackerFeeds("calm-otter", tmp_path, {}).follow([tracker], said.append)

    assert said == ["metrics not written to trackio: the script logs to a Space or a server."]
