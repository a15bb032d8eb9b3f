"""Enters one state and stays in it: ``evidence_waits.py STATE``.

Prints one JSON line first: which process is in that state, and for which it waits.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import mmap
import multiprocessing
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty

FOR_EVER = 10_000.0


def say(*, waits_for: tuple[int, ...] = (), pid: int = 0) -> None:
    print(json.dumps({"pid": pid or os.getpid(), "waits_for": waits_for}), flush=True)


def forked(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work()
        os._exit(0)
    return pid


def sleeper() -> int:
    return forked(lambda: time.sleep(FOR_EVER))


def runs() -> None:
    say()
    while True:
        pass


def lock() -> None:
    held = threading.Lock()
    held.acquire()
    say()
    held.acquire()


def one_lock_at_two_lines() -> None:
    """Get to the second when SIGUSR1 comes."""
    held = threading.Lock()
    held.acquire()
    signal.signal(signal.SIGUSR1, lambda *_: held.release())
    say()
    held.acquire()
    held.acquire()


def semaphore() -> None:
    empty = multiprocessing.get_context("fork").Semaphore(0)
    say()
    empty.acquire()


def event_asked_every_5_seconds() -> None:
    event = threading.Event()
    say()
    while not event.wait(5):
        pass


def event_with_a_long_end() -> None:
    event = threading.Event()
    say()
    event.wait(FOR_EVER)


def event_in_the_last_seconds() -> None:
    event = threading.Event()
    say()
    event.wait(60)


def semaphore_with_an_end() -> None:
    empty = multiprocessing.get_context("fork").Semaphore(0)
    say()
    empty.acquire(timeout=FOR_EVER)


def timer_descriptor() -> None:
    library = ctypes.CDLL(None)
    timer = library.timerfd_create(time.CLOCK_MONOTONIC, 0)
    library.timerfd_settime(timer, 0, struct.pack("4q", 0, 0, int(FOR_EVER), 0), None)
    say()
    os.read(timer, 8)


def event_descriptor() -> None:
    event = os.eventfd(0)
    say(waits_for=(sleeper(),))
    os.read(event, 8)


def epoll_on_event_descriptor() -> None:
    """Wait as tokio does, of which polars has threads."""
    poller = select.epoll()
    poller.register(os.eventfd(0), select.EPOLLIN | select.EPOLLET)
    say()
    poller.poll()


def event_descriptor_that_the_kernel_may_signal() -> None:
    event = os.eventfd(0)
    context = ctypes.c_ulong(0)
    setup = {"x86_64": 206, "aarch64": 0}[os.uname().machine]
    assert ctypes.CDLL(None).syscall(setup, 1, ctypes.byref(context)) == 0
    say()
    os.read(event, 8)


def epoll_on_what_was_closed_here() -> None:
    """Watch what a child still has, under a number that is something else by now."""
    reader, _writer = os.pipe()
    sleeper()
    poller = select.epoll()
    poller.register(reader, select.EPOLLIN)
    event = os.eventfd(0)
    os.dup2(event, reader)
    say()
    poller.poll()


def locked_twice(descriptor: int) -> None:
    """Lock a mutex twice that lies in a file, as LMDB's does."""
    library = ctypes.CDLL(None)
    os.truncate(descriptor, mmap.PAGESIZE)
    shared = mmap.mmap(descriptor, mmap.PAGESIZE)
    mutex = (ctypes.c_char * 64).from_buffer(shared)
    kind = ctypes.create_string_buffer(64)
    library.pthread_mutexattr_setpshared(kind, 1)
    library.pthread_mutex_init(mutex, kind)
    library.pthread_mutex_lock(mutex)
    say()
    library.pthread_mutex_lock(mutex)


def mutex_in_a_file() -> None:
    with tempfile.NamedTemporaryFile() as file:
        locked_twice(file.fileno())


