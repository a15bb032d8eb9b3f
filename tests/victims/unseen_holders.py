"""A training that waits at a pipe whose other end is held where it is hard to see, or by nobody.

``unseen_holders.py NAME [SECONDS]``: the wait of a healthy one ends after so many seconds, because
the server at the address in OUTSIDE answers then; a hang never ends. ``outside NAME PATH`` is the
process of somebody else that is handed an end of the pipe through a unix socket.
"""

from __future__ import annotations

import array
import ctypes
import mmap
import multiprocessing
import os
import socket
import struct
import subprocess
import sys
import threading
import time

HELD: list[object] = []
PR_SET_DUMPABLE = 4
CLONE_FILES = 0x400
IO_URING_SETUP, IO_URING_ENTER, IO_URING_REGISTER, REGISTER_FILES = 425, 426, 427, 2
ENTRIES_AT, WRITE, FIXED_FILE = 0x10000000, 23, 1
Ring = tuple[int, tuple[int, ...]]
libc = ctypes.CDLL(None, use_errno=True)


def cannot_be_looked_at() -> None:
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def wait_for_news() -> None:
    """Wait for the server outside, which any process can find."""
    host, port = os.environ["OUTSIDE"].split(":")
    with socket.create_connection((host, int(port))) as line:
        line.recv(1)


def register(descriptor: int) -> Ring:
    """Have an io_uring hold a file, so that it needs no descriptor any more."""
    parameters = ctypes.create_string_buffer(120)
    ring = libc.syscall(IO_URING_SETUP, 8, parameters)
    files = (ctypes.c_int * 1)(descriptor)
    assert libc.syscall(IO_URING_REGISTER, ring, REGISTER_FILES, files, 1) == 0
    os.close(descriptor)
    return ring, struct.unpack_from("=10I", parameters.raw, 40)


def write_registered(to: Ring) -> None:
    ring, (_, tail, *_, _flags, _dropped, places, _resv, _low, _high) = to
    queue = mmap.mmap(ring, 4096, offset=0)
    entries = mmap.mmap(ring, 4096, offset=ENTRIES_AT)
    byte = ctypes.create_string_buffer(b"x")
    entry = (WRITE, FIXED_FILE, 0, 0, 0, ctypes.addressof(byte), 1)
    struct.pack_into("=BBHiQQI", entries, 0, *entry)
    struct.pack_into("=I", queue, places, 0)
    struct.pack_into("=I", queue, tail, 1)
    assert libc.syscall(IO_URING_ENTER, ring, 1, 1, 1, None, 0) == 1


def in_own_table(descriptor: int, then: object) -> None:
    """Keep a descriptor in the table of one thread alone, and close it in the process."""
    apart, closed = threading.Event(), threading.Event()

    def keep() -> None:
        assert libc.unshare(CLONE_FILES) == 0
        apart.set()
        closed.wait()
        then(descriptor)  # type: ignore[operator]

    threading.Thread(target=keep, daemon=True).start()
    apart.wait()
    os.close(descriptor)
    closed.set()


def tell_later(descriptor: int) -> None:
    wait_for_news()
    os.write(descriptor, b"x")


def wait_for_ever(_descriptor: int = 0) -> None:
    threading.Event().wait()


def forked(child: object) -> int:
    pid = os.fork()
    if pid == 0:
        child()  # type: ignore[operator]
        os._exit(0)
    return pid


def idle_unseen() -> None:
    cannot_be_looked_at()
    wait_for_ever()


def handed_to_outsider(descriptor: int) -> None:
    line = socket.socket(socket.AF_UNIX)
    line.connect(os.environ["HAND_TO"])
    line.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])
    HELD.append(line)
    line.recv(1)  # it has it


def outside(name: str, path: str) -> None:
    """Hold what is handed over, in one of the ways, and write to it when there is news."""
    if name == "undumpable":
        cannot_be_looked_at()
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    print("ready", flush=True)
    line, _ = server.accept()
    _, found, _, _ = line.recvmsg(1, socket.CMSG_SPACE(4))
    (descriptor,) = array.array("i", found[0][2])
    if name == "thread":
        in_own_table(descriptor, tell_later)
        line.send(b"x")
        wait_for_ever()
    ring = register(descriptor) if name == "ring" else None
    line.send(b"x")
    wait_for_news()
    if ring:
        write_registered(ring)
    else:
        os.write(descriptor, b"x")


# What the training waits for.


def undumpable_queue() -> None:
    queue = multiprocessing.get_context("fork").SimpleQueue()

    def child() -> None:
        cannot_be_looked_at()
        wait_for_news()
        queue.put(1)

    HELD.append(forked(child))
    queue.get()


def undumpable_pair() -> None:
    ours, theirs = socket.socketpair()

    def child() -> None:
        cannot_be_looked_at()
        wait_for_news()
        theirs.send(b"x")

    HELD.append(forked(child))
    ours.recv(1)


def to_outsider() -> None:
    reading, writing = os.pipe()
    handed_to_outsider(writing)
    os.read(reading, 1)


def table_of_thread() -> None:
    reading, writing = os.pipe()

    def child() -> None:
        os.close(reading)
        in_own_table(writing, tell_later)
        wait_for_ever()

    HELD.append(forked(child))
    time.sleep(0.3)
    os.read(reading, 1)


# The same shapes, and nobody is left to write.


def pipe_of_its_own() -> None:
    reading, writing = os.pipe()
    HELD.append(writing)
    os.read(reading, 1)


def beside_elder() -> None:
    """Wait below a helper that cannot be looked at, and is older than the queue."""
    queue = multiprocessing.get_context("fork").SimpleQueue()
    queue.get()


def beside_undumpable_with_lock() -> None:
    HELD.append(forked(idle_unseen))
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def table_of_stuck_thread() -> None:
    reading, writing = os.pipe()

    def child() -> None:
        os.close(reading)
        in_own_table(writing, wait_for_ever)
        wait_for_ever()

    HELD.append(forked(child))
    time.sleep(0.3)
    os.read(reading, 1)


def ring_of_stuck_child() -> None:
    reading, writing = os.pipe()

    def child() -> None:
        os.close(reading)
        register(writing)
        wait_for_ever()

    HELD.append(forked(child))
    time.sleep(0.3)
    os.read(reading, 1)


def train(steps: int) -> None:
    from torch.optim import optimizer  # noqa: PLC0415 - a stand-in, as only the training has it

    for _ in range(steps):
        optimizer.step()
        time.sleep(0.02)


if __name__ == "__main__":
    if sys.argv[1] == "outside":
        outside(*sys.argv[2:])
    elif sys.argv[1] == "elder":  # starts the training below one that cannot be looked at
        HELD.append(forked(idle_unseen))
        time.sleep(0.1)
        sys.exit(subprocess.call([sys.executable, __file__, sys.argv[2]]))
    else:
        train(60)
        globals()[sys.argv[1]]()
        train(20)
        print("done", flush=True)
        os._exit(0)
