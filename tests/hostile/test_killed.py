"""When supervisor, keeper and guard are killed, nothing is left, and the run comes to its end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path

import pytest

if os.name == "nt":
    pytest.skip("the keeper is of POSIX", allow_module_level=True)

from in_process import count, number
from supervised import Project, until

KILLS = number(7, 100)
SEED = 46
ALL = ("supervisor", "keeper", "guard")
WHOM = [some for size in (1, 2, 3) for some in combinations(ALL, size)]
LATEST = 3.0  # seconds after the start of the three: most runs are over
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


def _guarded(project: Project) -> subprocess.Popen[bytes]:
    """Start a run, and wait until it has all three."""
    child = project.start("--resume", "never")
    until(lambda: (_keeper(project) and _guard(project)) or child.poll() is not None)
    return child


def _run_and_kill(
    project: Project, whom: tuple[str, ...], chance: random.Random
) -> subprocess.Popen[bytes]:
    """Start a run, and kill some of its processes at any moment from when they are there."""
    while True:
        child = _guarded(project)
        time.sleep(chance.uniform(0, LATEST))
        supervisor = child.pid if child.poll() is None else None
        there = {"supervisor": supervisor, "keeper": _keeper(project), "guard": _guard(project)}
        if all(there[each] for each in whom):
            _kill(*chance.sample([there[each] for each in whom], len(whom)))
            return child
        assert project.ended(child).code == 0  # it was over before: again
        project.name += "-again"
        (project.folder / "last.ckpt").unlink()


@pytest.mark.slow
@pytest.mark.parametrize("kill", range(KILLS))
def test_nothing_is_left_and_the_run_ends(project: Project, kill: int) -> None:
    if kill == 0:
        count(f"kills, begun at a load of {os.getloadavg()[0]:.1f}", "to be tried", KILLS)
    whom = WHOM[kill % len(WHOM)]
    count(f"kills, {' and '.join(whom)}", "tried")
    project.job(RESUMES, project.script(TRAINS))
    child = _run_and_kill(project, whom, random.Random(SEED * 1000 + kill))  # noqa: S311 - the same each time

    if "supervisor" not in whom:
        ended = project.ended(child)
    else:
        child.wait()
        if whom != ALL:  # who is left ends the tree
            until(lambda: not project.processes(), within=10, why=lambda: str(project.processes()))
        known = project.line()
        ended = project.run(*(("--resume", project.name) if known else ()))

    assert ended.code == 0, ended.err
    until(lambda: not project.processes(), within=10, why=lambda: str(project.processes()))
    until(lambda: _guard(project) is None, within=5)
    assert project.line()["run"]["outcome"] == "done"
    assert (project.folder / "last.ckpt").read_text() == "30"
    journal = project.folder / ".rocsteady" / "journal.db"
    assert not list(journal.parent.glob("*broken*"))
    with contextlib.closing(sqlite3.connect(f"{journal.as_uri()}?mode=ro", uri=True)) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    count(f"kills, {' and '.join(whom)}", "came to their end, with nothing left behind")


@pytest.mark.ci
@pytest.mark.slow
def test_a_crash_of_the_supervisor_says_where_and_leaves_nothing(project: Project) -> None:
    project.job(RESUMES, project.script(TRAINS))
    child = _guarded(project)
    os.kill(child.pid, signal.SIGSEGV)
    ended = project.ended(child)

    assert ended.code == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in ended.err
    assert ", line " in ended.err
    until(lambda: not project.processes(), within=10, why=lambda: str(project.processes()))
    assert project.run("--resume", project.name).code == 0


@pytest.mark.ci
@pytest.mark.slow
def test_a_second_training_never_starts_beside_the_first(project: Project) -> None:
    endless = TRAINS.replace("range(done + 1, 31)", "range(done + 1, 10_000)")
    endless = endless.replace("print(", "step <= done + 4 and print(")  # nobody reads it later
    project.job(RESUMES, project.script(endless))
    child = project.start()
    until(lambda: "step 4/" in project.log(), why=project.log)
    (first,) = _trainings(project)
    all_three = (_guard(project), child.pid, _keeper(project))
    for pid in filter(None, all_three):  # none sees another die, and ends the training
        os.kill(pid, signal.SIGSTOP)
    _kill(*all_three)
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
