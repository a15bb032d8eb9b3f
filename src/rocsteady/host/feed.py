"""A program that is given a line now and then, and ends when there are no more.

A thread writes, so that nobody waits for a reader that is slow or stuck. If we are killed, the
program sees the end of its input like any other end.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from rocsteady.host.background import start_session
from rocsteady.host.bounded_call import has_ended, kill_session

MOST_WAITING = 100  # lines; more are dropped
POLL_EVERY = 0.02  # seconds
AFTER_KILL = timedelta(milliseconds=200)


class Feed:
    """Starts a program, and feeds it."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path, output: Path
    ) -> None:
        self._child = start_session(command, environment, folder, output, subprocess.PIPE)
        self._lines: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._write, daemon=True, name="rocsteady-feed")
        self._thread.start()

    def send(self, line: bytes) -> None:
        """Give a line; it is dropped if too many are waiting."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(line + b"\n")

    @property
    def has_ended(self) -> bool:
        """Tell whether the program takes no more."""
        return has_ended(self._child)

    def end(self) -> None:
        """Give no more."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)

    def close(self, within: timedelta) -> int | None:
        """Let the program end by itself; return its exit code, if it did.

        What it leaves behind is ended with it, while its number is still its own.
        """
        self.end()
        deadline = time.monotonic() + within.total_seconds()
        while not (ended := self.has_ended) and time.monotonic() < deadline:
            time.sleep(POLL_EVERY)
        kill_session(self._child.pid)
        try:
            code = self._child.wait(AFTER_KILL.total_seconds())
        except subprocess.TimeoutExpired:
            return None
        return code if ended else None

    def _write(self) -> None:
        stream = self._child.stdin
        assert stream is not None
        with contextlib.suppress(OSError, ValueError), stream:
            while (line := self._lines.get()) is not None:
                stream.write(line)
                stream.flush()
