"""What another process of the same user does later: `outside.py ACTION ...`, see third_common.py."""

import array
import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from third_common import (
    address,
    check,
    futex,
    futex_set,
    libc,
    map_file,
    mutex_lock,
    mutex_unlock,
    say,
    word,
)


def futex_file(path):
    futex_set(map_file(path))


def futex_sysv(number):
    futex_set(libc.shmat(int(number), None, 0))


def futex_proc_fd(pid, fd, seconds=0):
    mine = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)
    say("open")
    time.sleep(float(seconds))
    futex_set(map_file(mine))


def open_and_write(path, seconds):
    fd = os.open(path, os.O_WRONLY)
    say("open")
    time.sleep(float(seconds))
    os.write(fd, b"12345678")


def keep_in_transit(path, seconds):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    say(path + ".ready")
    _, found, _, _ = server.accept()[0].recvmsg(1, socket.CMSG_SPACE(4))
    left, right = socket.socketpair()
    left.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, found[0][2])])
    os.close(array.array("i", found[0][2])[0])
    say("kept")
    time.sleep(float(seconds))
    _, found, _, _ = right.recvmsg(1, socket.CMSG_SPACE(4))
    futex_set(map_file(array.array("i", found[0][2])[0]))


def append(path, text):
    with open(path, "a") as file:
        file.write(text)


def throttle(pid, seconds):
    folder = Path(f"/sys/fs/cgroup/cpu/third{pid}")
    folder.mkdir()
    (folder / "cpu.cfs_quota_us").write_text("1000")
    (folder / "cgroup.procs").write_text(pid)
    time.sleep(float(seconds))
    (folder / "cpu.cfs_quota_us").write_text("-1")
    Path("/sys/fs/cgroup/cpu/cgroup.procs").write_text(pid)
    time.sleep(0.5)
    folder.rmdir()


def hold_mutex(path, seconds, how="unlock"):
    memory = map_file(path)
    mutex_lock(memory)
    say(path + ".held")
    time.sleep(float(seconds))
    if how == "unlock":
        mutex_unlock(memory)
    os._exit(0)  # "die": with the mutex held


def hold_pi(path, seconds):
    memory = map_file(path)
    word(memory).value = libc.syscall(186)
    say(path + ".held")
    time.sleep(float(seconds))
    futex(address(memory), 7, 0)


def sem_post(name):
    semaphore = libc.sem_open(name.encode(), 0)
    libc.sem_post(ctypes.c_void_p(semaphore))


def sem_open_and_post(name, seconds):
    semaphore = libc.sem_open(name.encode(), 0)
    say(name.strip("/") + ".open")
    time.sleep(float(seconds))
    libc.sem_post(ctypes.c_void_p(semaphore))


def take_fd(path, before_accept, before_use):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path + ".new")
    server.listen(5)
    os.rename(path + ".new", path)
    say(path + ".ready")
    time.sleep(float(before_accept))
    connection = server.accept()[0]
    _, found, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(4))
    fd = array.array("i", found[0][2])[0]
    time.sleep(float(before_use))
    if os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd"):
        futex_set(map_file(fd))
    else:
        os.write(fd, b"12345678")


def getfd_and_write(pid, fd):
    pidfd = os.pidfd_open(int(pid))
    mine = check(libc.syscall(438, pidfd, int(fd), 0))
    os.write(mine, b"12345678")


def semop(key):
    number = check(libc.semget(int(key), 1, 0))
    check(libc.semop(number, struct.pack("Hhh", 0, 1, 0), 1))


def msgsnd(key):
    check(libc.msgsnd(check(libc.msgget(int(key), 0)), struct.pack("l8s", 1, b"go"), 8, 0))


def mq_send(name):
    check(libc.mq_send(check(libc.mq_open(name.encode(), os.O_WRONLY)), b"go", 2, 0))


def write(path, text="go\n"):
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, text.encode())
    time.sleep(0.3)


def connect(path, kind="STREAM"):
    client = socket.socket(socket.AF_UNIX, getattr(socket, "SOCK_" + kind))
    client.connect("\0" + path[1:] if path.startswith("@") else path)
    client.send(b"go")
    time.sleep(0.3)


def tcp_connect(port):
    with socket.create_connection(("127.0.0.1", int(port))) as client:
        client.sendall(b"go")


