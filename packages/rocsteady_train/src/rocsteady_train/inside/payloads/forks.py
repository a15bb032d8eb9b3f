"""The process that forks payloads.

torch is imported once here, and nothing else is done: no device is touched, no thread of ours is
started, no lock is held. Each fork gets a session of its own and a file for what it prints. What to
do is told over a socket, a line of JSON a request; the answer is the number of the child, and when
the child has ended its status.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import sys
import traceback
from typing import Any

from .experiment import OUTPUT_FILE, run_one

assert sys.platform != "win32"  # noqa: S101 - which does not fork, and starts each payload afresh

DEVICES = ("/dev/kfd", "/dev/dri", "/dev/dxg", "/dev/nvidia")


class Server:
    def __init__(self, address: str) -> None:
        import torch  # noqa: F401, PLC0415 - this is what the forks shall not have to do

        self._threads = threads()
        with contextlib.suppress(Exception):  # the first backward imports it, for half a second
            __import__("torch.fx.experimental.symbolic_shapes")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(address)
        self._children: dict[int, int] = {}  # number of a process: descriptor to wait on
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._tell({"ready": os.getpid()})

    def serve(self) -> None:
        """Fork until there is nobody any more who asks."""
        rest = b""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._socket:
                    self._ended(key.data)
                    continue
                received = self._socket.recv(65536)
                if not received:
                    return
                *lines, rest = (rest + received).split(b"\n")
                for line in lines:
                    self._fork(json.loads(line))

    def _fork(self, request: dict[str, Any]) -> None:
        unfit = self._unfit()
        if unfit:
            self._tell({"unfit": unfit})
            return
        pid = os.fork()
        if pid == 0:
            self._be_child(request)
        descriptor = os.pidfd_open(pid)
        self._children[pid] = descriptor
        self._selector.register(descriptor, selectors.EVENT_READ, pid)
        self._tell({"pid": pid})

    def _be_child(self, request: dict[str, Any]) -> None:
        code = 1
        try:
            os.setsid()
            self._socket.close()
            self._selector.close()
            path = os.path.join(request["folder"], OUTPUT_FILE)
            output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            run_one(request)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _ended(self, pid: int) -> None:
        descriptor = self._children.pop(pid)
        self._selector.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        self._tell({"ended": pid, "status": status})

    def _unfit(self) -> str:
        """Return why a fork of this process cannot be trusted; "" if it can."""
        more = threads() - self._threads
        if more > 0:
            return f"{more} threads more than after importing torch"
        held = devices()
        return f"{held[0]} is open" if held else ""

    def _tell(self, words: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(words).encode() + b"\n")


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def devices() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith(DEVICES):
                found.append(target)
    return found
