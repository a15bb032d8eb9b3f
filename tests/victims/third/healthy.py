"""Healthy scripts that look hung: `healthy.py NAME`, `healthy.py --list`. Each ends with code 0.

Unless a script trains by itself, it makes 60 steps, waits in the function below, and makes 20 more.
"limit" marks what docs/explanation-hangs.md lists as a limitation: run, but counted separately.
"""

import array
import asyncio
import atexit
import concurrent.futures
import contextlib
import ctypes
import errno
import fcntl
import http.client
import logging
import logging.handlers
import mmap
import multiprocessing as mp
import os
import queue
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from multiprocessing import shared_memory
from pathlib import Path

from third_common import (
    AFTER,
    BEFORE,
    WAIT,
    Training,
    address,
    case,
    check,
    futex,
    futex_set,
    futex_wait,
    libc,
    main,
    map_file,
    mutex_lock,
    mutex_unlock,
    outside,
    shared_mutex,
    wait_file,
    word,
)

PID = os.getpid()
LONG = 130 if WAIT >= 30 else WAIT * 3  # before the first step a proof takes 100 s

# 1. Shared memory that somebody opens later


@case("named shared memory, opened later by another process")
def shm_by_name():
    memory = shared_memory.SharedMemory(create=True, size=4096, name=f"third{PID}")
    outside(WAIT, "futex_file", f"/dev/shm/third{PID}")
    futex_wait(memory.buf)
    memory.unlink()


@case("a file of the project, mapped; another process maps it later")
def futex_in_file():
    memory = map_file("control.bin")
    outside(WAIT, "futex_file", "control.bin")
    futex_wait(memory)


@case("a file in /dev/shm whose first name is gone, a hard link is left")
def futex_hard_link():
    memory = map_file(f"/dev/shm/third{PID}")
    os.link(f"/dev/shm/third{PID}", f"/dev/shm/third{PID}-b")
    os.unlink(f"/dev/shm/third{PID}")
    outside(WAIT, "futex_file", f"/dev/shm/third{PID}-b")
    futex_wait(memory)
    os.unlink(f"/dev/shm/third{PID}-b")


@case("a file on the disk, unlinked, with a hard link in another folder")
def futex_hard_link_disk():
    memory = map_file("flag")
    Path("deep").mkdir()
    os.link("flag", "deep/other")
    os.unlink("flag")
    outside(WAIT, "futex_file", "deep/other")
    futex_wait(memory)


@case("a file that was unlinked and linked again by its descriptor (linkat)")
def futex_tmpfile_linked():
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
    memory = map_file(fd)
    check(libc.linkat(-100, f"/proc/self/fd/{fd}".encode(), -100, b"named", 0x400))
    os.close(fd)
    outside(WAIT, "futex_file", "named")
    futex_wait(memory)


def send_fd(path, fd):
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    client.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    return client


@case("a memfd handed to another process, which has it open but not mapped")
def memfd_handed_over():
    outside(0, "take_fd", "give", 0, WAIT)
    wait_file("give.ready")
    fd = os.memfd_create("flag")
    memory = map_file(fd)
    send_fd("give", fd).close()
    os.close(fd)
    time.sleep(0.5)
    futex_wait(memory)


@case("a memfd in transit: sent to a listener that accepts later")
def memfd_in_transit():
    outside(0, "take_fd", "give", WAIT, 0)
    wait_file("give.ready")
    fd = os.memfd_create("flag")
    memory = map_file(fd)
    send_fd("give", fd).close()
    os.close(fd)
    futex_wait(memory)


@case("the writing end of a pipe in transit: sent to a listener that accepts later")
def pipe_in_transit():
    outside(0, "take_fd", "give", WAIT, 0)
    wait_file("give.ready")
    reader, writer = os.pipe()
    send_fd("give", writer).close()
    os.close(writer)
    assert os.read(reader, 8)


@case("another process opens /proc/PID/fd/N of a memfd later", limit=True)
def memfd_by_proc():
    fd = os.memfd_create("flag")
    memory = map_file(fd)
    outside(WAIT, "futex_proc_fd", PID, fd)
    futex_wait(memory)


@case("another process takes the writing end of a pipe with pidfd_getfd", limit=True)
def pipe_by_pidfd_getfd():
    reader, writer = os.pipe()
    outside(WAIT, "getfd_and_write", PID, writer)
    assert os.read(reader, 8)


@case("System V segment by its number")
def sysv_segment():
    number = check(libc.shmget(0x7000 + PID, 4096, 0o1600))
    where = libc.shmat(number, None, 0)
    outside(WAIT, "futex_sysv", number)
    futex_wait(where)
    libc.shmctl(number, 0, None)


@case("System V segment, removed but still attached")
def sysv_segment_removed():
    number = check(libc.shmget(0, 4096, 0o1600))
    where = libc.shmat(number, None, 0)
    libc.shmctl(number, 0, None)
    outside(WAIT, "futex_sysv", number)
    futex_wait(where)


@case("System V semaphore, raised by another process by its key")
def sysv_semaphore():
    number = check(libc.semget(0x7000 + PID, 1, 0o1600))
    outside(WAIT, "semop", 0x7000 + PID)
    check(libc.semop(number, struct.pack("Hhh", 0, -1, 0), 1))
    libc.semctl(number, 0, 0)


@case("System V message queue")
def sysv_message():
    number = check(libc.msgget(0x7000 + PID, 0o1600))
    outside(WAIT, "msgsnd", 0x7000 + PID)
    check(libc.msgrcv(number, ctypes.create_string_buffer(64), 8, 0, 0))
    libc.msgctl(number, 0, None)


@case("POSIX message queue")
def posix_message():
    name = f"/third{PID}".encode()
    number = check(libc.mq_open(name, os.O_RDWR | os.O_CREAT, 0o600, None))
    outside(WAIT, "mq_send", name.decode())
    check(libc.mq_receive(number, ctypes.create_string_buffer(8192), 8192, None))
    libc.mq_unlink(name)


def named_semaphore():
    name = f"/third{PID}"
    semaphore = ctypes.c_void_p(libc.sem_open(name.encode(), os.O_CREAT | os.O_EXCL, 0o600, 0))
    return name, semaphore


@case("POSIX named semaphore, posted by another process by its name")
def posix_semaphore():
    name, semaphore = named_semaphore()
    outside(WAIT, "sem_post", name)
    check(libc.sem_wait(semaphore))
    libc.sem_unlink(name.encode())


@case("POSIX named semaphore that another process has open; its name is gone")
def posix_semaphore_unlinked():
    name, semaphore = named_semaphore()
    outside(0, "sem_open_and_post", name, WAIT)
    wait_file(f"third{PID}.open")
    libc.sem_unlink(name.encode())
    check(libc.sem_wait(semaphore))


@case("process-shared mutex in a file, held by another process")
def mutex_in_file():
    memory = map_file("mutex")
    shared_mutex(memory)
    outside(0, "hold_mutex", "mutex", WAIT)
    wait_file("mutex.held")
    assert mutex_lock(memory) == 0


@case("process-shared mutex whose file was unlinked after the other process took it")
def mutex_unlinked():
    memory = map_file("mutex")
    shared_mutex(memory)
    outside(0, "hold_mutex", "mutex", WAIT)
    wait_file("mutex.held")
    os.unlink("mutex")
    assert mutex_lock(memory) == 0


@case("robust mutex whose holder, another process, dies")
def mutex_robust_outside():
    memory = map_file("mutex")
    shared_mutex(memory, robust=True)
    outside(0, "hold_mutex", "mutex", WAIT, "die")
    wait_file("mutex.held")
    assert mutex_lock(memory) == errno.EOWNERDEAD


