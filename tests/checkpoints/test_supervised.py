"""A training through Loop under ``rocsteady run``: it ends as if nothing had happened.

No job file names a way to resume: the script tells it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import rocsteady_train
from supervised import Project, until

SCRIPT = Path(__file__).with_name("transformer.py")
HURRIED = Path(__file__).parents[1] / "victims" / "hurried.py"
LIBRARY = Path(rocsteady_train.__file__).parents[1]


@pytest.fixture
def training(project: Project) -> Project:
    """Give a project in which scripts find rocsteady, and a supervisor with less patience."""
    project.program = (sys.executable, str(HURRIED))
    project.environment["PYTHONPATH"] = str(LIBRARY)
    return project


def arguments(*more: str) -> tuple[str, ...]:
    return ("--epochs", "5", "--samples", "320", "--save-every", "0.1", *more)


def ended_as(project: Project) -> Any:  # noqa: ANN401 - JSON
    return json.loads((project.folder / "end.json").read_text())


def losses(project: Project) -> dict[int, set[str]]:
    """Return the losses that were written for each step: one, if it was always the same."""
    found: dict[int, set[str]] = {}
    for line in (project.folder / "losses").read_text().splitlines():
        step, _, loss = line.partition(" ")
        if loss:  # the last line may be half written
            found.setdefault(int(step), set()).add(loss)
    return found


@pytest.mark.slow
def test_hang_kill_and_crash_leave_the_same_weights_and_losses(
    training: Project, tmp_path: Path, torch_python: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    alone = Project(other)
    alone.environment["PYTHONPATH"] = str(LIBRARY)
    try:
        undisturbed = alone.run("--", torch_python, str(SCRIPT), *arguments(), within=180)
        wanted, every = ended_as(alone), losses(alone)
    finally:
        alone.close()
    assert undisturbed.code == 0, undisturbed.err
    assert (
        "the script saves and resumes on its own: checkpoints in checkpoints/." in undisturbed.said
    )

    child = training.start("--", torch_python, str(SCRIPT), *arguments("--hang-at", "25"))
    end_at(training, 80, 2, signal.SIGKILL)
    end_at(training, 140, 3, signal.SIGSEGV)
    ended = training.ended(child, within=240)

    assert ended.code == 0, ended.err
    assert ended_as(training) == wanted
    assert losses(training) == every
    assert (
        ended.said.count("the script saves and resumes on its own: checkpoints in checkpoints/.")
        == 1
    )
    story = training.story()
    outcomes = [each["outcome"] for each in story["attempts"]]
    assert outcomes == ["hung", "by itself", "by itself", "by itself"], ended.said
    signals = [each["signal"] for each in story["attempts"][1:]]
    assert signals == [signal.SIGKILL, signal.SIGSEGV, None]
    assert story["attempts"][-1]["last_step"] == wanted["steps"] == len(every)
    assert len(ended.lines("resumed")) == 3
    assert len(ended.lines("done")) == 1
    assert [each["place"].split(":")[0] for each in story["incidents"]] == ["transformer.py"]


def end_at(project: Project, step: int, attempt: int, number: signal.Signals) -> None:
    """Send a signal to the process that trains, at about a step."""
    found: list[int] = []

    def is_there() -> bool:
        found.extend(trainers(project, attempt))
        return bool(found)

    until(is_there, 120)
    until(lambda: len(losses(project)) >= step, 120)
    os.kill(found[0], number)


def trainers(project: Project, attempt: int) -> list[int]:
    """Find the process that trains: of those of an attempt the one that has no parent in it."""
    pids = set()
    for pid, words in project.processes().items():
        with contextlib.suppress(OSError):
            run = Path(f"/proc/{pid}/environ").read_bytes().partition(b"ROCSTEADY_RUN=")[2]
            if SCRIPT.name in words and run.partition(b"\0")[0].endswith(b"-%d" % attempt):
                pids.add(pid)
    return [pid for pid in pids if parent(pid) not in pids]


def parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().split()[3])
    return 0
