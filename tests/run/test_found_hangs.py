"""Hangs below another program, a debugger or many children: found, and at the right line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from supervised import ROCSTEADY, Ended, Project
from torch_stand_in import stand_in_torch

pytestmark = pytest.mark.slow
STEPS = """
import multiprocessing, os, signal, subprocess, sys, threading, time
from torch.optim import optimizer

def steps(number):
    for _ in range(number):
        optimizer.step()
        time.sleep(0.02)
"""


@pytest.fixture
def training(project: Project) -> Project:
    project.environment["PYTHONPATH"] = stand_in_torch(project)
    project.script(STEPS, "theirs/training.py")
    return project


def run(project: Project, text: str, *options: str, within: float = 60) -> Ended:
    script = project.script(f"from training import *\n{text}")
    command = ("--max-attempts", "1", "--", sys.executable, *options, script)
    return project.run(*command, within=within)


def seconds(ended: Ended) -> float:
    assert len(ended.lines("hung")) == 1, ended.err
    return float(ended.lines("hung")[0].rpartition(" · ")[2].removesuffix(" s"))


def test_a_debugger_in_batch_mode_is_nobody_at_a_prompt(training: Project) -> None:
    ended = run(
        training,
        "steps(60)\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\n",
        *("-m", "pdb", "-c", "continue"),
    )

    assert "train.py:5" in ended.lines("hung")[0], ended.err
    assert seconds(ended) < 10


def test_the_lock_that_idle_children_share_is_where_it_hangs(training: Project) -> None:
    ended = run(
        training,
        """
def child(lock, event):
    event.wait()

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    lock, event = context.Lock(), context.Event()
    for _ in range(12):
        context.Process(target=child, args=(lock, event), daemon=True).start()
    steps(60)
    lock.acquire()
    lock.acquire()
""",
    )

    assert "train.py:13 in <module>" in ended.lines("hung")[0], ended.err
    assert seconds(ended) < 20


def test_a_script_from_stdin_is_code_of_the_users(training: Project) -> None:
    training.script(
        "import training\ndef main(last):\n    training.steps(60)\n    last()\n", "ck.py"
    )
    training.script(
        """
        import threading, ck
        def last():
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        ck.main(last)
        """,
        "script",
    )
    child = subprocess.run(
        [*ROCSTEADY, "run", "--yes", "--max-attempts", "1", "--", sys.executable, "-"],
        input=Path(training.folder, "script").read_bytes(),
        capture_output=True,
        cwd=training.folder,
        env=training.environment,
        timeout=60,
        check=False,
    )
    ended = Ended(child.returncode, child.stdout.decode(), child.stderr.decode())

    assert "<stdin>:6 in last" in ended.lines("hung")[0], ended.err


@pytest.mark.parametrize("answers", [True, False])
def test_a_handler_of_the_scripts_own_for_an_interrupt(training: Project, *, answers: bool) -> None:
    """It goes on by a signal from outside after 20 s; without the handler nobody can."""
    ended = run(
        training,
        f"""
came = threading.Event()
if {answers}:
    signal.signal(signal.SIGINT, lambda *_: came.set())
steps(60)
subprocess.Popen(["setsid", "-f", "env", "-i", "sh", "-c",
                  f"sleep 20; kill -INT {{os.getpid()}}"], close_fds=True)
time.sleep(0.5)
came.wait()
steps(20)
print("done", flush=True)
""",
        within=90,
    )

    if answers:
        assert ("done" in ended.out, ended.lines("hung")) == (True, []), ended.err
    else:
        assert seconds(ended) < 10


def test_two_trainings_and_an_upload_count_the_steps_of_both(training: Project) -> None:
    training.script("from training import *\nsteps(int(sys.argv[1]))\n", "one.py")
    training.script("import torch, time\nfor n in range(3): print('part', n)\n", "upload.py")
    line = f"{sys.executable} one.py 30 && {sys.executable} one.py 50 && {sys.executable} upload.py"

    ended = training.run("--", "sh", "-c", line)

    assert ended.code == 0, ended.err
    assert training.story()["attempts"][0]["last_step"] == 80
