"""A run folder and a journal give no orders: nothing in them is executed or set unseen."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
from supervised import Ended, Project

from rocsteady.store.database import column

pytestmark = pytest.mark.skipif(os.name == "nt", reason="runs are of POSIX")

SCRIPT = """
    import os, sys
    print("PLANTED:", os.environ.get("PLANTED"), os.environ.get("LD_PRELOAD"), sys.argv[1:])
    print("SDMA:", os.environ.get("HSA_ENABLE_SDMA"))
    sys.exit(0 if os.path.exists("finish") else 1)
"""
NOTHING = "PLANTED: None None []"
PLANTED = {"PLANTED": "1", "LD_PRELOAD": "./planted.so"}


@pytest.fixture
def left(project: Project) -> Project:
    """Return a project with a run that failed, and whose script would now succeed."""
    project.script(SCRIPT)
    failed = project.run("--max-attempts", "1", "--", sys.executable, "train.py")
    assert failed.code == 1, failed.err
    (project.folder / "finish").write_text("x" * 100)
    return project


def resumed(project: Project, *words: str) -> Ended:
    """Resume the run without a terminal: whoever is asked has not answered."""
    return project.say("run", "--resume", project.name, *words)


def records(project: Project) -> Path:
    return project.folder / ".rocsteady" / "runs" / project.name


def change_journal(project: Project, statement: str, value: object) -> None:
    with sqlite3.connect(project.folder / ".rocsteady" / "journal.db") as journal:
        assert journal.execute(statement, (column(value),)).rowcount


def by_somebody_else(project: Project) -> None:
    """Have the account know nothing of the run."""
    shutil.rmtree(project.home / ".local")


def test_a_way_to_resume_in_the_folder_of_a_run_is_not_used(left: Project) -> None:
    planted = {"arguments": ["--planted"], "environment": PLANTED, "checkpoints": ["finish"]}
    (records(left) / "resumes.json").write_text(json.dumps(planted))
    (records(left) / "options.json").write_text(
        json.dumps({"fallbacks": [{"number": 1, "title": "", "strategy": {"variables": PLANTED}}]})
    )

    ended = resumed(left)

    assert (ended.code, ended.out.splitlines()[0]) == (0, NOTHING), ended.err


def test_a_variable_that_no_workaround_sets_is_not_taken_from_a_journal(left: Project) -> None:
    strategy = {"variables": {**PLANTED, "HSA_ENABLE_SDMA": "0"}}
    change_journal(left, "UPDATE attempts SET strategy = ?", strategy)
    decision = {"next": "again", "why": "", "strategy": strategy}
    change_journal(left, "UPDATE decisions SET decision = ?", decision)

    ended = resumed(left)

    assert (ended.code, ended.out.splitlines()) == (0, [NOTHING, "SDMA: 0"]), ended.err


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONPATH", "PATH"])
def test_a_journal_from_elsewhere_sets_no_variable_that_loads_code(
    left: Project, name: str
) -> None:
    resume = {"environment": {name: "."}, "checkpoints": ["finish"]}
    job = {"command": [sys.executable, "train.py"], "resume": resume}
    change_journal(left, "UPDATE runs SET job = ?", job)
    by_somebody_else(left)

    refused = resumed(left, "--yes")

    assert (refused.code, name in refused.err) == (76, True)
    assert "PLANTED" not in refused.out


def test_what_a_run_from_elsewhere_would_set_is_shown_whole(left: Project) -> None:
    strategy = {"variables": {**PLANTED, "HSA_ENABLE_SDMA": "0"}, "device": "cpu"}
    change_journal(left, "UPDATE attempts SET strategy = ?", strategy)
    by_somebody_else(left)

    asked = resumed(left)
    ended = resumed(left, "--yes")

    assert asked.code == 76
    assert ('"HSA_ENABLE_SDMA": "0"' in asked.err, '"device": "cpu"' in asked.err) == (True, True)
    assert "PLANTED" not in asked.err
    assert (ended.code, ended.out.splitlines()[0]) == (0, NOTHING), ended.err


@pytest.mark.parametrize("own", [True, False])
def test_copies_that_came_with_a_run_are_put_nowhere(left: Project, *, own: bool) -> None:
    precious = left.home / "precious"
    precious.mkdir()
    (precious / "keys").write_text("mine")
    (left.folder / "out").symlink_to(precious)
    planted = records(left) / "before-resume" / "out"
    planted.mkdir(parents=True)
    (planted / "keys").write_text("somebody's")
    if not own:
        by_somebody_else(left)

    ended = resumed(left, *(() if own else ("--yes",)))

    assert ended.code == 0, ended.err
    assert (precious / "keys").read_text() == "mine"


@pytest.mark.parametrize("which", ["runs", "run", "incident"])
def test_a_link_in_place_of_a_folder_is_not_read(left: Project, which: str) -> None:
    own, secret = records(left), "what another project printed"
    elsewhere = left.home / "elsewhere"
    place = {"runs": own.parent, "run": own, "incident": own / "incident-1"}[which]
    (elsewhere / own.name if which == "runs" else elsewhere).mkdir(parents=True)
    for name in ("attempt-1.log", f"{own.name}/attempt-1.log", "stacks.txt"):
        if (elsewhere / name).parent.is_dir():
            (elsewhere / name).write_text(f"2026-11-18T00:00:00.000Z {secret}\n")
    if place.exists():
        shutil.rmtree(place)
    place.symlink_to(elsewhere)

    for words in (
        ("logs", own.name),
        ("report", "-o", "x.html"),
        ("report", "--bundle", "-o", "x.zip"),
    ):
        told = left.say(*words)
        assert (told.code, "is a link" in told.err, secret in told.out) == (1, True, False), told
    assert not list(left.folder.glob("x.*"))
