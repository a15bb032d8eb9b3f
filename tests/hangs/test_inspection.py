"""Processes that were started without rocsteady, stuck and healthy, and what is said of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from rocsteady.doctor.knowledge.waits import load_waits
from rocsteady.errors import ExaminationError
from rocsteady.hangs.inspection import Inspection, ProcessState, _worth_stopping, inspect
from rocsteady.hangs.judgment.judgment import begin, worth_stopping
from rocsteady.hangs.looking.snapshot import take_snapshot
from rocsteady.hangs.values import Snapshot
from rocsteady.system import procfs

HEAD = "import multiprocessing, os, queue, signal, subprocess, sys, threading, time\n"
STUCK = {
    "a lock that it holds": "lock = threading.Lock()\nlock.acquire()\nlock.acquire()  # HERE",
    "two locks in two orders": """
def both(one, two):
    with one:
        time.sleep(0.5)
        two.acquire()  # HERE
a, b = threading.Lock(), threading.Lock()
threading.Thread(target=both, args=(a, b)).start()
both(b, a)""",
    "a queue that nobody fills": "queue.Queue().get()  # HERE",
    "its own pipe": "os.read(os.pipe()[0], 1)  # HERE",
    "a child that waits for a lock": """
def work(lock):
    lock.acquire()  # HERE
lock = multiprocessing.Lock()
lock.acquire()
child = multiprocessing.Process(target=work, args=(lock,))
child.start()
child.join()""",
    "a cell of a notebook": """
os.makedirs("ipykernel", exist_ok=True)
with open("ipykernel/kernelbase.py", "w") as kernel:
    kernel.write("def execute(cell): cell()")
sys.path.insert(0, ".")
from ipykernel.kernelbase import execute
def cell():
    queue.Queue().get()  # HERE
execute(cell)""",
    "a thread that is joined": """
def work():
    threading.Event().wait()  # HERE
thread = threading.Thread(target=work)
thread.start()
thread.join()""",
}
HEALTHY = {
    "sleeps": (ProcessState.WAITING, "time.sleep(600)  # HERE"),
    "computes": (ProcessState.WORKING, "while True: sum(range(1000))  # HERE"),
    "a queue that a thread fills later": (
        ProcessState.WAITING,
        "items = queue.Queue()\nthreading.Timer(600, items.put, [1]).start()\nitems.get()  # HERE",
    ),
    "a lock with a timeout": (
        ProcessState.WAITING,
        "lock = threading.Lock()\nlock.acquire()\nlock.acquire(timeout=600)  # HERE",
    ),
    "a child that sleeps": (
        ProcessState.WAITING,
        "subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])  # HERE",
    ),
    "a signal that somebody may send": (
        ProcessState.WAITING,
        "signal.signal(signal.SIGUSR1, print)\nsignal.pause()  # HERE",
    ),
    "a program whose alarm cannot be seen": (
        ProcessState.WAITING,
        """child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.read()  # HERE""",
    ),
    "stopped": (
        ProcessState.STOPPED,
        "os.kill(os.getpid(), signal.SIGSTOP)  # HERE",
    ),
}
Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(body: str) -> subprocess.Popen[bytes]:
        script = tmp_path / "train.py"
        script.write_text(f"{HEAD}print('on', flush=True)\n{body}\n")
        command = [sys.executable, "train.py"]
        started.append(
            subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, process_group=0)
        )
        assert started[-1].stdout is not None
        started[-1].stdout.read(1)
        return started[-1]

    yield begin
    for each in started:
        os.killpg(each.pid, signal.SIGKILL)
        each.communicate()


def line_of(body: str) -> str:
    lines = f"{HEAD}\n{body}".splitlines()
    return f"train.py:{next(n for n, line in enumerate(lines, 1) if '# HERE' in line)}"


def seen(process: subprocess.Popen[bytes], state: ProcessState) -> Inspection:
    """Inspect it, again if it has not come to its line yet."""
    found = inspect(process.pid, load_waits()).inspection
    for _ in range(3):
        if found.state in (state, ProcessState.STUCK):
            break
        found = inspect(process.pid, load_waits()).inspection
    return found


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("body", STUCK.values(), ids=STUCK.keys())
def test_what_is_stuck_is_found_at_its_line(start: Start, body: str) -> None:
    found = seen(start(body), ProcessState.STUCK)

    assert found.state is ProcessState.STUCK, found
    assert found.place.split()[0] == line_of(body)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(("state", "body"), HEALTHY.values(), ids=HEALTHY.keys())
def test_what_may_go_on_is_not_called_stuck(start: Start, state: ProcessState, body: str) -> None:
    process = start(body)
    found = seen(process, state)

    assert found.state is state, found
    assert process.poll() is None
    assert procfs.stat(process.pid).state != "t"


@pytest.mark.slow
@pytest.mark.ci
def test_what_computes_is_looked_at_again_before_it_is_stopped(start: Start) -> None:
    lines = "\n".join(f"    sum(range({100_000 + number}))" for number in range(5))
    process = start(f"while True:\n{lines}")
    waits, pulse = load_waits(), begin(0.0, 0.0)

    def look() -> Snapshot:
        return take_snapshot([process.pid], stacks=True, within=timedelta(seconds=10))

    seen = look()
    for _ in range(200):  # until it is at the same line twice
        pulse = replace(pulse, before=seen)
        seen = look()
        if worth_stopping(pulse, seen, waits):
            break

    assert worth_stopping(pulse, seen, waits)
    assert not _worth_stopping(pulse, seen, waits)


def test_a_process_that_is_not_there_cannot_be_inspected() -> None:
    with pytest.raises(ExaminationError):
        inspect(2**22 + 1, load_waits())
