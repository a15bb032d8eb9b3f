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
    QUANTITIES,
    JsonLinesFile,
    MetricsEvent,
    RunExports,
    RunMetrics,
    exposition,
    write_for_prometheus,
)
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place

NUMBERS = RunMetrics(
    run="calm-otter",
    at=1000.5,
    values={"step": 70.0, "goodput_ratio": 0.75, "incidents": 1.0},
    events=(MetricsEvent(at=900.0, text="incident 1: hung"),),
)
DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD, GUIDE = DOCS / "grafana-dashboard.json", DOCS / "howto/other-tools.md"


def test_a_file_for_node_exporter(tmp_path: Path) -> None:
    write_for_prometheus(tmp_path / "a.prom", NUMBERS)

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
    for name, meaning in QUANTITIES.items():
        assert re.fullmatch("[a-z_]+", name)
        assert not set(meaning) & set("\\\n")


def test_the_file_is_replaced_whole_and_others_may_read_it(tmp_path: Path) -> None:
    write_for_prometheus(tmp_path / "a.prom", NUMBERS)
    write_for_prometheus(tmp_path / "a.prom", NUMBERS)

    assert [path.name for path in tmp_path.iterdir()] == ["a.prom"]
    if os.name != "nt":
        assert (tmp_path / "a.prom").stat().st_mode & 0o777 == 0o644


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_for_prometheus(tmp_path / "a.prom", NUMBERS)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rocsteady.system.atomic_file.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_for_prometheus(tmp_path / "a.prom", NUMBERS)
    assert [path.name for path in tmp_path.iterdir()] == ["a.prom"]


def test_json_lines_get_each_interval_and_each_event_once(tmp_path: Path) -> None:
    late = MetricsEvent(at=time.time() + 60, text="incident 2: hung")
    target = JsonLinesFile(tmp_path / "a.jsonl")

    for _ in range(2):
        target.write(replace(NUMBERS, events=(*NUMBERS.events, late)))

    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    numbers = {"version": 1, "run": "calm-otter", "type": "metrics", "at": 1000.5}
    numbers |= NUMBERS.values
    event = {"version": 1, "run": "calm-otter", "type": "event", "at": late.at, "text": late.text}
    assert rows == [event, numbers, numbers]  # not the event of before this process


def test_json_lines_follow_no_link(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError):  # noqa: PT011 - systems name it differently
        JsonLinesFile(tmp_path / "a.jsonl").write(NUMBERS)
    assert not (tmp_path / "elsewhere").exists()


def test_what_a_job_file_says() -> None:
    text = 'command = ["a"]\n[metrics]\nfile = "m.jsonl"\nprometheus = "x-{run}.prom"\n'
    job = parse_job(text)
    assert job.metrics is not None

    assert list(metrics_lines(job.metrics)) == [
        "metrics.file: writes m.jsonl",
        "metrics.prometheus: writes x-{run}.prom",
    ]


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
    written = {f"rocsteady_{name}" for name in QUANTITIES}
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
    assert [name for name in QUANTITIES if f"`rocsteady_{name}`" not in page] == []


def test_what_one_tool_cannot_take_costs_neither_the_run_nor_the_others(tmp_path: Path) -> None:
    wanted = Metrics(file="gone/{run}.jsonl", prometheus="x-{run}.prom")
    said: list[str] = []
    with closing(Journal(find_place(tmp_path / "project", state=tmp_path / "state"))) as journal:
        journal.begin_run(("true",), job={}, strategy=Strategy(), name="calm-otter")
        RunExports(journal, "calm-otter", wanted, tmp_path).close(said.append)

    assert said == ["metrics not written to gone/calm-otter.jsonl: No such file or directory."]
    numbers = (tmp_path / "x-calm-otter.prom").read_text()
    assert 'rocsteady_running{run="calm-otter"} 1.0' in numbers
