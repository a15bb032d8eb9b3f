"""Stages in real runs: each is done before the next one starts."""

from __future__ import annotations

import json
import sys

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from supervised import Project, until

pytestmark = pytest.mark.slow
TRAINS = """
    import os, sys, time
    open("ran", "a").write(" ".join(sys.argv[1:]) + "\\n")
    part = sys.argv[sys.argv.index("--part") + 1]
    while part == os.environ.get("WAIT"):
        time.sleep(0.05)
    print("trained on", part)
    sys.exit(part == os.environ.get("FAIL"))
"""
STAGES = """
    done_when = { present_text = ["trained on"] }
    name = "calm-otter"

    [[stages]]
    name = "smoke"
    arguments = ["--part", "5", "--epochs=1"]

    [[stages]]
    name = "full"

    [[stages]]
    name = "gpus"
    arguments = ["--gpus", "2"]
    done_when = { present_text = ["trained on 100"] }
"""
SMOKE, FULL, GPUS = "--part 5 --epochs=1", "--part 100", "--part 100 --gpus 2"


@pytest.fixture
def staged(project: Project) -> Project:
    project.job(STAGES, project.script(TRAINS), "--part", "100")
    return project


def ran(project: Project) -> list[str]:
    """Return the arguments of each start of the script."""
    path = project.folder / "ran"
    return path.read_text().splitlines() if path.exists() else []


def outcomes(project: Project) -> dict[str, str]:
    """Return how each run of the project ended."""
    told = json.loads(project.say("status", "--json").out)["runs"]
    return {line["run"]["name"]: line["run"]["outcome"] for line in told}


def about_stages(said: list[str]) -> list[str]:
    return [line for line in said if line.startswith("stage ")]


@pytest.mark.ci
def test_each_stage_is_a_run_and_a_second_time_there_is_nothing_to_do(staged: Project) -> None:
    ended = staged.say("run", "--yes")
    again = staged.say("run")
    detached = staged.say("run", "--detach")

    assert (ended.code, again.code, detached.code) == (0, 0, 0), ended.err
    assert ran(staged) == [SMOKE, FULL, GPUS]
    names = ("smoke", "full", "gpus")
    assert outcomes(staged) == {f"calm-otter-{name}": "done" for name in names}
    assert about_stages(ended.said) == [
        f"stage {number} of 3, {name}." for number, name in enumerate(names, 1)
    ]
    assert again.said == [
        f"stage {number} of 3, {name}, is done: skipped (run calm-otter-{name} had the same"
        " command)."
        for number, name in enumerate(names, 1)
    ]


def test_what_fails_ends_it_and_going_on_passes_over_what_is_done(staged: Project) -> None:
    staged.environment["FAIL"] = "100"
    failed = staged.say("run", "--yes", "--observe")
    del staged.environment["FAIL"]
    ended = staged.say("run")

    assert (failed.code, ended.code) == (1, 0), failed.err
    assert failed.said[-1] == "stage 2 of 3, full, is not done: gpus not started."
    assert ended.said[0].startswith("stage 1 of 3, smoke, is done: skipped (run calm-otter-sm")
    assert ran(staged) == [SMOKE, FULL, FULL, GPUS]
    assert outcomes(staged) == {
        "calm-otter-smoke": "done",
        "calm-otter-full": "ended, not done",
        "calm-otter-full-2": "done",
        "calm-otter-gpus": "done",
    }


def test_stages_go_on_without_a_terminal_and_a_stopped_one_can_be_resumed(staged: Project) -> None:
    staged.environment["WAIT"] = "100"

    started = staged.say("run", "--yes", "--name", "other", "--detach")
    until(lambda: ran(staged) == [SMOKE, FULL])
    stopped = staged.say("stop", "other-full")
    until(lambda: outcomes(staged).get("other-full") == "stopped by the user")
    del staged.environment["WAIT"]
    resumed = staged.say("run", "--resume", "other-full")

    assert (started.code, stopped.code, resumed.code) == (0, 0, 0)
    assert ran(staged) == [SMOKE, FULL, FULL]
    assert outcomes(staged) == {"other-smoke": "done", "other-full": "done"}