@case("robust mutex in anonymous memory; the child that holds it sleeps and dies")
def mutex_robust_child():
    memory = mmap.mmap(-1, 4096)
    shared_mutex(memory, robust=True)
    if os.fork() == 0:
        mutex_lock(memory)
        time.sleep(WAIT)
        os._exit(0)
    time.sleep(0.5)
    assert mutex_lock(memory) == errno.EOWNERDEAD


@case("a priority-inheritance futex in a file, held by another process")
def futex_pi():
    memory = map_file("pi")
    outside(0, "hold_pi", "pi", WAIT)
    wait_file("pi.held")
    while futex(address(memory), 6, 0) == -1 and ctypes.get_errno() == errno.EAGAIN:
        time.sleep(0.1)


@case("a futex with an absolute timeout (FUTEX_WAIT_BITSET)")
def futex_absolute_timeout():
    memory = mmap.mmap(-1, 4096)
    end = time.clock_gettime(time.CLOCK_MONOTONIC) + WAIT
    when = (ctypes.c_long * 2)(int(end), 0)
    libc.syscall(202, ctypes.c_void_p(address(memory)), 9, 0, when, None, -1)


@case("futex_waitv on two words with a timeout")
def futex_waitv():
    memory = mmap.mmap(-1, 4096)
    end = int(time.clock_gettime(time.CLOCK_MONOTONIC) + WAIT)
    waiters = struct.pack("QQII", 0, address(memory), 2, 0) + struct.pack("QQII", 0, address(memory, 64), 2, 0)
    libc.syscall(449, waiters, 2, 0, (ctypes.c_long * 2)(end, 0), 1)


@case("anonymous shared memory; a daemon of its own session, without the run's variables, wakes")
def daemon_anonymous():
    memory = mmap.mmap(-1, 4096)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(WAIT)
            futex_set(memory)
        os._exit(0)
    os.wait()
    futex_wait(memory)


DAEMON = """
import os, sys, time
sys.path.insert(0, sys.argv[3])
from third_common import futex_set, map_file
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
if sys.argv[1] == "u":
    os.setuid(65534)
time.sleep(float(sys.argv[2]))
if sys.argv[1] == "-":
    os.write(1, b"go")
elif sys.argv[1] == "u":
    os.write(1, b"go")
elif sys.argv[1].startswith("e"):
    os.write(int(sys.argv[1][1:]), b"\\1" + bytes(7))
else:
    futex_set(map_file(int(sys.argv[1])))
"""


def daemon(what, **options):
    folder = str(Path(__file__).parent)
    command = [sys.executable, "-c", DAEMON, what, str(WAIT), folder]
    subprocess.run(command, env={"PATH": os.environ["PATH"]}, check=True, **options)


@case("a memfd that a daemon inherited; it has it open only, and a clean environment")
def daemon_memfd():
    fd = os.memfd_create("flag")
    os.set_inheritable(fd, True)
    memory = map_file(fd)
    daemon(str(fd), pass_fds=[fd])
    os.close(fd)
    futex_wait(memory)


@case("a pipe whose writing end a daemon of its own session holds")
def daemon_pipe():
    reader, writer = os.pipe()
    daemon("-", stdout=writer)
    os.close(writer)
    assert os.read(reader, 2) == b"go"


@case("an eventfd that a daemon of its own session holds")
def daemon_eventfd():
    fd = os.eventfd(0)
    os.set_inheritable(fd, True)
    daemon(f"e{fd}", pass_fds=[fd])
    assert os.eventfd_read(fd) == 1


@case("a semaphore of multiprocessing, passed to a child that was spawned and sleeps")
def mp_semaphore_spawned():
    context = mp.get_context("spawn")
    semaphore = context.Semaphore(0)
    child = context.Process(target=release_later, args=(semaphore,))
    child.start()
    semaphore.acquire()
    child.join()


def release_later(semaphore):
    time.sleep(WAIT)
    semaphore.release()


@case("a page that another process fills in later (userfaultfd)")
def page_by_userfaultfd():
    fd = check(libc.syscall(323, 0))
    fcntl.ioctl(fd, 0xC018AA3F, struct.pack("QQQ", 0xAA, 0, 0))
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    where = libc.mmap(None, 4096, 3, 0x22, -1, 0)
    fcntl.ioctl(fd, 0xC020AA00, struct.pack("QQQQ", where, 4096, 1, 0))
    outside(0, "uffd_copy", "uffd", WAIT)
    wait_file("uffd.ready")
    client = socket.socket(socket.AF_UNIX)
    client.connect("uffd")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    client.sendmsg([struct.pack("Q", where)], rights)
    copy = ctypes.create_string_buffer(8)
    libc.memcpy(copy, ctypes.c_void_p(where), 8)  # not the GIL: CDLL
    assert copy.raw[0] == 1


@case("another process opened /proc/PID/fd/N of a memfd before the wait")
def memfd_by_proc_early():
    fd = os.memfd_create("flag")
    memory = map_file(fd)
    outside(0, "futex_proc_fd", PID, fd, WAIT)
    wait_file("open")
    os.close(fd)
    futex_wait(memory)


@case("another process opened the writing end of a pipe in /proc/PID/fd before the wait")
def pipe_by_proc_early():
    reader, writer = os.pipe()
    outside(0, "open_and_write", f"/proc/{PID}/fd/{writer}", WAIT)
    wait_file("open")
    os.close(writer)
    assert os.read(reader, 8)


@case("another process keeps a memfd in transit in a socket of its own", limit=True)
def memfd_in_transit_outside():
    outside(0, "keep_in_transit", "give", WAIT)
    wait_file("give.ready")
    fd = os.memfd_create("flag")
    memory = map_file(fd)
    send_fd("give", fd).close()
    os.close(fd)
    wait_file("kept")
    futex_wait(memory)


@case("a daemon of another user holds the writing end of a pipe", limit=True)
def daemon_other_user():
    reader, writer = os.pipe()
    daemon("u", stdout=writer)
    os.close(writer)
    assert os.read(reader, 2) == b"go"


@case("/dev/zero, mapped and shared with a daemon")
def daemon_dev_zero():
    fd = os.open("/dev/zero", os.O_RDWR)
    memory = mmap.mmap(fd, 4096)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(WAIT)
            futex_set(memory)
        os._exit(0)
    os.wait()
    futex_wait(memory)


# 2. Files, pipes and sockets with a name


@case("tail -f | grep -m1: another process writes the line later")
def tail_follow():
    Path("log").write_text("starting\n")
    outside(WAIT, "append", "log", "ready\n")
    subprocess.run(["sh", "-c", "tail -n +1 -f log | grep -m1 ready; pkill -P $$ tail; exit 0"], check=True)


@case("mq_notify starts a thread of glibc when another process sends a message")
def mq_notify_thread():
    name = f"/third{PID}".encode()
    number = check(libc.mq_open(name, os.O_RDWR | os.O_CREAT, 0o600, None))
    lock = threading.Lock()
    lock.acquire()
    release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: lock.release())
    code = ctypes.cast(release, ctypes.c_void_p).value
    check(libc.mq_notify(number, struct.pack("qiiqq32x", 0, 0, 2, code, 0)))
    outside(WAIT, "mq_send", name.decode())
    lock.acquire()
    libc.mq_unlink(name)


@case("opens a FIFO for reading; a writer comes later")
def fifo_open():
    os.mkfifo("fifo")
    outside(WAIT, "write", "fifo")
    assert Path("fifo").read_text() == "go\n"


@case("reads a FIFO of which it holds both ends; another process writes later")
def fifo_both_ends():
    os.mkfifo("fifo")
    fd = os.open("fifo", os.O_RDWR)
    outside(WAIT, "write", "fifo")
    assert os.read(fd, 10) == b"go\n"


@case("polls a FIFO without a timeout")
def fifo_poll():
    os.mkfifo("fifo")
    fd = os.open("fifo", os.O_RDWR)
    outside(WAIT, "write", "fifo")
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    assert waiting.poll()


