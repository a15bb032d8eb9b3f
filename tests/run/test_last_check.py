"""A verdict is checked once more right before the signal, and withdrawn if the run moved."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import os, signal, threading, time, torch
class Freed(Exception): pass
def free(*_): raise Freed
signal.signal(signal.SIGINT, free)
parameter = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.SGD([parameter], lr=0.1)
def step():
    parameter.grad = torch.ones(3)
    optimizer.step()
    time.sleep(0.02)
for _ in range(100): step()
open("pid", "w").write(str(os.getpid()))
lock = threading.Lock()
lock.acquire()
try:
    lock.acquire()
except Freed:
    pass
for _ in range(100): step()
print("DONE", flush=True)
"""


@pytest.mark.ci
def test_a_run_that_moves_while_evidence_is_collected_is_left_alone(
    tmp_path: Path, torch_python: str
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    name = f"last-check-{os.getpid()}"
    run = [sys.executable, "-m", "rocsteady", "run", "--name", name, "--max-attempts", "1", "--"]
    with subprocess.Popen(
        [*run, torch_python, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watched:
        incident = tmp_path / ".rocsteady/runs" / name / "incident-1"
        deadline = time.monotonic() + 90
        while not incident.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGINT)
        out, said = watched.communicate(timeout=60)

    assert watched.returncode == 0, said
    assert "DONE" in out
    assert "false alarm" in said
    assert "Nothing else can end this wait" in (incident / "wait-set.txt").read_text()


SAVES_ON_SIGNALS = """
import signal, sys, threading, time, torch
def save(*_):
    torch.save({}, "model.pt")
    sys.exit(0)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, save)
parameter = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(100):
    parameter.grad = torch.ones(3)
    optimizer.step()
    time.sleep(0.02)
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""


@pytest.mark.ci
def test_a_hung_script_that_saves_on_signals_writes_no_model_and_is_not_done(
    tmp_path: Path, torch_python: str
) -> None:
    (tmp_path / "train.py").write_text(SAVES_ON_SIGNALS)
    run = [sys.executable, "-m", "rocsteady", "run", "--max-attempts", "1", "--"]
    ended = subprocess.run(
        [*run, torch_python, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert ended.returncode == 76, ended.stderr
    assert "train.py:16" in ended.stderr
    assert not (tmp_path / "model.pt").exists()