def udp_send(port):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"go", ("127.0.0.1", int(port)))


def tcp_server(note, seconds, answer="HTTP/1.0 200 OK\r\n\r\ngo"):
    server = socket.create_server(("127.0.0.1", 0))
    say(note, server.getsockname()[1])
    connection = server.accept()[0]
    time.sleep(float(seconds))
    connection.sendall(answer.encode())
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):  # what is left unread would reset the connection
        connection.recv(10_000)
    connection.close()


def unix_server(path, seconds):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    say(path + ".ready")
    connection = server.accept()[0]
    time.sleep(float(seconds))
    connection.sendall(b"go")
    time.sleep(0.3)


def kill(pid, number):
    os.kill(int(pid), int(number))


def stop(pid, seconds):
    os.kill(int(pid), signal.SIGSTOP)
    time.sleep(float(seconds))
    os.kill(int(pid), signal.SIGCONT)


def trace(pid, seconds):
    check(libc.ptrace(16, int(pid), None, None))
    os.waitpid(int(pid), 0x40000000)
    time.sleep(float(seconds))
    check(libc.ptrace(17, int(pid), None, None))


def freeze(pid, seconds):
    folder = Path(f"/sys/fs/cgroup/freezer/third{pid}")
    folder.mkdir()
    try:
        (folder / "cgroup.procs").write_text(pid)
        (folder / "freezer.state").write_text("FROZEN")
        time.sleep(float(seconds))
    finally:
        (folder / "freezer.state").write_text("THAWED")
        Path("/sys/fs/cgroup/freezer/cgroup.procs").write_text(pid)
        time.sleep(0.5)
        folder.rmdir()


def flock(path, seconds):
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        say(path + ".held")
        time.sleep(float(seconds))


def lockf(path, seconds):
    with open(path, "a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        say(path + ".held")
        time.sleep(float(seconds))


def ofd_lock(path, seconds):
    with open(path, "a") as file:
        fcntl.fcntl(file, 37, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))
        say(path + ".held")
        time.sleep(float(seconds))


def lease(path, seconds):
    signal.signal(signal.SIGIO, lambda *_: None)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    say(path + ".held")
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        time.sleep(1)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def touch(path):
    Path(path).write_text("go")


def reserve(note, seconds):
    say(note, os.getpid())
    time.sleep(float(seconds))


def terminal(note, seconds):
    master, slave = os.openpty()
    say(note, os.ttyname(slave))
    time.sleep(float(seconds))
    os.write(master, b"yes\n")
    time.sleep(3)


def mount(folder):
    subprocess.run(["mount", "-t", "tmpfs", "third", folder], check=True)


def manager(path, seconds):
    import queue
    import threading
    from multiprocessing.managers import BaseManager

    tasks = queue.Queue()

    class Tasks(BaseManager):
        pass

    Tasks.register("tasks", callable=lambda: tasks)
    server = Tasks(address=path, authkey=b"third").get_server()
    threading.Timer(float(seconds), tasks.put, ["go"]).start()
    threading.Timer(float(seconds) + 5, os._exit, [0]).start()
    say(path + ".ready")
    server.serve_forever()


def store_server(note, seconds, key):
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    say(note, store.port)
    time.sleep(float(seconds))
    store.set(key, "go")
    time.sleep(10)


def file_store_set(path, key):
    import torch.distributed as dist

    dist.FileStore(path, 2).set(key, "go")


def rank_one(port, before_init, before_reduce):
    import torch
    import torch.distributed as dist

    time.sleep(float(before_init))
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", world_size=2, rank=1)
    time.sleep(float(before_reduce))
    dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()


def uffd_copy(path, seconds):
    """Fills, some time later, the page that a process which handed us its userfaultfd waits for."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    say(path + ".ready")
    connection = server.accept()[0]
    data, found, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(4))
    fd = array.array("i", found[0][2])[0]
    time.sleep(float(seconds))
    page = ctypes.create_string_buffer(b"\1" * 4096, 8192)
    source = (ctypes.addressof(page) + 4095) & ~4095
    ctypes.memset(source, 1, 4096)
    fcntl.ioctl(fd, 0xC028AA03, struct.pack("QQQQq", struct.unpack("Q", data)[0], source, 4096, 0, 0))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