@case("a child (sh) reads a FIFO that another process writes later; waitpid")
def child_reads_fifo():
    os.mkfifo("fifo")
    outside(WAIT, "write", "fifo")
    subprocess.run(["sh", "-c", "read line < fifo"], check=True)


def listening(path, kind=socket.SOCK_STREAM):
    server = socket.socket(socket.AF_UNIX, kind)
    server.bind(path)
    return server


@case("accepts at a unix socket; a client connects later")
def unix_accept():
    server = listening("socket")
    server.listen()
    outside(WAIT, "connect", "socket")
    assert server.accept()[0].recv(2) == b"go"


@case("accepts at an abstract unix socket")
def unix_accept_abstract():
    server = listening(f"\0third{PID}")
    server.listen()
    outside(WAIT, "connect", f"@third{PID}")
    assert server.accept()[0].recv(2) == b"go"


@case("receives at a bound datagram socket")
def unix_datagram():
    server = listening("socket", socket.SOCK_DGRAM)
    outside(WAIT, "connect", "socket", "DGRAM")
    assert server.recv(2) == b"go"


@case("accepts at a SEQPACKET socket")
def unix_seqpacket():
    server = listening("socket", socket.SOCK_SEQPACKET)
    server.listen()
    outside(WAIT, "connect", "socket", "SEQPACKET")
    assert server.accept()[0].recv(2) == b"go"


@case("a datagram socket that is connected elsewhere may still be found by its path")
def datagram_named():
    named = listening("named", socket.SOCK_DGRAM)
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    waiting = select.poll()
    waiting.register(pair[0], select.POLLIN)
    waiting.register(named, select.POLLIN)
    outside(WAIT, "connect", "named", "DGRAM")
    assert waiting.poll()


@case("a silent unix server outside; the client waits")
def unix_silent_server():
    outside(0, "unix_server", "server", WAIT)
    wait_file("server.ready")
    client = socket.socket(socket.AF_UNIX)
    client.connect("server")
    assert client.recv(2) == b"go"


@case("a silent unix server; reconnected in a loop after resets")
def unix_reconnect():
    for turn in range(2):
        outside(0, "unix_server", f"server{turn}", WAIT / 2)
        wait_file(f"server{turn}.ready")
        client = socket.socket(socket.AF_UNIX)
        client.connect(f"server{turn}")
        assert client.recv(2) == b"go"


@case("a silent TCP server outside, with keepalive")
def tcp_silent_server():
    outside(0, "tcp_server", "port", WAIT)
    with socket.create_connection(("127.0.0.1", int(wait_file("port")))) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        assert client.recv(100)


@case("accepts at a TCP port; a client connects later")
def tcp_accept():
    server = socket.create_server(("127.0.0.1", 0))
    outside(WAIT, "tcp_connect", server.getsockname()[1])
    assert server.accept()[0].recv(2) == b"go"


@case("receives at a UDP port")
def udp_receive():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    outside(WAIT, "udp_send", server.getsockname()[1])
    assert server.recv(2) == b"go"


@case("a raw socket that sees what others send on the loopback device")
def raw_socket():
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
    port = 20000 + PID % 20000
    outside(WAIT, "udp_send", port)
    while struct.unpack("!H", raw.recv(100)[22:24])[0] != port:
        pass


@case("HTTP long poll to a server outside")
def http_long_poll():
    outside(0, "tcp_server", "port", WAIT)
    client = http.client.HTTPConnection("127.0.0.1", int(wait_file("port")))
    client.request("GET", "/task")
    assert client.getresponse().read() == b"go"


def serve_slowly(pipe):
    server = socket.create_server(("127.0.0.1", 0))
    pipe.send(server.getsockname()[1])
    connection = server.accept()[0]
    connection.recv(1000)
    time.sleep(WAIT)
    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\ngo")


@case("HTTP to a server that is a child of the script")
def http_child_server():
    ours, theirs = mp.Pipe()
    child = mp.Process(target=serve_slowly, args=(theirs,))
    child.start()
    client = http.client.HTTPConnection("127.0.0.1", ours.recv())
    client.request("GET", "/")
    assert client.getresponse().read() == b"go"
    child.join()


@case("DNS-like: a query over UDP to a silent server, 5 s per try, repeated")
def dns_retries():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(5)
    for _ in range(int(WAIT / 5)):
        client.sendto(b"query", server.getsockname())
        with contextlib.suppress(TimeoutError):
            client.recv(100)


@case("a terminal: waits for a person's yes")
def terminal_read():
    outside(0, "terminal", "tty", WAIT)
    with open(wait_file("tty")) as tty:
        assert tty.readline() == "yes\n"


@case("input(): somebody types later into the run's standard input", stdin="later")
def standard_input():
    assert input("continue? ") == "yes"


