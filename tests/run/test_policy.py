"""An administrator's policy, with real runs: what it forbids does not happen."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from cases import HERE as VICTIMS
from supervised import Project, until

CRASHES = """
    import os, pathlib, sys
    tries = pathlib.Path("tries")
    number = len(tries.read_text()) if tries.exists() else 0
    tries.write_text("x" * (number + 1))
    os.kill(os.getpid(), 9) if number < 2 else print("done")
"""


def write_policy(project: Project, text: str) -> Path:
    path = project.home / "policy.toml"
    path.write_text(text)
    project.environment["ROCSTEADY_POLICY"] = str(path)
    return path


@pytest.mark.slow
def test_a_hang_is_observed_and_not_stopped(project: Project, torch_python: str) -> None:
    write_policy(project, 'mode = "observe"\n')
    child = project.start("--", torch_python, str(VICTIMS / "hang_lock_across_fork.py"))
    until((project.folder / ".rocsteady" / "journal.db").exists)
    until(lambda: any(m["event"] == "hung" for m in project.story()["messages"]), 120)

    before = training(project)
    assert len(before) == 2  # the script and its loader's worker
    with pytest.raises(Exception, match="timed out"):
        project.ended(child, within=8)
    assert training(project) == before
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == 143
    assert project.story()["incidents"] == []


def training(project: Project) -> set[int]:
    running = project.processes().items()
    return {pid for pid, words in running if "hang_lock" in words and "rocsteady" not in words}


@pytest.mark.parametrize(("mode", "code", "attempts"), [("observe", 137, 1), ("retry", 0, 3)])
def test_a_crash_is_retried_only_where_that_is_allowed(
    project: Project, mode: str, code: int, attempts: int
) -> None:
    write_policy(project, f'mode = "{mode}"\n')

    ended = project.run("--", sys.executable, project.script(CRASHES))

    story = project.story()
    assert (ended.code, len(story["attempts"])) == (code, attempts)
    assert all(attempt["strategy"] == {} for attempt in story["attempts"])
    assert any("policy.toml" in line for line in ended.said)


@pytest.mark.parametrize(
    ("text", "words", "names"),
    [
        ('mode = "soon"\n', (), "policy.toml:1: mode"),
        ('workarounds = ["cpuu"]\n', (), "'cpu'"),
        ('workarounds = ["cpu"]\n', ("--with", "loader-inline"), "loader-inline"),
        ('mode = "retry"\n', ("--with", "loader-inline"), "loader-inline"),
        ('mode = "retry"\n', ("--plan", "1"), "--plan"),
    ],
)
def test_what_is_wrong_or_forbidden_is_one_line_and_nothing_is_started(
    project: Project, text: str, words: tuple[str, ...], names: str
) -> None:
    write_policy(project, text)

    ended = project.run(*words, "--", sys.executable, project.script("open('ran', 'w')"))

    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err.splitlines()) == 1
    assert names in ended.err
    assert not (project.folder / "ran").exists()


def test_the_doctor_checks_a_policy_too(project: Project) -> None:
    write_policy(project, 'mode = "observe"\n')
    assert "policy.toml" in project.say("doctor").err
    assert json.loads(project.say("doctor", "--json").out)["version"] == 1
    write_policy(project, "mode = 1\n")
    ended = project.say("doctor")
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
