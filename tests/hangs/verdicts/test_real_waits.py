"""Real processes in real waits: none with a way out is called closed, each deadlock is.

Without torch, so that all of them can be started at once and looked at within seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from rocsteady_train.inside import wire

from rocsteady.hangs.looking.process_tree import processes
from rocsteady.hangs.looking.snapshot import take_snapshot
from rocsteady.hangs.proof.wait_graph import wait_set
from rocsteady.hangs.proof.wait_set import WaitSet, prove, sentences
from tests.hangs.verdicts.simulate import known

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

HANDLER = "import signal, threading\nclass E(Exception): pass\ndef h(*a): raise E\n"
FORK = "import multiprocessing, os, time\nm = multiprocessing.get_context('fork')\n"
WATCHING = (  # as tokio does, of which polars has threads
    "import os, select, socket, threading\np = select.epoll(); l = threading.Lock()\n"
    "p.register(os.eventfd(0), select.EPOLLIN | select.EPOLLET)\n"
)
LOCKED = "threading.Thread(target=lambda: p.poll()).start(); l.acquire(); l.acquire()"
HEALTHY = {
    "an event with a timeout": "import threading; threading.Event().wait(200)",
    "a queue with a timeout": "import queue; queue.Queue().get(timeout=450)",
    "a short timeout in a loop": "import threading\nwhile not threading.Event().wait(3): pass",
    "asyncio.sleep": "import asyncio; asyncio.run(asyncio.sleep(450))",
    "select with a timeout": "import select, os; select.select([os.pipe()[0]], [], [], 200)",
    "a pipe polled with a timeout": FORK + "a, b = m.Pipe(); a.poll(300)",
    "a child with a timeout": "import subprocess; subprocess.run(['sleep', '600'], timeout=200)",
    "a child that sleeps": "import subprocess; subprocess.run(['sleep', '600'])",
    "an alarm that breaks a lock": (
        f"{HANDLER}signal.signal(14, h); signal.alarm(200); l = threading.Lock()\n"
        "l.acquire(); l.acquire()"
    ),
    "an interval timer": (
        f"{HANDLER}signal.signal(26, h); signal.setitimer(signal.ITIMER_VIRTUAL, 200)\n"
        "threading.Event().wait()"
    ),
    "a child that sleeps with a lock": (
        f"{FORK}l = m.Lock()\nif os.fork() == 0:\n  with l: time.sleep(300)\n"
        "time.sleep(1); l.acquire()"
    ),
    "a child that acquired a lock and sleeps": (
        f"{FORK}l = m.Lock()\nif os.fork() == 0: l.acquire(); time.sleep(300)\n"
        "time.sleep(1); l.acquire()"
    ),
    "a thread that acquired a lock and sleeps": (
        "import threading, time\nl = threading.Lock()\n"
        "threading.Thread(target=lambda: (l.acquire(), time.sleep(300))).start()\n"
        "time.sleep(.5); l.acquire()"
    ),
    "a thread that holds a lock and reads": (
        "import threading, time, os\nl = threading.Lock()\n"
        "threading.Thread(target=lambda: (l.acquire(), os.read(0, 1))).start()\n"
        "time.sleep(.5); l.acquire()"
    ),
    "a thread that holds a lock and computes": (
        "import threading, time\nl = threading.Lock()\n"
        "threading.Thread(target=lambda: (l.acquire(), sum(iter(int, 1)))).start()\n"
        "time.sleep(.5); l.acquire()"
    ),
    "a thread that holds the GIL and sleeps": (
        "import ctypes, threading, time\nL = ctypes.PyDLL(None)\n"
        "threading.Thread(target=lambda: (time.sleep(1), L.sleep(300))).start()\n"
        "while True: time.sleep(.01)"
    ),
    "two simulators that share a lock": (
        f"{FORK}l = m.Lock()\n"
        "def sim(c): c.recv(); l.acquire(); time.sleep(150); l.release(); c.send(1)\n"
        "pairs = [m.Pipe() for _ in '12']\n"
        "for a, b in pairs: m.Process(target=sim, args=(b,), daemon=True).start()\n"
        "for a, b in pairs: a.send(0)\n"
        "for a, b in pairs: a.recv()"
    ),
    "a join of a thread that waits with a timeout": (
        "import threading\n"
        "t = threading.Thread(target=threading.Event().wait, args=(250,)); t.start(); t.join()"
    ),
    "a semaphore with a timeout": FORK + "m.Semaphore(0).acquire(timeout=250)",
    "a file lock of another process": (
        "import fcntl, subprocess, tempfile, time\nf = tempfile.NamedTemporaryFile()\n"
        "subprocess.Popen(['flock', f.name, 'sleep', '200']); time.sleep(.5)\n"
        "fcntl.flock(f, fcntl.LOCK_EX)"
    ),
    "a timer of the kernel's": (
        "import ctypes, os, struct\nL = ctypes.CDLL(None); t = L.timerfd_create(1, 0)\n"
        "L.timerfd_settime(t, 0, struct.pack('4q', 0, 0, 200, 0), None); os.read(t, 8)"
    ),
    "a pause that a signal ends": (
        "import signal; signal.signal(signal.SIGUSR1, lambda *_: None); signal.pause()"
    ),
    "the terminal's input": "import os; os.read(0, 1)",
    "a listening socket": "import socket; socket.create_server(('127.0.0.1', 0)).accept()",
    "a pipe that an outsider writes to": (
        "import os, subprocess\nr, w = os.pipe()\nenv = {'PATH': os.environ['PATH']}\n"
        "subprocess.run(['setsid', '-f', 'sleep', '60'], pass_fds=[w], env=env)\n"
        "os.close(w); os.read(r, 1)"
    ),
    "an eventfd that an outsider holds": (
        "import os, subprocess\ne = os.eventfd(0)\nenv = {'PATH': os.environ['PATH']}\n"
        "subprocess.run(['setsid', '-f', 'sleep', '60'], pass_fds=[e], env=env)\n"
        "os.eventfd_read(e)"
    ),
    "an eventfd that a child signals after a sleep": (
        "import os, time\ne = os.eventfd(0)\n"
        "if os.fork() == 0: time.sleep(300); os.eventfd_write(e, 1)\nos.eventfd_read(e)"
    ),
    "an eventfd that a thread signals after input": (
        "import os, threading\ne = os.eventfd(0)\n"
        "threading.Thread(target=lambda: (os.read(0, 1), os.eventfd_write(e, 1))).start()\n"
        "os.eventfd_read(e)"
    ),
    "a thread that watches an eventfd and a socket": (
        f"{WATCHING}s = socket.create_server(('127.0.0.1', 0)); p.register(s)\n{LOCKED}"
    ),
    "a thread that watches an eventfd for a time": (
        f"{WATCHING}{LOCKED}".replace("p.poll()", "p.poll(200)")
    ),
}
STUCK = {
    "a lock taken twice": "import threading; l = threading.Lock(); l.acquire(); l.acquire()",
    "two threads with two locks": (
        "import threading\na, b = threading.Lock(), threading.Lock(); a.acquire()\n"
        "t = threading.Thread(target=lambda: (b.acquire(), a.acquire())); t.start(); t.join()"
    ),
    "an event that nobody sets": "import threading; threading.Event().wait()",
    "a queue that nobody fills": "import queue; queue.Queue().get()",
    "a lock, beside a thread that watches an eventfd": f"{WATCHING}{LOCKED}",
    "a pipe to itself": "import os; r, w = os.pipe(); os.read(r, 1)",
    "a future that nobody sets": (
        "import asyncio\nasync def f(): await asyncio.get_running_loop().create_future()\n"
        "asyncio.run(f())"
    ),
    "a semaphore of multiprocessing": FORK + "m.Semaphore(0).acquire()",
    "a child that waits for its parent": (
        f"{FORK}a, b = m.Pipe()\np = m.Process(target=b.recv); p.start(); p.join()"
    ),
    "two processes with two locks": (
        f"{FORK}a, b = m.Lock(), m.Lock()\na.acquire()\n"
        "p = m.Process(target=lambda: (b.acquire(), a.acquire())); p.start(); p.join()"
    ),
    "a thread that holds the GIL for ever": (
        "import ctypes, threading, time\nL = ctypes.PyDLL(None)\n"
        "m = ctypes.create_string_buffer(64)\n"
        "def hold(): time.sleep(1); L.pthread_mutex_lock(m); L.pthread_mutex_lock(m)\n"
        "threading.Thread(target=hold).start()\nwhile True: time.sleep(.01)"
    ),
    "two readers of one queue": (
        f"{FORK}q = m.Queue()\np = m.Process(target=q.get); p.start(); q.get()"
    ),
}


class Started:
    """All of them, started at once."""

    def __init__(self, folder: Path) -> None:
        self.children = {}
        for name, code in (HEALTHY | STUCK).items():
            run_id = uuid.uuid4().hex
            child = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, wire.RUN: run_id},
                cwd=folder,
                start_new_session=True,
            )
            self.children[name] = (child, partial(processes, child.pid, run_id))

    def proof(self, name: str) -> WaitSet:
        """Look at one of them until a snapshot tells that it has got where it wanted."""
        child, tree = self.children[name]
        assert child.poll() is None
        sets = []
        for _ in range(2):
            seen = take_snapshot(tree(), stacks=True, within=timedelta(seconds=5))
            sets.append(wait_set(seen, (), known()))
            time.sleep(0.3)
        return prove(sets)

    def end(self) -> None:
        for child, tree in self.children.values():
            for pid in tree():
                os.kill(pid, 9)
            child.communicate()


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    everything = Started(tmp_path_factory.mktemp("waits"))
    time.sleep(6)
    yield everything
    everything.end()


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_a_wait_that_ends_is_not_closed(started: Started, name: str) -> None:
    found = started.proof(name)

    assert found.members
    assert not found.closed, sentences(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", STUCK)
def test_a_deadlock_is_closed(started: Started, name: str) -> None:
    found = started.proof(name)
    if not found.closed:  # a busy machine may let a snapshot fail
        found = started.proof(name)

    assert found.closed, sentences(found)
    assert sentences(found)[-1].startswith("Nothing else can end this wait")
