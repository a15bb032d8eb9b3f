"""The watcher beside an agent of torchrun, as the agent sees it: a process and a socket to it.

The agent never waits long for a watcher, and goes on without one that is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COMMAND = "ROCSTEADY_COMMAND"  # a path, or a command quoted as for a shell
SEND_WITHIN = 3.0  # seconds


def rocsteady_command() -> list[str]:
    """Return how to start rocsteady, which may be installed in another environment than torch."""
    if configured := os.environ.get(COMMAND, "").strip():
        is_path = Path(configured).is_file()  # which may contain spaces
        return [configured] if is_path else shlex.split(configured)
    if found := shutil.which("rocsteady"):
        return [found]
    return [sys.executable, "-m", "rocsteady"]


class Watcher:
    """The process beside the agent, as the agent sees it."""

    def __init__(self, options: tuple[str, ...]) -> None:
        ours, theirs = socket.socketpair()
        arguments = ["run", *options, "--ranks", str(theirs.fileno())]
        launched = getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv]  # Python 3.10
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - as the user installed it
                [*rocsteady_command(), *arguments, "--", *launched],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # ^C is for torchrun
            )
        ours.settimeout(0)
        self._socket = ours
        self._heard = b""
        self.is_gone = False
        self.wants_restart = False
        self.end: int | None = None  # the code that the job is to end with

    def tell(self, **message: object) -> None:
        """Send one message, and never wait long for its reader."""
        self._socket.settimeout(SEND_WITHIN)
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.is_gone = True
        self._socket.settimeout(0)
        if self.is_gone:
            self.listen()  # its last words may be there

    def listen(self) -> list[dict[str, Any]]:
        """Return what was said since the last time."""
        try:
            while received := self._socket.recv(65536):
                self._heard += received
            self.is_gone = True
        except BlockingIOError:
            pass
        except OSError:
            self.is_gone = True
        *lines, self._heard = self._heard.split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except ValueError:
            self.is_gone, messages = True, []
        self.wants_restart |= any("restart" in message for message in messages)
        self.end = next((int(each["end"]) for each in messages if "end" in each), self.end)
        return messages

    def answer(self, within: float, *kinds: str) -> dict[str, Any] | None:
        """Wait for an answer, or for the code to end with; None if there is neither."""
        deadline = time.monotonic() + within
        while self.end is None and not self.is_gone and (left := deadline - time.monotonic()) > 0:
            select.select([self._socket], [], [], left)
            for message in self.listen():
                if any(kind in message for kind in kinds):
                    return message
        return None if self.end is None else {"end": self.end}

    def reap(self) -> None:
        """Leave nothing of one that has ended."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