def mutex_in_shared_memory() -> None:
    path = Path(f"/dev/shm/rocsteady-test-{os.getpid()}")
    locked_twice(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def mutex_in_shared_memory_without_links() -> None:
    path = Path(f"/dev/shm/rocsteady-test-{os.getpid()}")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    path.unlink()
    locked_twice(descriptor)


def mutex_in_shared_memory_with_another_link() -> None:
    path = Path(f"/dev/shm/rocsteady-test-{os.getpid()}")
    first = path.with_suffix(".first")
    descriptor = os.open(first, os.O_RDWR | os.O_CREAT, 0o600)
    path.hardlink_to(first)
    first.unlink()
    locked_twice(descriptor)


def mutex_in_memfd() -> None:
    locked_twice(os.memfd_create("rocsteady-test"))


def mutex_in_system_v_memory() -> None:
    library = ctypes.CDLL(None)
    library.shmat.restype = ctypes.c_void_p
    number = library.shmget(0, mmap.PAGESIZE, 0o1600)
    address = ctypes.c_void_p(library.shmat(number, None, 0))
    library.shmctl(number, 0, None)  # removed with its last user; until then others can attach it
    kind = ctypes.create_string_buffer(64)
    library.pthread_mutexattr_setpshared(kind, 1)
    library.pthread_mutex_init(address, kind)
    library.pthread_mutex_lock(address)
    say()
    library.pthread_mutex_lock(address)


def named_semaphore() -> None:
    library = ctypes.CDLL(None)
    library.sem_open.restype = ctypes.c_void_p
    name = f"/rocsteady-test-{os.getpid()}".encode()
    semaphore = ctypes.c_void_p(library.sem_open(name, os.O_CREAT, 0o600, 0))
    say()
    library.sem_wait(semaphore)


def file_lock() -> None:
    with tempfile.NamedTemporaryFile() as file, Path(file.name).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        say()
        fcntl.flock(file, fcntl.LOCK_EX)


def alarm_and_timer() -> None:
    signal.signal(signal.SIGALRM, lambda *_: None)
    event = struct.pack("qii52x", 0, signal.SIGUSR2, 0)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    ctypes.CDLL("librt.so.1").timer_create(time.CLOCK_MONOTONIC, event, (ctypes.c_char * 8)())
    lock()


def gil_held_in_c() -> None:
    mutex = ctypes.create_string_buffer(64)
    library = ctypes.PyDLL(None)  # does not let go of the GIL
    library.pthread_mutex_lock(mutex)
    say()
    blocked_in_c(library, mutex)


def blocked_in_c(library: ctypes.PyDLL, mutex: ctypes.Array[ctypes.c_char]) -> None:
    library.pthread_mutex_lock(mutex)


def pipe() -> None:
    reader, writer = os.pipe()
    say(waits_for=(sleeper(),))
    os.close(writer)
    os.read(reader, 1)


def pipe_with_both_ends_kept() -> None:
    reader, _writer = os.pipe()
    say(waits_for=(sleeper(),))
    os.read(reader, 1)


def multiprocessing_queue() -> None:
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[int] = context.Queue()
    worker = context.Process(target=time.sleep, args=(FOR_EVER,), daemon=True)
    worker.start()
    assert worker.pid is not None
    say(waits_for=(worker.pid,))
    while True:
        with contextlib.suppress(Empty):
            queue.get(timeout=5)


def select_on_pipe() -> None:
    reader, writer = os.pipe()
    say(waits_for=(sleeper(),))
    os.close(writer)
    select.select([reader], [], [], FOR_EVER)


def epoll_on_pipe() -> None:
    reader, writer = os.pipe()
    say(waits_for=(sleeper(),))
    os.close(writer)
    poller = select.epoll()
    poller.register(reader, select.EPOLLIN)
    poller.poll()


def socket_pair() -> None:
    ours, theirs = socket.socketpair()
    say(waits_for=(sleeper(),))
    theirs.close()
    ours.recv(1)


def tcp_inside() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()

    def connect() -> None:
        with socket.create_connection(address):
            time.sleep(FOR_EVER)

    peer = forked(connect)
    connection, _ = listener.accept()
    say(waits_for=(peer,))
    connection.recv(1)


def tcp_to_ipv6_listener() -> None:
    listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    port = listener.getsockname()[1]

    def connect() -> None:
        with socket.create_connection(("127.0.0.1", port)):
            time.sleep(FOR_EVER)

    peer = forked(connect)
    connection, _ = listener.accept()
    say(waits_for=(peer,))
    connection.recv(1)


def listening() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    say()
    listener.accept()


def standard_input() -> None:
    say()
    os.read(0, 1)


def full_output() -> None:
    say()
    while True:
        os.write(1, b"x" * 65536)


def poll_on_pipe_and_input() -> None:
    reader, _writer = os.pipe()
    sleeper()
    say()
    poller = select.poll()
    poller.register(reader, select.POLLIN)
    poller.register(0, select.POLLIN)
    poller.poll()


def terminal() -> None:
    _main, second = os.openpty()
    say()
    os.read(second, 1)


def fifo_without_writer() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fifo")
        os.mkfifo(path)
        say()
        path.read_text()


def child() -> None:
    pid = sleeper()
    say(waits_for=(pid,))
    os.waitpid(pid, 0)


def any_child() -> None:
    pids = (sleeper(), sleeper())
    say(waits_for=pids)
    os.wait()


def child_by_waitid() -> None:
    pid = sleeper()
    say(waits_for=(pid,))
    os.waitid(os.P_PID, pid, os.WEXITED)


def child_by_pidfd() -> None:
    pid = sleeper()
    poller = select.poll()
    poller.register(os.pidfd_open(pid), select.POLLIN)
    say(waits_for=(pid,))
    poller.poll()


def sleep() -> None:
    say()
    time.sleep(FOR_EVER)


def select_on_nothing() -> None:
    say()
    select.select([], [], [], FOR_EVER)


def poll_on_nothing() -> None:
    say()
    select.poll().poll(1_000_000)


def uninterruptible() -> None:
    """Wait in state D, as a parent does until its child has started its program: here never."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "fifo")
        os.mkfifo(path)
        say()
        opening = (os.POSIX_SPAWN_OPEN, 0, str(path), os.O_RDONLY, 0)
        os.posix_spawn("/bin/true", ["true"], {}, file_actions=[opening])


def stopped() -> None:
    say()
    os.kill(os.getpid(), signal.SIGSTOP)


def traced() -> None:
    """Trace a child, and leave it where it stopped."""

    def be_traced() -> None:
        ctypes.CDLL(None).ptrace(0, 0, 0, 0)  # PTRACE_TRACEME
        os.kill(os.getpid(), signal.SIGSTOP)

    pid = forked(be_traced)
    say(pid=pid)
    time.sleep(FOR_EVER)


def read_by_py_spy() -> None:
    """Be traced by a process that is named as py-spy is."""
    name = ctypes.create_string_buffer(b"py-spy")
    ctypes.CDLL(None).prctl(15, name, 0, 0, 0)  # PR_SET_NAME
    traced()


def zombie() -> None:
    pid = forked(lambda: None)
    say(pid=pid)
    time.sleep(FOR_EVER)


def sixty() -> None:
    for _ in range(59):
        sleeper()
    say()
    time.sleep(FOR_EVER)


def orphan() -> None:
    """Start a process that is nobody's child any more, then go on."""

    def start_and_leave() -> None:
        os.setsid()
        pid = sleeper()
        say(pid=pid)

    os.waitpid(forked(start_and_leave), 0)
    time.sleep(FOR_EVER)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
