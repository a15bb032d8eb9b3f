"""A hung tree that cannot react is ended at once; one that handles the signal has its time."""

from __future__ import annotations

import os
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rocsteady.hangs.snapshot import take_snapshot
from rocsteady.hangs.wait_set import Activity, Member, WaitSet
from rocsteady.run.termination import SignalResponse
from rocsteady.system.child import Child, start_child
from rocsteady.system.child_end import DETACHED, How, Stopping

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and /proc")

Stuck = Callable[[str], tuple[Child, SignalResponse]]
PROMPT = 3.0  # seconds; 1.0 on a machine with nothing else to do, and 10 without the proof
NATIVE = """
    import ctypes, signal, sys
    mutex = ctypes.create_string_buffer(64)
    lock = ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    {before}
    open("ready", "w").close()
    lock(mutex)
"""
HANDLED = """
    import signal, socket, sys, threading, time
    lock = threading.Lock()
    lock.acquire()
    def save(*_):
        {save}
        open("saved", "w").close()
        sys.exit(7)
    signal.signal(signal.SIGINT, save)
    open("ready", "w").close()
    lock.acquire()
"""
SAVES = {
    "sleeps": "time.sleep(1.5)",
    "computes": "until = time.time() + 1.5\n        while time.time() < until: pass",
    "waits for the network": (
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "        server.settimeout(None)\n"
        "        threading.Timer(1.5, lambda: socket.create_connection("
        "server.getsockname())).start()\n"
        "        server.accept()"
    ),
    "waits for a child": "import subprocess; subprocess.run(['sleep', '1.5'])",
    "in another thread": (
        "done = threading.Event()\n"
        "        threading.Timer(1.5, done.set).start()\n"
        "        done.wait()"
    ),
}


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Stuck]:
    """Start a script, wait until it is stuck, and give the means to end it."""
    children: list[Child] = []

    def start(script: str) -> tuple[Child, SignalResponse]:
        (tmp_path / "script.py").write_text(textwrap.dedent(script))
        child = start_child(
            [sys.executable, "script.py"],
            environment=dict(os.environ),
            folder=tmp_path,
            run_id=uuid.uuid4().hex,
            log=tmp_path / "log",
            terminal=DETACHED,
        )
        children.append(child)
        while not (tmp_path / "ready").exists():
            time.sleep(0.02)
        time.sleep(0.3)
        seen = take_snapshot(child.tree(), stacks=False, within=timedelta(seconds=5))
        ((process, thread),) = [
            (process, thread)
            for process in seen.processes
            for thread in process.threads
            if thread.tid == process.pid
        ]
        member = Member(process=process, thread=thread, trains=True, activity=Activity.WAITS_INSIDE)
        return child, SignalResponse(child.tree, WaitSet(at=seen.at, members=(member,)), seen)

    yield start
    for child in children:
        child.close()


@pytest.mark.parametrize(
    ("before", "how"),
    [
        ("pass", How.TERMINATED),
        ("signal.signal(signal.SIGINT, signal.SIG_IGN)", How.TERMINATED),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))", How.KILLED),
    ],
)
def test_who_cannot_run_python_is_not_waited_for(stuck: Stuck, before: str, how: How) -> None:
    child, reaction = stuck(NATIVE.format(before=before))

    ended = child.stop(Stopping(), futile=reaction.is_absent)

    assert ended.how is how
    assert ended.seconds < PROMPT


@pytest.mark.parametrize("save", SAVES)
def test_who_saves_when_asked_to_end_has_its_time(stuck: Stuck, tmp_path: Path, save: str) -> None:
    child, reaction = stuck(HANDLED.format(save=SAVES[save]))

    ended = child.stop(Stopping(), futile=reaction.is_absent)

    assert (tmp_path / "saved").exists()
    assert ended.how is How.INTERRUPTED
    assert ended.exit is not None
    assert ended.exit.code == 7