@case("flock held by another process")
def flock_outside():
    outside(0, "flock", "lock", WAIT)
    wait_file("lock.held")
    with open("lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


@case("lockf held by another process")
def lockf_outside():
    outside(0, "lockf", "lock", WAIT)
    wait_file("lock.held")
    with open("lock", "a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)


@case("an open-file-description lock held by another process")
def ofd_lock_outside():
    outside(0, "ofd_lock", "lock", WAIT)
    wait_file("lock.held")
    with open("lock", "a") as file:
        fcntl.fcntl(file, 38, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))


@case("flock held by a child that computes")
def flock_child():
    if os.fork() == 0:
        file = open("lock", "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(WAIT)
        os._exit(0)
    time.sleep(0.5)
    with open("lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    os.wait()


@case("the command flock waits for another process; waitpid")
def flock_command():
    outside(0, "flock", "lock", WAIT)
    wait_file("lock.held")
    subprocess.run(["flock", "lock", "true"], check=True)


@case("open() waits until another process gives up its lease")
def lease_open():
    outside(0, "lease", "leased", WAIT - 5)
    wait_file("leased.held")
    os.close(os.open("leased", os.O_RDWR))


@case("a lock file, polled with growing pauses; another process removes it")
def lock_file_polled():
    outside(WAIT, "touch", "free")
    pause = 0.5
    while not os.path.exists("free"):
        time.sleep(pause)
        pause = min(pause * 2, 10)


@case("inotify: another process writes the file later")
def inotify():
    fd = libc.inotify_init1(0)
    libc.inotify_add_watch(fd, b".", 0x100)
    outside(WAIT, "touch", "appears")
    assert os.read(fd, 4096)


@case("fanotify: another process closes a file later")
def fanotify():
    fd = check(libc.fanotify_init(0, os.O_RDONLY))
    Path("watched").mkdir()
    libc.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]
    check(libc.fanotify_mark(fd, 1, 0x8 | 0x8000000, -100, b"watched"))
    outside(WAIT, "touch", "watched/file")
    assert os.read(fd, 4096)


@case("poll at /proc/self/mounts until another process mounts the data")
def mount_appears():
    Path("data").mkdir()
    file = open("/proc/self/mounts")
    waiting = select.poll()
    waiting.register(file, select.POLLPRI | select.POLLERR)
    outside(WAIT, "mount", "data")
    while "third" not in file.read():
        waiting.poll()
        file.seek(0)
    subprocess.run(["umount", "data"], check=True)


@case("a process outside: pidfd and poll without a timeout")
def pidfd_outside():
    outside(0, "reserve", "pid", WAIT)
    fd = os.pidfd_open(int(wait_file("pid")))
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    assert waiting.poll()


# 3. Signals, timers, stops


def train_blocking(number, wait):
    """Blocked before torch starts threads of its own, which would take the signal otherwise."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    training = Training()
    training.steps(BEFORE)
    wait()
    training.steps(AFTER)


@case("sigwait for SIGUSR1 from another process", own=True)
def sigwait():
    def wait():
        outside(WAIT, "kill", PID, int(signal.SIGUSR1))
        assert signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1

    train_blocking(signal.SIGUSR1, wait)


@case("sigtimedwait")
def sigtimedwait():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    signal.sigtimedwait([signal.SIGUSR1], WAIT)


@case("signalfd, read without a timeout", own=True)
def signalfd():
    def wait():
        fd = check(libc.signalfd(-1, struct.pack("Q", 1 << (signal.SIGUSR2 - 1)), 0))
        outside(WAIT, "kill", PID, int(signal.SIGUSR2))
        assert os.read(fd, 128)

    train_blocking(signal.SIGUSR2, wait)


@case("pause() until SIGUSR1 comes from another process")
def pause_usr1():
    signal.signal(signal.SIGUSR1, lambda *_: None)
    outside(WAIT, "kill", PID, int(signal.SIGUSR1))
    signal.pause()


def event_by_signal(number, wait=True):
    event = threading.Event()
    signal.signal(number, lambda *_: event.set())
    if wait:
        outside(WAIT, "kill", PID, int(number))
        event.wait()
    return event


@case("an Event that the handler of SIGUSR1 sets")
def event_usr1():
    event_by_signal(signal.SIGUSR1)


@case("an Event that the handler of a real-time signal sets")
def event_rtmin():
    event_by_signal(signal.SIGRTMIN + 3)


@case("an Event that the handler of SIGHUP sets (read the configuration again)")
def event_hup():
    event_by_signal(signal.SIGHUP)


@case("an Event that the handler of SIGCONT sets")
def event_cont():
    event_by_signal(signal.SIGCONT)


@case("an Event that the handler of SIGURG sets")
def event_urg():
    event_by_signal(signal.SIGURG)


@case("an Event that the handler of SIGQUIT sets")
def event_quit():
    event_by_signal(signal.SIGQUIT)


@case("an Event that the handler of SIGTERM sets", limit=True)
def event_term():
    event_by_signal(signal.SIGTERM)


@case("KeyboardInterrupt from another process ends the wait", limit=True)
def event_int():
    outside(WAIT, "kill", PID, int(signal.SIGINT))
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


@case("an Event that the handler of SIGWINCH sets", limit=True)
def event_winch():
    event_by_signal(signal.SIGWINCH)


@case("an Event that the handler of SIGCHLD sets when a sleeping child ends")
def event_chld():
    event = event_by_signal(signal.SIGCHLD, wait=False)
    child = subprocess.Popen(["sleep", str(WAIT)])
    event.wait()
    child.wait()


@case("SIGIO: a FIFO in asynchronous mode, written by another process, and an Event")
def event_sigio():
    event = event_by_signal(signal.SIGIO, wait=False)
    os.mkfifo("fifo")
    fd = os.open("fifo", os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(fd, fcntl.F_SETOWN, PID)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_RDWR | os.O_NONBLOCK | os.O_ASYNC)
    outside(WAIT, "write", "fifo")
    event.wait()


@case("a lease of ours that another process breaks later: SIGIO and an Event")
def event_lease_broken():
    event = event_by_signal(signal.SIGIO, wait=False)
    fd = os.open("mine", os.O_RDWR | os.O_CREAT)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    outside(WAIT, "write", "mine")
    event.wait()
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)


@case("a directory notification (F_NOTIFY) and an Event")
def event_dnotify():
    event = event_by_signal(signal.SIGIO, wait=False)
    fd = os.open(".", os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_NOTIFY, fcntl.DN_CREATE | fcntl.DN_MULTISHOT)
    outside(WAIT, "touch", "new")
    event.wait()


@case("setitimer and an exception: a lock with a time limit of the old kind")
def setitimer_exception():
    def late(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, WAIT)
    lock = threading.Lock()
    lock.acquire()
    with contextlib.suppress(TimeoutError):
        lock.acquire()


@case("a retry every 7 s, driven by SIGALRM")
def alarm_retries():
    tries = []
    signal.signal(signal.SIGALRM, lambda *_: tries.append(1))
    while len(tries) < WAIT / 7:
        signal.alarm(7)
        signal.pause()


def posix_timer(seconds, event_bytes):
    timer = ctypes.c_void_p()
    check(libc.timer_create(1, event_bytes, ctypes.byref(timer)))
    check(libc.timer_settime(timer, 0, struct.pack("llll", 0, 0, int(seconds), 0), None))


@case("a POSIX timer that sends SIGUSR2, and an Event")
def posix_timer_signal():
    event = event_by_signal(signal.SIGUSR2, wait=False)
    posix_timer(WAIT, struct.pack("qii48x", 0, signal.SIGUSR2, 0))
    event.wait()


@case("a POSIX timer that starts a thread (SIGEV_THREAD), which releases a lock")
def posix_timer_thread():
    lock = threading.Lock()
    lock.acquire()
    release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: lock.release())
    code = ctypes.cast(release, ctypes.c_void_p).value
    posix_timer(WAIT, struct.pack("qiiqq32x", 0, 0, 2, code, 0))
    lock.acquire()


@case("timerfd")
def timerfd():
    fd = libc.timerfd_create(1, 0)
    check(libc.timerfd_settime(fd, 0, struct.pack("llll", 0, 0, int(WAIT), 0), None))
    assert os.read(fd, 8)


@case("threading.Timer sets an Event")
def threading_timer():
    event = threading.Event()
    threading.Timer(WAIT, event.set).start()
    event.wait()


@case("SIGSTOP from another process, SIGCONT later")
def stopped_and_continued():
    outside(1, "stop", PID, WAIT)
    time.sleep(WAIT + 2)


@case("the training is stopped by a signal in the middle of its steps, and continued", own=True, steps=400)
def stopped_in_steps():
    training = Training()
    training.steps(60)
    outside(1, "stop", PID, WAIT)
    training.steps(340)


@case("a child is stopped and continued; waitpid", steps=80)
def child_stopped():
    child = subprocess.Popen(["sleep", "8"])
    outside(1, "stop", child.pid, WAIT)
    child.wait()


@case("another process attaches as a debugger and detaches later", own=True, steps=400)
def debugger():
    training = Training()
    training.steps(60)
    outside(1, "trace", PID, WAIT)
    training.steps(340)


@case("a cgroup is frozen and thawed", own=True, steps=400)
def cgroup_frozen():
    training = Training()
    training.steps(60)
    outside(1, "freeze", PID, WAIT)
    training.steps(340)


@case("a child in a frozen cgroup; the script waits at a pipe")
def cgroup_frozen_child():
    child = subprocess.Popen(["sh", "-c", "sleep 6; echo go"], stdout=subprocess.PIPE)
    outside(1, "freeze", child.pid, WAIT)
    assert child.stdout.read() == b"go\n"


@case("another process kills a stuck child of the script", limit=True)
def child_killed_outside():
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    outside(WAIT, "kill", child.pid, int(signal.SIGKILL))
    assert child.wait() == -signal.SIGKILL


@case("a watchdog thread kills a stuck child of the script later")
def child_killed_by_thread():
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    threading.Timer(WAIT, child.kill).start()
    child.wait()


@case("a watchdog process, started by the script, kills a stuck child later")
def child_killed_by_watchdog():
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    watchdog = subprocess.Popen(["sh", "-c", f"sleep {WAIT}; kill {child.pid}"])
    child.wait()
    watchdog.wait()


@case("timeout(1) ends a stuck child")
def child_with_timeout_command():
    subprocess.run(["timeout", str(WAIT), "cat"], stdin=os.pipe()[0], check=False)


@case("a child in pause(); its alarm, without a handler, ends it", limit=True)
def child_own_timer():
    code = f"import signal,threading; signal.alarm({int(WAIT)}); threading.Lock().acquire(); signal.pause()"
    subprocess.run([sys.executable, "-c", code], check=False)


@case("a child whose alarm, without a handler, ends it while it waits for a lock", limit=True)
def child_alarm_in_lock():
    code = f"import signal,threading; signal.alarm({int(WAIT)}); l=threading.Lock(); l.acquire(); l.acquire()"
    subprocess.run([sys.executable, "-c", code], check=False)


@case("a child with a handler for SIGUSR1, which another process signals")
def child_trap_usr1():
    child = subprocess.Popen(["bash", "-c", "trap 'exit 0' USR1; read line"], stdin=subprocess.PIPE)
    outside(WAIT, "kill", child.pid, int(signal.SIGUSR1))
    child.wait()


@case("the wake-up pipe of Python's signals; a sleeping child ends")
def wakeup_fd_child():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = subprocess.Popen(["sleep", str(WAIT)])
    select.select([reader], [], [])
    child.wait()


@case("the processor is taken away: a quota of 1 percent, next to threads that pass an item on", own=True, steps=400)
def throttled():
    training = Training()
    there, back = queue.Queue(), queue.Queue()

    def pass_on():
        while (item := there.get()) is not None:
            back.put(item)

    threading.Thread(target=pass_on, daemon=True).start()
    training.steps(60)
    outside(1, "throttle", PID, WAIT)
    for _ in range(340):
        there.put(training.batch())
        training.step(back.get())


@case("rocsteady itself is stopped for a while, next to a wait that a timer ends")
def supervisor_stopped():
    outside(1, "stop", os.getppid(), WAIT - 10)
    event = threading.Event()
    threading.Timer(WAIT, event.set).start()
    event.wait()


# 4. Children and multiprocessing


@case("waits for any child; one is stuck, the other one sleeps")
def wait_any_child():
    stuck = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    subprocess.Popen(["sleep", str(WAIT)])
    os.waitpid(-1, 0)
    stuck.stdin.close()


@case("adopts its grandchildren and waits for one of them")
def subreaper():
    libc.prctl(36, 1, 0, 0, 0)
    subprocess.run(["sh", "-c", f"sleep {WAIT} & exit 0"], check=True)
    os.wait()


@case("reads two pipes: one is its own, a sleeping child writes to the other one")
def two_pipes():
    own, _keep = os.pipe()
    child = subprocess.Popen(["sh", "-c", f"sleep {WAIT}; echo go"], stdout=subprocess.PIPE)
    ready, _, _ = select.select([own, child.stdout], [], [])
    assert ready == [child.stdout]
    child.wait()


@case("subprocess.run of a command that sleeps")
def child_sleeps():
    subprocess.run(["sleep", str(WAIT)], check=True)


@case("output of a shell that starts others; a grandchild holds the pipe")
def grandchild_pipe():
    subprocess.check_output(["sh", "-c", f"(sleep {WAIT}; echo go) & exit 0"])


@case("waits for a process group, waitid, a child that sleeps")
def waitid_group():
    child = subprocess.Popen(["sleep", str(WAIT)], start_new_session=True)
    os.waitid(os.P_PGID, child.pid, os.WEXITED)


def put_later(items, wait=None):
    time.sleep(WAIT if wait is None else wait)
    items.put("go")


@case("multiprocessing.Queue with a producer that sleeps")
def mp_queue():
    items = mp.Queue()
    child = mp.Process(target=put_later, args=(items,))
    child.start()
    assert items.get() == "go"
    child.join()


def start_grandchild(items):
    mp.Process(target=put_later, args=(items,)).start()
    os._exit(0)


@case("multiprocessing.Queue with a producer that is a grandchild; the child is gone")
def mp_queue_grandchild():
    items = mp.Queue()
    child = mp.Process(target=start_grandchild, args=(items,))
    child.start()
    child.join()
    assert items.get() == "go"


def put_after_flock(items):
    with open("lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    items.put("go")


@case("a producer that waits for a file lock of another process")
def mp_queue_flock():
    outside(0, "flock", "lock", WAIT)
    wait_file("lock.held")
    items = mp.SimpleQueue()
    child = mp.Process(target=put_after_flock, args=(items,))
    child.start()
    assert items.get() == "go"
    child.join()


def put_after_named_semaphore(items, name):
    libc.sem_wait(ctypes.c_void_p(libc.sem_open(name.encode(), 0)))
    items.put("go")


@case("a producer that waits for a named semaphore of another process")
def mp_queue_semaphore():
    name, _ = named_semaphore()
    items = mp.SimpleQueue()
    child = mp.Process(target=put_after_named_semaphore, args=(items, name))
    child.start()
    outside(WAIT, "sem_post", name)
    assert items.get() == "go"
    child.join()
    libc.sem_unlink(name.encode())


@case("a queue of a Manager; a child puts later")
def mp_manager():
    with mp.Manager() as manager:
        items = manager.Queue()
        child = mp.Process(target=put_later, args=(items,))
        child.start()
        assert items.get() == "go"
        child.join()


@case("a queue of a manager that runs outside")
def mp_manager_outside():
    from multiprocessing.managers import BaseManager

    class Tasks(BaseManager):
        pass

    Tasks.register("tasks")
    outside(0, "manager", "manager", WAIT)
    wait_file("manager.ready")
    tasks = Tasks(address="manager", authkey=b"third")
    tasks.connect()
    assert tasks.tasks().get() == "go"


def slow_square(x):
    time.sleep(WAIT if x == 3 else 0)
    return x * x


@case("Pool.map with one slow task")
def mp_pool():
    with mp.Pool(2) as pool:
        assert pool.map(slow_square, range(6))[5] == 25


@case("Pool.imap_unordered with maxtasksperchild")
def mp_pool_replaced():
    with mp.Pool(2, maxtasksperchild=1) as pool:
        assert len(list(pool.imap_unordered(slow_square, range(6)))) == 6


def wait_barrier(barrier):
    time.sleep(WAIT)
    barrier.wait()


@case("multiprocessing.Barrier; the other party sleeps")
def mp_barrier():
    barrier = mp.Barrier(2)
    child = mp.Process(target=wait_barrier, args=(barrier,))
    child.start()
    barrier.wait()
    child.join()


def set_event(event):
    time.sleep(WAIT)
    event.set()


@case("multiprocessing.Event from a process of the forkserver")
def mp_event_forkserver():
    context = mp.get_context("forkserver")
    event = context.Event()
    child = context.Process(target=set_event, args=(event,))
    child.start()
    event.wait()
    child.join()


def notify(condition):
    time.sleep(WAIT)
    with condition:
        condition.notify_all()


@case("multiprocessing.Condition, notified by a child")
def mp_condition():
    condition = mp.Condition()
    child = mp.Process(target=notify, args=(condition,))
    with condition:
        child.start()
        condition.wait()
    child.join()


def hold_lock(lock, held):
    with lock:
        held.set()
        end = time.monotonic() + WAIT
        data = os.urandom(2_000_000)
        while time.monotonic() < end:
            zlib.compress(data, 9)
            time.sleep(0.3)


@case("multiprocessing.Lock held by a child that compresses")
def mp_lock_held():
    lock, held = mp.Lock(), mp.Event()
    child = mp.Process(target=hold_lock, args=(lock, held))
    child.start()
    held.wait()
    with lock:
        pass
    child.join()


def send_later(pipe):
    time.sleep(WAIT)
    pipe.send("go")


@case("multiprocessing.Pipe, recv from a spawned child")
def mp_pipe_spawn():
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=send_later, args=(theirs,))
    child.start()
    theirs.close()
    assert ours.recv() == "go"
    child.join()


@case("ProcessPoolExecutor, result of a slow task")
def process_pool_executor():
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        assert pool.submit(slow_square, 3).result() == 9


def read_fifo():
    return Path("fifo").read_text()


@case("ProcessPoolExecutor, a worker reads a FIFO that another process writes later")
def process_pool_fifo():
    os.mkfifo("fifo")
    outside(WAIT, "write", "fifo")
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        assert pool.submit(read_fifo).result() == "go\n"


def answer_later(pipe):
    while (task := pipe.recv()) is not None:
        time.sleep(WAIT)
        pipe.send(task)


@case("an actor: a process that answers each call, slowly")
def actor_call():
    ours, theirs = mp.Pipe()
    child = mp.Process(target=answer_later, args=(theirs,))
    child.start()
    ours.send("go")
    assert ours.recv() == "go"
    ours.send(None)
    child.join()


def log_slowly(records):
    while (record := records.get()) is not None:
        time.sleep(WAIT if "slow" in record.getMessage() else 0)


@case("multiprocess logging: a bounded queue, and a listener that is slow")
def mp_logging():
    records = mp.Queue(2)
    child = mp.Process(target=log_slowly, args=(records,))
    child.start()
    logger = logging.getLogger("third")
    for text in ("slow", "b", "c", "d", "e"):
        records.put(logger.makeRecord("third", 20, "", 0, text, (), None))
    records.put(None)
    child.join()


@case("writes to a full pipe whose reader, a child, sleeps")
def full_pipe():
    child = subprocess.Popen(["sh", "-c", f"sleep {WAIT}; cat >/dev/null"], stdin=subprocess.PIPE)
    child.stdin.write(bytes(1_000_000))
    child.stdin.close()
    child.wait()


@case("an eventfd shared with a child that sleeps")
def eventfd_child():
    fd = os.eventfd(0)
    if os.fork() == 0:
        time.sleep(WAIT)
        os.eventfd_write(fd, 1)
        os._exit(0)
    os.eventfd_read(fd)
    os.wait()


# 5. Threads and asyncio


def feed(items, wait=None):
    time.sleep(WAIT if wait is None else wait)
    items.put("go")


@case("queue.get with a feeder thread that sleeps")
def thread_queue():
    items = queue.Queue()
    threading.Thread(target=feed, args=(items,)).start()
    assert items.get() == "go"


def feed_from_child(items):
    subprocess.run(["sleep", str(WAIT)], check=True)
    items.put("go")


@case("queue.get with a feeder thread that waits for a child")
def thread_queue_child():
    items = queue.Queue()
    threading.Thread(target=feed_from_child, args=(items,)).start()
    assert items.get() == "go"


def feed_from_fifo(items):
    items.put(Path("fifo").read_text())


@case("queue.get with a feeder thread that reads a FIFO written later by another process")
def thread_queue_fifo():
    os.mkfifo("fifo")
    outside(WAIT, "write", "fifo")
    items = queue.Queue()
    threading.Thread(target=feed_from_fifo, args=(items,), daemon=True).start()
    assert items.get() == "go\n"


def feed_from_sigwait(items):
    signal.sigwait([signal.SIGUSR1])
    items.put("go")


@case("queue.get with a thread in sigwait; another process signals later", own=True)
def thread_queue_sigwait():
    def wait():
        items = queue.Queue()
        threading.Thread(target=feed_from_sigwait, args=(items,)).start()
        outside(WAIT, "kill", PID, int(signal.SIGUSR1))
        assert items.get() == "go"

    train_blocking(signal.SIGUSR1, wait)


@case("ThreadPoolExecutor, result of a slow task")
def thread_pool():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert pool.submit(slow_square, 3).result() == 9


@case("multiprocessing.pool.ThreadPool, map")
def thread_pool_mp():
    from multiprocessing.pool import ThreadPool

    with ThreadPool(2) as pool:
        assert pool.map(slow_square, range(5))[4] == 16


@case("a thread that Python does not know sleeps; pthread_join")
def native_thread():
    thread = ctypes.c_ulong()
    code = ctypes.cast(libc.sleep, ctypes.c_void_p)
    assert libc.pthread_create(ctypes.byref(thread), None, code, ctypes.c_void_p(int(WAIT))) == 0
    libc.pthread_join(thread, None)


@case("a thread that Python does not know sleeps, then releases a lock in a callback")
def native_thread_wakes_lock():
    lock = threading.Lock()
    lock.acquire()

    def run(_):
        libc.usleep(int(WAIT * 1e6))
        lock.release()

    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    callback = kind(run)
    thread = ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, callback, None) == 0
    lock.acquire()
    libc.pthread_join(thread, None)


@case("glibc's asynchronous input: a native thread reads a FIFO, aio_suspend waits")
def aio_fifo():
    os.mkfifo("fifo")
    fd = os.open("fifo", os.O_RDWR)
    data = ctypes.create_string_buffer(16)
    control = ctypes.create_string_buffer(168)
    struct.pack_into("iiiiQQ", control, 0, fd, 0, 0, 0, ctypes.addressof(data), 3)
    struct.pack_into("qii", control, 32, 0, 0, 1)
    check(libc.aio_read(control))
    outside(WAIT, "write", "fifo")
    while libc.aio_error(control) == errno.EINPROGRESS:
        libc.aio_suspend((ctypes.c_void_p * 1)(ctypes.addressof(control)), 1, None)
    assert data.raw[:3] == b"go\n"


@case("io_uring: a poll of a FIFO, io_uring_enter without a timeout")
def io_uring():
    os.mkfifo("fifo")
    fifo = os.open("fifo", os.O_RDWR)
    params = ctypes.create_string_buffer(120)
    ring = check(libc.syscall(425, 4, params))
    tail, mask, arr = (struct.unpack_from("I", params, 40 + offset)[0] for offset in (4, 8, 24))
    size = arr + 4 * 64
    submissions = mmap.mmap(ring, max(size, 4096), flags=mmap.MAP_SHARED, offset=0)
    entries = mmap.mmap(ring, 4096, flags=mmap.MAP_SHARED, offset=0x10000000)
    struct.pack_into("BBHiQQIIQ", entries, 0, 6, 0, 0, fifo, 0, 0, 0, select.POLLIN, 7)
    del mask
    word(submissions, arr).value = 0
    word(submissions, tail).value = 1
    outside(WAIT, "write", "fifo")
    check(libc.syscall(426, ring, 1, 1, 1, None, 0))
    assert os.read(fifo, 3) == b"go\n"


def save_slowly(training):
    with open("model.pt.part", "wb") as file:
        for _ in range(int(WAIT / 0.5)):
            file.write(bytes(100_000))
            file.flush()
            time.sleep(0.5)


@case("a thread that saves a checkpoint slowly; the training joins it")
def checkpoint_thread():
    thread = threading.Thread(target=save_slowly, args=(None,))
    thread.start()
    thread.join()


@case("asyncio.sleep")
def asyncio_sleep():
    asyncio.run(asyncio.sleep(WAIT))


@case("asyncio with a slow function in an executor")
def asyncio_executor():
    async def run():
        return await asyncio.get_running_loop().run_in_executor(None, time.sleep, WAIT)

    asyncio.run(run())


@case("asyncio waits for a child")
def asyncio_child():
    async def run():
        child = await asyncio.create_subprocess_exec("sleep", str(WAIT))
        await child.wait()

    asyncio.run(run())


@case("an asyncio server waits for a client from outside")
def asyncio_server():
    async def run():
        came = asyncio.Event()
        server = await asyncio.start_unix_server(lambda *_: came.set(), "socket")
        outside(WAIT, "connect", "socket")
        await came.wait()
        server.close()

    asyncio.run(run())


@case("asyncio.add_signal_handler; SIGUSR1 from outside")
def asyncio_signal():
    async def run():
        came = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, came.set)
        outside(WAIT, "kill", PID, int(signal.SIGUSR1))
        await came.wait()

    asyncio.run(run())


@case("asyncio.add_signal_handler; SIGTERM from outside", limit=True)
def asyncio_signal_term():
    async def run():
        came = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, came.set)
        outside(WAIT, "kill", PID, int(signal.SIGTERM))
        await came.wait()

    asyncio.run(run())


@case("an asyncio loop in a thread; the training waits for a coroutine's result")
def asyncio_thread():
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(asyncio.sleep(WAIT), loop).result()


@case("training in a thread, which sleeps; the main thread joins it", own=True)
def thread_trains():
    def train():
        training = Training()
        training.steps(BEFORE)
        time.sleep(WAIT)
        training.steps(AFTER)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()


@case("training in a thread waits for a lock that the polling main thread releases later", own=True)
def thread_trains_main_polls():
    lock = threading.Lock()
    lock.acquire()

    def train():
        training = Training()
        training.steps(BEFORE)
        started.append(time.monotonic())
        with lock:
            training.steps(AFTER)

    started = []
    thread = threading.Thread(target=train)
    thread.start()
    while thread.is_alive():
        time.sleep(0.2)
        if started and lock.locked() and time.monotonic() > started[0] + WAIT:
            started.clear()
            lock.release()


@case("a UI loop in the main thread (select without a timeout); a thread trains and waits for a click", own=True)
def ui_loop():
    os.mkfifo("clicks")
    clicks = os.open("clicks", os.O_RDWR)
    clicked = threading.Event()
    ended_reader, ended_writer = os.pipe()

    def train():
        training = Training()
        training.steps(BEFORE)
        outside(WAIT, "write", "clicks")
        clicked.wait()
        training.steps(AFTER)
        os.write(ended_writer, b"x")

    threading.Thread(target=train).start()
    while True:
        ready, _, _ = select.select([clicks, ended_reader], [], [])
        if ended_reader in ready:
            break
        os.read(clicks, 10)
        clicked.set()


@case("an actor in the style of Ray: a thread takes commands, trains, waits for the next one", own=True)
def actor_thread():
    commands = queue.Queue()
    training = Training()

    def work():
        while (number := commands.get()) is not None:
            training.steps(number)

    worker = threading.Thread(target=work)
    worker.start()
    commands.put(BEFORE)
    time.sleep(WAIT)
    commands.put(AFTER)
    commands.put(None)
    worker.join()


@case("a tracker: a background thread sends, the training waits until its queue is empty")
def tracker_flush():
    items = queue.Queue()

    def send():
        while True:
            items.get()
            time.sleep(WAIT / 5)
            items.task_done()

    threading.Thread(target=send, daemon=True, name="tracker").start()
    for number in range(5):
        items.put(number)
    items.join()


@case("select with many descriptors and one long timeout")
def select_many():
    pipes = [os.pipe() for _ in range(100)]
    select.select([reader for reader, _ in pipes], [], [], WAIT)


@case("epoll with a timeout")
def epoll_timeout():
    waiting = select.epoll()
    waiting.register(os.pipe()[0], select.EPOLLIN)
    waiting.poll(WAIT)


@case("a timed Condition.wait in a loop, until a thread that works in C is done")
def condition_timeout():
    done = []
    thread = threading.Thread(target=lambda: (libc.usleep(int(WAIT * 1e6)), done.append(1)))
    thread.start()
    condition = threading.Condition()
    with condition:
        while not done:
            condition.wait(12)


# 6. Loaders


class Numbers:
    """A map-style data set of 80 batches; `event` runs once, at item 60, in the worker."""

    def __init__(self, event, at=BEFORE):
        self.event, self.at = event, at

    def __len__(self):
        return BEFORE + AFTER

    def __getitem__(self, index):
        import torch

        if index == self.at:
            self.event()
        inputs = torch.randn(64, 64)
        return inputs, inputs.sum(1, keepdim=True)


def load(event, at=BEFORE, **options):
    from torch.utils.data import DataLoader

    training = Training()
    options = {"num_workers": 2, "batch_size": None, **options}
    for batch in DataLoader(Numbers(event, at), **options):
        training.step(batch)


def nap():
    time.sleep(WAIT)


@case("a loader worker that sleeps in one item", own=True)
def loader_slow_item():
    load(nap)


@case("a loader worker that sleeps in its first item", own=True)
def loader_slow_first():
    load(nap, at=0)


@case("a loader worker that sleeps, with DataLoader(timeout=120)", own=True)
def loader_timeout():
    load(nap, timeout=120)


def slow_collate(items):
    import torch

    if slow_collate.calls == BEFORE:
        time.sleep(WAIT)
    slow_collate.calls += 1
    inputs = torch.stack([item[0] for item in items]).flatten(0, 1)
    return inputs, inputs.sum(1, keepdim=True)


slow_collate.calls = 0


@case("a collate function that sleeps, in the main process", own=True)
def loader_slow_collate():
    load(lambda: None, num_workers=0, batch_size=1, collate_fn=slow_collate)


def slow_init(_):
    time.sleep(WAIT)


@case("worker_init_fn that sleeps", own=True)
def loader_slow_init():
    load(lambda: None, worker_init_fn=slow_init)


@case("persistent workers, forkserver, a sleep in the second epoch", own=True, steps=160)
def loader_persistent():
    from torch.utils.data import DataLoader

    training = Training()
    loader = DataLoader(Numbers(int), num_workers=2, batch_size=None, persistent_workers=True, multiprocessing_context="forkserver")
    for epoch in range(2):
        for batch in loader:
            training.step(batch)
        if epoch == 0:
            time.sleep(WAIT)


def take_flock():
    outside(0, "flock", "lock", WAIT)
    wait_file("lock.held")
    with open("lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


@case("a loader worker waits for a file lock of another process", own=True)
def loader_flock():
    load(take_flock)


def take_named_semaphore():
    name = os.environ["THIRD_SEMAPHORE"].encode()
    outside(WAIT, "sem_post", name.decode())
    libc.sem_wait(ctypes.c_void_p(libc.sem_open(name, 0)))


@case("a loader worker waits for a named semaphore that another process posts", own=True)
def loader_semaphore():
    name, _ = named_semaphore()
    os.environ["THIRD_SEMAPHORE"] = name
    load(take_named_semaphore)
    libc.sem_unlink(name.encode())


def wait_mapped():
    outside(WAIT, "futex_file", "control.bin")
    futex_wait(map_file("control.bin"))


@case("a loader worker waits in a mapped file that another process maps later", own=True)
def loader_mapped():
    load(wait_mapped)


def ask_server():
    outside(0, "tcp_server", "port", WAIT)
    wait_file("port")
    with socket.create_connection(("127.0.0.1", int(Path("port").read_text()))) as client:
        client.recv(100)


@case("a loader worker waits for a silent server", own=True)
def loader_server():
    load(ask_server)


def stop_me():
    outside(0, "stop", os.getpid(), WAIT)
    time.sleep(5)


@case("a loader worker is stopped by another process and continued", own=True)
def loader_stopped():
    load(stop_me)


def lock_of_the_loader():
    THROTTLE.acquire()


THROTTLE = mp.Semaphore(0)


@case("a loader worker waits for a semaphore that a thread of the main process releases", own=True)
def loader_throttled():
    threading.Timer(WAIT + 20, THROTTLE.release).start()
    load(lock_of_the_loader)


@case("an iterable data set in the main process reads a FIFO that another process feeds", own=True)
def fifo_stream():
    training = Training()
    training.steps(BEFORE)
    os.mkfifo("stream")
    outside(WAIT, "write", "stream", "a\nb\n")
    for _ in open("stream"):
        training.step()
    training.steps(AFTER - 2)


@case("a prefetch thread in the style of a background generator", own=True)
def prefetch_thread():
    training = Training()
    batches = queue.Queue(4)

    def produce():
        for number in range(BEFORE + AFTER):
            if number == BEFORE:
                time.sleep(WAIT)
            batches.put(training.batch())

    threading.Thread(target=produce, daemon=True).start()
    for _ in range(BEFORE + AFTER):
        training.step(batches.get())


# 7. Ranks


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def rank(number, port, event):
    import torch.distributed as dist

    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", world_size=2, rank=number)
    training = Training()
    for step in range(BEFORE + AFTER):
        if step == BEFORE:
            event(number)
        training.step()
        for parameter in training.model.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= 2
    dist.destroy_process_group()


def ranks(event):
    import torch.multiprocessing as tmp

    tmp.spawn(rank, (free_port(), event), nprocs=2)


def sleep_on_one(number):
    time.sleep(WAIT if number else 0)


@case("two gloo ranks, one sleeps", own=True)
def gloo_slow_rank():
    ranks(sleep_on_one)


def validate_on_zero(number):
    import torch
    import torch.distributed as dist

    if number == 0:
        validate(WAIT)
    dist.barrier()
    assert torch.is_grad_enabled()


def validate(seconds):
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    end = time.monotonic() + seconds
    with torch.no_grad():
        while time.monotonic() < end:
            model(torch.randn(256, 256))
            time.sleep(0.01)


@case("dist.barrier; rank 0 validates", own=True)
def gloo_validation():
    ranks(validate_on_zero)


def fifo_on_one(number):
    if number:
        outside(WAIT, "write", "fifo")
        Path("fifo").read_text()


@case("two gloo ranks, one reads a FIFO that another process writes later", own=True)
def gloo_fifo():
    os.mkfifo("fifo")
    ranks(fifo_on_one)


def mapped_on_one(number):
    if number:
        wait_mapped()


@case("two gloo ranks, one waits in a mapped file that another process maps later", own=True)
def gloo_mapped():
    ranks(mapped_on_one)


def monitored(number):
    import datetime

    import torch.distributed as dist

    time.sleep(WAIT if number else 0)
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=300))


@case("monitored_barrier with a slow rank", own=True)
def gloo_monitored_barrier():
    ranks(monitored)


@case("the second rank is another process of the user, not of this run; it is late")
def gloo_rank_outside():
    import torch
    import torch.distributed as dist

    port = free_port()
    outside(0, "rank_one", port, 0, WAIT)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", world_size=2, rank=0)
    dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()


@case("init_process_group waits for a rank that another process starts later")
def gloo_init_late():
    import torch
    import torch.distributed as dist

    port = free_port()
    outside(0, "rank_one", port, WAIT, 0)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", world_size=2, rank=0)
    dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()


@case("TCPStore of another process; a key is set later")
def store_outside():
    import torch.distributed as dist

    outside(0, "store_server", "port", WAIT, "go")
    store = dist.TCPStore("127.0.0.1", int(wait_file("port")), is_master=False)
    store.wait(["go"])


@case("FileStore; another process sets the key later")
def file_store():
    import torch.distributed as dist

    store = dist.FileStore("store", 2)
    outside(WAIT, "file_store_set", "store", "go")
    store.wait(["go"])


# 8. Work that takes long


@case("validation without an optimizer step")
def validation():
    validate(WAIT * 1.5)


@case("long preparation of data before the first step", own=True, steps=20)
def long_preparation():
    end = time.monotonic() + WAIT * 1.5
    while time.monotonic() < end:
        zlib.compress(os.urandom(1_000_000))
        time.sleep(0.05)
    Training().steps(20)


def native_work(seconds):
    """One call after the other in C, without the GIL, like a compiler."""
    import torch

    matrix = torch.randn(1200, 1200)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        torch.matmul(matrix, matrix)


@case("the first step compiles for long: native work", own=True, steps=20)
def slow_first_step():
    training = Training()
    native_work(WAIT)
    training.steps(20)


@case("zlib in one long series of calls")
def compress():
    data = os.urandom(3_000_000)
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        zlib.compress(data, 9)


@case("one matmul that takes long")
def one_matmul():
    import torch

    matrix = torch.randn(1000, 1000)
    start = time.monotonic()
    torch.matmul(matrix, matrix)
    size = int(1000 * ((25 / (time.monotonic() - start)) ** (1 / 3)))
    matrix = torch.randn(min(size, 12000), min(size, 12000))
    torch.matmul(matrix, matrix)


@case("the GIL is held in C: a regular expression that goes through all ways")
def gil_regex():
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        re.match(r"(a+)+$", "a" * 24 + "b")


@case("the GIL is held in C while it sleeps (a driver that polls)")
def gil_sleep():
    ctypes.PyDLL(None).sleep(int(WAIT))


@case("very slow steps", own=True, steps=4)
def slow_steps():
    Training().steps(4, pause=WAIT)


@case("steps that become slower and slower", own=True, steps=60)
def slower_steps():
    training = Training()
    for number in range(60):
        training.step(pause=0.02 if number < 45 else 0.02 * 1.65 ** (number - 44))


@case("gradient accumulation: many backward passes, rarely a step", own=True, steps=6)
def accumulation():
    import torch

    training = Training()
    for _ in range(6):
        for _ in range(300):
            inputs, targets = training.batch()
            torch.nn.functional.mse_loss(training.model(inputs), targets).backward()
            time.sleep(0.03)
        training.optimizer.step()
        training.done(0.0)


@case("garbage: millions of objects in cycles are freed")
def garbage():
    import gc

    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        rings = [[] for _ in range(400_000)]
        for ring in rings:
            ring.append(ring)
        del rings, ring
        gc.collect()
        time.sleep(0.5)


@case("time.sleep between retries")
def sleep_backoff():
    for seconds in (1, 2, 4, 8, WAIT - 15):
        time.sleep(seconds)


@case("waits for free space with a loop that asks every 10 s")
def disk_full_wait():
    outside(WAIT, "touch", "freed")
    while not os.path.exists("freed"):
        os.statvfs(".")
        time.sleep(10)


@case("work of 40 s in atexit", own=True)
def atexit_sleep():
    atexit.register(time.sleep, WAIT + 5)
    Training().steps(BEFORE + AFTER)


@case("a thread that is not a daemon uploads at exit, in a FIFO that another process reads later", own=True)
def exit_upload():
    os.mkfifo("upload")
    threading.Thread(target=lambda: Path("upload").read_text()).start()
    Training().steps(BEFORE + AFTER)
    outside(WAIT, "write", "upload")


@case("a thread at exit waits for shared memory that another process opens later", own=True)
def exit_shared_memory():
    Training().steps(BEFORE + AFTER)
    threading.Thread(target=wait_mapped).start()


@case("a child of multiprocessing at exit that sleeps", own=True)
def exit_child():
    Training().steps(BEFORE + AFTER)
    mp.Process(target=nap).start()


@case("atexit waits for an Event that the handler of SIGUSR1 sets", own=True)
def exit_signal():
    event = event_by_signal(signal.SIGUSR1, wait=False)
    Training().steps(BEFORE + AFTER)
    outside(WAIT + 5, "kill", PID, int(signal.SIGUSR1))
    atexit.register(event.wait)


@case("before the first step: named shared memory, for longer than 100 s", own=True, steps=20)
def start_shared_memory():
    outside(LONG, "futex_file", "control.bin")
    import torch

    assert torch
    futex_wait(map_file("control.bin"))
    Training().steps(20)


@case("before the first step: an Event that SIGUSR1 sets, for longer than 100 s", own=True, steps=20)
def start_signal():
    event = event_by_signal(signal.SIGUSR1, wait=False)
    outside(LONG, "kill", PID, int(signal.SIGUSR1))
    event.wait()
    Training().steps(20)


@case("before the first step: a lock in memory, released by a thread after 130 s", own=True, steps=20)
def start_timer():
    event = threading.Event()
    threading.Timer(LONG, event.set).start()
    event.wait()
    Training().steps(20)


@case("a checkpoint: torch.save into a FIFO that a slow uploader, another process, reads")
def checkpoint_to_fifo():
    import torch

    outside(0, "unix_server", "uploader", WAIT)
    wait_file("uploader.ready")
    torch.save({"weights": torch.randn(1000)}, "model.pt")
    client = socket.socket(socket.AF_UNIX)
    client.connect("uploader")
    client.sendall(Path("model.pt").read_bytes())
    assert client.recv(2) == b"go"


if __name__ == "__main__":
    main()
