"""The numbers of a run arrive in files; what goes wrong is said once."""

from __future__ import annotations

import errno
import json
import os
import re
import time
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from rocsteady.errors import JobError
from rocsteady.model import Strategy
from rocsteady.run.job.job_file import parse_job
from rocsteady.run.job.metrics import Metrics, metrics_lines
from rocsteady.run.telling.run_exports import (
    JsonLinesFile,
    PrometheusFile,
    RunExports,
    exposition,
    targets_of,
)
from rocsteady.run.telling.run_metrics import QUANTITIES, MetricsEvent, RunMetrics
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place

NUMBERS = RunMetrics(
    run="calm-otter",
    at=1000.5,
    step=70,
    values={"step": 70.0, "goodput_ratio": 0.75, "incidents": 1.0},
    events=(MetricsEvent(at=900.0, text="incident 1: hung"),),
)
DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD, GUIDE = DOCS / "grafana-dashboard.json", DOCS / "howto/other-tools.md"


def test_a_file_for_node_exporter(tmp_path: Path) -> None:
    assert PrometheusFile(tmp_path / "a.prom", "a.prom").write(NUMBERS) == ""

    assert (tmp_path / "a.prom").read_text() == (
        "# HELP rocsteady_step Steps completed so far, as counted by the script.\n"
        "# TYPE rocsteady_step gauge\n"
        'rocsteady_step{run="calm-otter"} 70.0\n'
        "# HELP rocsteady_goodput_ratio Share of the time spent training.\n"
        "# TYPE rocsteady_goodput_ratio gauge\n"
        'rocsteady_goodput_ratio{run="calm-otter"} 0.75\n'
        "# HELP rocsteady_incidents Number of incidents.\n"
        "# TYPE rocsteady_incidents gauge\n"
        'rocsteady_incidents{run="calm-otter"} 1.0\n'
    )


def test_a_name_is_escaped_as_prometheus_reads_it() -> None:
    odd = replace(NUMBERS, run='a\\n"b"\n', values={"step": 1.79e18})

    assert exposition(odd).splitlines()[-1] == r'rocsteady_step{run="a\\n\"b\"\n"} 1.79e+18'


def test_every_quantity_has_a_name_of_its_own_and_one_line_of_help() -> None:
    assert len({quantity.name for quantity in QUANTITIES}) == len(QUANTITIES)
    for quantity in QUANTITIES:
        assert re.fullmatch("[a-z_]+", quantity.name)
        assert not set(quantity.meaning) & set("\\\n")


def test_the_file_is_replaced_whole_and_others_may_read_it(tmp_path: Path) -> None:
    target = PrometheusFile(tmp_path / "a.prom", "a.prom")

    assert target.write(NUMBERS) == ""
    assert target.write(NUMBERS) == ""

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

    monkeypatch.setattr("rocsteady.system.atomic_file.os.fsync", full)
    assert target.write(NUMBERS) == "No space left on device"
    assert [path.name for path in tmp_path.iterdir()] == ["a.prom"]


def test_json_lines_get_each_interval_and_each_event_once(tmp_path: Path) -> None:
    late = MetricsEvent(at=time.time() + 60, text="incident 2: hung")
    target = JsonLinesFile(tmp_path / "a.jsonl", "a.jsonl")

    for _ in range(2):
        assert target.write(replace(NUMBERS, events=(*NUMBERS.events, late))) == ""

    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    numbers = {"version": 1, "run": "calm-otter", "type": "metrics", "at": 1000.5}
    numbers |= NUMBERS.values
    event = {"version": 1, "run": "calm-otter", "type": "event", "at": late.at, "text": late.text}
    assert rows == [event, numbers, numbers]  # not the event of before this process


def test_json_lines_follow_no_link(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "elsewhere")

    assert JsonLinesFile(tmp_path / "a.jsonl", "a.jsonl").write(NUMBERS)
    assert not (tmp_path / "elsewhere").exists()


def test_what_a_job_file_says(tmp_path: Path) -> None:
    text = 'command = ["a"]\n[metrics]\nfile = "m.jsonl"\nprometheus = "x-{run}.prom"\n'
    job = parse_job(text)
    assert job.metrics is not None

    lines, file = targets_of(job.metrics, "calm-otter", tmp_path)

    assert isinstance(lines, JsonLinesFile)
    assert isinstance(file, PrometheusFile)
    assert file.path == tmp_path / "x-calm-otter.prom"
    assert list(metrics_lines(job.metrics)) == [
        "metrics.file: writes m.jsonl",
        "metrics.prometheus: writes x-{run}.prom",
    ]
    assert targets_of(Metrics(), "calm-otter", tmp_path) == ()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('prometheus = "a.txt"', "must end in .prom"),
        ('file = "a.json"', "must end in .jsonl"),
        ('prometheus = ""', "must end in .prom"),
        ('prometheus = ".prom"', "must name a file, such as rocsteady-{run}.prom"),
        ('prometheus = "/var/lib/.prom"', "must name a file, such as rocsteady-{run}.prom"),
        ('prometheus = "{runs}.prom"', "{runs} is not known; the name of the run is {run}"),
        ('statsd = "a"', "metrics.statsd: unknown key"),
        ("trackers = true", "metrics.trackers: unknown key"),
    ],
)
def test_what_is_wrong_with_a_job_file(line: str, problem: str) -> None:
    with pytest.raises(JobError, match=r"metrics") as raised:
        parse_job(f'command = ["a"]\n[metrics]\n{line}\n')
    assert problem in str(raised.value)


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


def test_what_one_tool_cannot_take_costs_neither_the_run_nor_the_others(tmp_path: Path) -> None:
    class Odd:
        name = "odd"

        def write(self, metrics: RunMetrics) -> str:
            raise OverflowError(metrics.run)

    said: list[str] = []
    with closing(Journal(find_place(tmp_path / "project", state=tmp_path / "state"))) as journal:
        journal.begin_run(("true",), job={}, strategy=Strategy(), name="calm-otter")
        file = PrometheusFile(tmp_path / "a.prom", "a.prom")
        RunExports(journal, "calm-otter", (Odd(), file)).close(said.append)

    assert said == ["metrics not written to odd: OverflowError."]
    assert 'rocsteady_running{run="calm-otter"} 1.0' in file.path.read_text()
