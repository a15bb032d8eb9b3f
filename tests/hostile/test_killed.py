"""When the supervisor, the keeper or both are killed, nothing is left, and the run resumes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest

if os.name == "nt":
    pytest.skip("the keeper is of POSIX", allow_module_level=True)

from in_process import count, number
from supervised import Project, until

KILLS = number(3, 200)
SEED = 14
WHOM = ("supervisor", "keeper", "both")
TRAINS = """
    import os, subprocess, sys, time
    for _ in range(2):
        subprocess.Popen(["sleep", "600"], start_new_session=True)
    done = int(open("last.ckpt").read()) if os.path.exists("last.ckpt") else 0
    for step in range(done + 1, 31):
        print(f"step {step}/30", flush=True)
        time.sleep(0.05)
        with open("new", "w") as file:
            file.write(str(step))
        os.replace("new", "last.ckpt")
"""
RESUMES = """
    [resume]
    arguments = ["{checkpoint}"]
    checkpoints = ["last.ckpt"]
"""


def _trainings(project: Project) -> list[int]:
    return [
        pid
        for pid, words in project.processes().items()
        if "train.py" in words and "rocsteady" not in words
    ]


def _keeper(project: Project) -> int | None:
    found = [pid for pid, words in project.processes().items() if "keeper.py" in words]
    return found[0] if found else None


def _guard(project: Project) -> int | None:
    """Find the guard of a run by its arguments: it has no variables."""
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = cmdline.read_bytes()
            if b"guard.py" in words and project.name.encode() in words:
                return int(cmdline.parent.name)
    return None


def _kill(*pids: int | None) -> None:
    for pid in pids:
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("kill", range(KILLS))
def test_nothing_is_left_and_the_run_resumes(project: Project, kill: int) -> None:
    chance = random.Random(SEED * 1000 + kill)  # noqa: S311 - not for secrets
    whom = WHOM[kill % len(WHOM)]
    count(f"kills, {whom}", "tried")
    project.job(RESUMES, project.script(TRAINS))
    child = project.start()
    until(lambda: _trainings(project), why=project.log)
    time.sleep(chance.uniform(0, 1.0))

    keeper = _keeper(project)
    _kill(*{"supervisor": (child.pid,), "keeper": (keeper,), "both": (child.pid, keeper)}[whom])

    if whom == "keeper":
        ended = project.ended(child)
        assert ended.code == 0, ended.err
    else:
        child.wait()
        until(lambda: not project.processes(), within=10, why=lambda: str(project.processes()))
        until(lambda: _guard(project) is None, within=5)
        ended = project.run("--resume", project.name)
        assert ended.code == 0, ended.err
    until(lambda: not project.processes(), within=10, why=lambda: str(project.processes()))
    assert project.line()["run"]["outcome"] == "done"
    assert (project.folder / "last.ckpt").read_text() == "30"
    with contextlib.closing(sqlite3.connect(project.folder / ".rocsteady/store.db")) as journal:
        assert journal.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    count(f"kills, {whom}", "resumed to done, with nothing left behind")


@pytest.mark.ci
@pytest.mark.slow
def test_a_second_training_never_starts_beside_the_first(project: Project) -> None:
    endless = TRAINS.replace("range(done + 1, 31)", "range(done + 1, 10_000)")
    endless = endless.replace("print(", "step <= done + 4 and print(")  # nobody reads it later
    project.job(RESUMES, project.script(endless))
    child = project.start()
    until(lambda: "step 4/" in project.log(), why=project.log)
    (first,) = _trainings(project)
    _kill(_guard(project), child.pid, _keeper(project))
    child.wait()
    assert _trainings(project) == [first]

    again = project.start("--resume", project.name)
    until(lambda: "step" in project.log(2), why=lambda: project.log(2))

    assert first not in _trainings(project)
    assert len(_trainings(project)) == 1
    again.send_signal(signal.SIGTERM)
    ended = project.ended(again)
    assert f"terminated the processes it left: {first} (" in ended.err
    assert project.processes() == {}


@pytest.mark.slow
def test_a_keeper_that_is_killed_costs_neither_the_run_nor_its_code(project: Project) -> None:
    script = project.script("""
        import sys, time
        print("ready", flush=True)
        time.sleep(2)
        sys.exit(7)
    """)
    child = project.start("--max-attempts", "1", "--", sys.executable, script)
    until(lambda: "ready" in project.log(), why=project.log)

    _kill(_keeper(project))

    assert project.ended(child).code == 7
    assert project.processes() == {}


@pytest.mark.slow
def test_a_guard_that_is_killed_is_replaced_so_that_the_last_one_left_ends_the_tree(
    project: Project,
) -> None:
    endless = TRAINS.replace("31", "10_000").replace("print(", "step <= 4 and print(")
    project.job(RESUMES, project.script(endless))
    child = project.start()
    until(lambda: _trainings(project), why=project.log)
    until(lambda: _guard(project) is not None)
    first = _guard(project)

    _kill(first, _keeper(project))  # the run goes on without a keeper
    until(lambda: _guard(project) not in (None, first), within=10)
    assert len(_trainings(project)) == 1
    _kill(child.pid)
    child.wait()

    until(lambda: not project.processes(), within=10, why=lambda: str(project.processes()))
    until(lambda: _guard(project) is None, within=5)
    project.run("--", sys.executable, "-c", "pass", name="next")  # removes what that one left
