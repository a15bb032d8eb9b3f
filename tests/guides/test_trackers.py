"""What rocsteady knows of a run arrives in the trackers that its script uses: the real packages."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from beside_torch import python_with
from supervised import Project

HERE = Path(__file__).parent
VENV = HERE.parents[1] / ".ci" / "trackers-venv"
TRACKERS_PYTHON = "ROCSTEADY_TEST_TRACKERS_PYTHON"  # one that has all of them: nox -s trackers
LIGHT = ("tensorboard", "prometheus-client")  # that are installed if none is named
TOKEN = "hf_abcdefghijklmnopqrstuvwxyz0123456789"  # noqa: S105 - of nobody
WITHIN = 240.0  # seconds, on a machine that has other things to do
WRITTEN = {"step", "goodput_ratio", "attempts", "incidents", "lost_seconds"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def trackers_python(torch_python: str) -> str:
    """Return an interpreter with torch and trackers."""
    return os.environ.get(TRACKERS_PYTHON) or python_with(LIGHT, VENV, torch_python)


def read(python: str, text: str, *words: str) -> str:
    """Run a few lines in that interpreter."""
    ended = subprocess.run(
        [python, "-c", text, *words], capture_output=True, text=True, timeout=WITHIN, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def trained(project: Project, python: str, tracker: str, *, metrics: str = "") -> list[str]:
    """Train with a tracker, once failing, and return what rocsteady said."""
    found = subprocess.run([python, "-c", f"import {tracker}"], capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"{tracker} is not installed beside torch: nox -s trackers has it")
    command = json.dumps([python, str(HERE / "trackers_script.py"), tracker])
    resume = '[resume]\narguments = ["--from", "{checkpoint}"]\ncheckpoints = ["*.pt"]\n'
    (project.folder / "rocsteady.toml").write_text(f"command = {command}\n{metrics}{resume}")
    project.environment |= {
        "TRACKIO_DIR": str(project.home / "trackio"),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "WANDB_MODE": "offline",
    }
    ended = project.run(within=WITHIN)
    assert ended.code == 0, ended.err
    assert not [line for line in ended.said if "not written" in line], ended.said
    return ended.said


READ_TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
told = EventAccumulator(sys.argv[1])
told.Reload()
values = {tag: [event.value for event in told.Scalars(tag)] for tag in told.Tags()["scalars"]}
texts = [event.tensor_proto.string_val[0].decode() for event in told.Tensors("rocsteady/event")]
print(json.dumps([values, texts]))
"""


@pytest.mark.turns(2)
def test_tensorboard_has_a_folder_of_its_own(project: Project, trackers_python: str) -> None:
    said = trained(project, trackers_python, "tensorboard")

    values, texts = json.loads(
        read(trackers_python, READ_TENSORBOARD, str(project.folder / "runs/exp/rocsteady"))
    )
    assert {f"rocsteady/{name}" for name in WRITTEN} <= set(values)
    assert values["rocsteady/attempts"][-1] == 2.0
    assert values["rocsteady/done"][-1] == 1.0
    assert values["rocsteady/step"][-1] >= 40.0
    assert any("attempt 1 ended" in text for text in texts)
    assert texts[-1] == "the run ended: done"
    assert TOKEN not in str(texts)
    assert "progress and incidents are also written to TensorBoard (runs/exp/rocsteady)." in said
    own = [path.name for path in (project.folder / "runs/exp").iterdir() if path.is_file()]
    assert len(own) == 2  # of the script, one an attempt, as without us


READ_PROMETHEUS = """
import json, sys
from prometheus_client.parser import text_string_to_metric_families
families = text_string_to_metric_families(open(sys.argv[1]).read())
print(json.dumps({f.name: [[s.labels, s.value] for s in f.samples] for f in families}))
"""


@pytest.mark.turns(2)
def test_prometheus_reads_the_file(project: Project, trackers_python: str) -> None:
    metrics = '[metrics]\nprometheus = "rocsteady-{run}.prom"\n'
    trained(project, trackers_python, "prometheus_client", metrics=metrics)

    path = project.folder / f"rocsteady-{project.name}.prom"
    told = json.loads(read(trackers_python, READ_PROMETHEUS, str(path)))
    assert {f"rocsteady_{name}" for name in WRITTEN} <= set(told)
    assert told["rocsteady_attempts"] == [[{"run": project.name}, 2.0]]
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in project.folder.glob("*.prom*")] == [path.name]


def test_mlflow_has_it_in_the_run_of_the_script(project: Project, trackers_python: str) -> None:
    trained(project, trackers_python, "mlflow")

    runs = [path for path in (project.folder / "mlruns/0").iterdir() if path.is_dir()]
    assert len(runs) == 2  # one an attempt, as without us
    written = [path / "metrics/rocsteady" for path in runs]
    assert [path.is_dir() for path in written] == [True, True]
    assert {each.name for path in written for each in path.iterdir()} >= WRITTEN
    tags = [tag.read_text() for path in runs for tag in (path / "tags").glob("rocsteady.event.*")]
    assert "the run ended: done" in tags
    assert TOKEN not in str(tags)


def test_wandb_gets_an_offline_run_beside_that_of_the_script(
    project: Project, trackers_python: str
) -> None:
    trained(project, trackers_python, "wandb")

    records = project.folder / ".rocsteady/runs" / project.name / "wandb"
    content = b"".join(path.read_bytes() for path in records.glob("offline-run-*/*.wandb"))
    for name in WRITTEN:
        assert f"rocsteady/{name}".encode() in content
    assert b"the run ended: done" in content
    assert TOKEN.encode() not in content
    assert len(list((project.folder / "wandb").glob("offline-run-*"))) == 2  # of the script


def test_trackio_gets_a_run_in_the_project_of_the_script(
    project: Project, trackers_python: str
) -> None:
    trained(project, trackers_python, "trackio")

    with closing(sqlite3.connect(project.home / "trackio/demo.db")) as database:
        rows = database.execute("SELECT run_name, metrics FROM metrics").fetchall()
        alerts = str(database.execute("SELECT * FROM alerts").fetchall())
    own = [json.loads(row) for name, row in rows if name == f"rocsteady-{project.name}"]
    assert {f"rocsteady/{name}" for name in WRITTEN} <= {key for row in own for key in row}
    assert "the run ended: done" in alerts
    assert TOKEN not in alerts


READ_OTLP = """
import json, sys
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
told = Parse(open(sys.argv[1]).read(), ExportMetricsServiceRequest()).resource_metrics[0]
named = {each.key: each.value.string_value for each in told.resource.attributes}
metrics = told.scope_metrics[0].metrics
print(json.dumps([named, {each.name: each.gauge.data_points[0].as_double for each in metrics}]))
"""


def test_opentelemetry_reads_what_a_collector_is_sent(
    project: Project, trackers_python: str
) -> None:
    sent: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        metrics = f'[metrics]\notlp = "http://127.0.0.1:{server.server_port}"\n'
        trained(project, trackers_python, "opentelemetry.proto", metrics=metrics)
        server.shutdown()

    last = project.folder / "last.json"
    last.write_bytes(sent[-1])
    named, values = json.loads(read(trackers_python, READ_OTLP, str(last)))
    assert named == {"service.name": "rocsteady", "rocsteady.run": project.name}
    assert {f"rocsteady.{name}" for name in WRITTEN} <= set(values)
    assert values["rocsteady.attempts"] == 2.0
    assert values["rocsteady.done"] == 1.0
