"""Whatever is stuck, the rest is on disk within ten seconds, and what is missing is said."""

from __future__ import annotations

import json
import os
import stat
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocsteady.hangs.looking import collect as module
from rocsteady.hangs.looking.collect import LOG_TAIL, collect
from rocsteady.system.parallel import LATE, run_all

if TYPE_CHECKING:
    from tests.hangs.conftest import Start

EVERYTHING = [
    "kernel.txt", "log-tail.txt", "memory.json", "pages.json", "processes.json", "stacks.json",
    "stacks.txt", "variables.json",
]  # fmt: skip


def test_everything_is_written_for_our_eyes_only(start: Start, tmp_path: Path) -> None:
    victim = start("multiprocessing_queue")
    log = tmp_path / "log"
    log.write_bytes(b"first line\n" + b"x" * LOG_TAIL + b"\nstep 904\n")
    incident, began = tmp_path / "incident", time.monotonic()

    done = collect(
        incident,
        pids=victim.tree(),
        pages=tmp_path,
        log=log,
        since=time.monotonic(),
        variables={"HSA_ENABLE_SDMA": "0"},
    )

    expected = EVERYTHING if os.access("/dev/kmsg", os.R_OK) else EVERYTHING[1:]
    assert sorted(file.name for file in incident.iterdir()) == expected
    assert done.missing.keys() <= {"gpu.json", "kernel.txt"}
    assert time.monotonic() - began < 5
    assert {stat.S_IMODE(file.stat().st_mode) for file in incident.iterdir()} == {0o600}
    assert (incident / "log-tail.txt").read_text() == "step 904\n"
    assert json.loads((incident / "variables.json").read_text()) == {"HSA_ENABLE_SDMA": "0"}
    text = (incident / "stacks.txt").read_text()
    assert "multiprocessing_queue (victims/evidence_waits.py:" in text
    told = json.loads((incident / "processes.json").read_text())
    assert {thread["tid"] for thread in told["in_kernel"]} >= set(victim.tree())


def test_the_stacks_tell_what_a_process_waits_for(start: Start, tmp_path: Path) -> None:
    victim = start("multiprocessing_queue")
    texts = []
    for number in range(3):  # it wakes every 5 s, to wait again, and may be met just then
        incident = tmp_path / str(number)
        pids = victim.tree()
        collect(incident, pids=pids, pages=None, log=None, since=time.monotonic())
        texts.append((incident / "stacks.txt").read_text())

    waits = f"waits for a pipe or socket inside the tree {list(victim.waits_for)}"
    assert any(waits in text for text in texts)


def test_an_attempt_that_is_gone_leaves_what_there_is(tmp_path: Path) -> None:
    incident = tmp_path / "incident"
    done = collect(incident, pids=[2**22 - 1], pages=None, log=tmp_path / "none", since=0.0)

    assert {"memory.json", "stacks.txt", "variables.json"} <= {f.name for f in incident.iterdir()}
    assert done.missing["stacks"] == "none of its processes runs Python"
    assert done.missing["pages.json"] == "no folder for pages"
    assert "No such file" in done.missing["log-tail.txt"]


def test_a_part_that_hangs_costs_its_own_file_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "read_memory", lambda _: time.sleep(3))  # a stuck kernel
    os.mkfifo(tmp_path / "log")  # refused, never waited for

    began = time.monotonic()
    done = collect(
        tmp_path / "incident",
        pids=[os.getpid()],
        pages=tmp_path,
        log=tmp_path / "log",
        since=0.0,
        within=timedelta(seconds=2),
    )

    assert time.monotonic() - began < 2
    assert done.missing["memory.json"] == LATE
    assert "not a regular file" in done.missing["log-tail.txt"]
    written = {file.name for file in (tmp_path / "incident").iterdir()}
    assert {"pages.json", "variables.json"} <= written


def test_one_that_fails_is_said_and_the_others_are_done() -> None:
    def fail() -> int:
        raise ValueError("no")

    done = run_all({"a": lambda: 1, "b": fail}, within=timedelta(seconds=1))

    assert (done.results, done.missing) == ({"a": 1}, {"b": "ValueError: no"})


def test_one_that_goes_on_gets_more_time_and_one_that_is_stuck_does_not() -> None:
    steps: list[int] = []

    def go(count: int) -> int:
        for number in range(count):
            time.sleep(0.1)
            steps.append(number)
        return count

    def stick() -> int:
        time.sleep(30)
        return 0

    within = timedelta(seconds=1)
    assert run_all({"a": lambda: go(20)}, within=within, done=steps).results == {"a": 20}
    assert run_all({"a": lambda: go(20)}, within=within).missing == {"a": LATE}
    began = time.monotonic()
    assert run_all({"a": stick}, within=within, done=[]).missing == {"a": LATE}
    assert time.monotonic() - began < 10
