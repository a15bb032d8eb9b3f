"""Stacks that a Python process writes of itself, on a signal: the last resort, where tracing fails.

Only for a process that is known to be hung, because a signal can end the system call that it is
stuck in. It is sent only where ``inside/`` left a file for the stacks and the kernel says that the
signal is handled; faulthandler needs neither the GIL nor the right to trace.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from rocsteady_train.inside import wire
from rocsteady_train.untrusted_file import open_regular, read_exactly

from rocsteady.system import procfs

LIMIT = 1024 * 1024  # bytes of one process
PAUSE = 0.05  # seconds between snapshots; a file that stays as it is for so long is whole


def ask_for_stacks(pids: Sequence[int], pages: Path, *, within: timedelta) -> str:
    """Return what these processes wrote of themselves, innermost frame first; "" if nothing."""
    deadline = time.monotonic() + within.total_seconds()
    files = {pid: pages / f"{pid}{wire.STACKS_SUFFIX}" for pid in pids}
    before = {pid: _size(path) for pid, path in files.items() if path.is_file()}
    asked = {pid: size for pid, size in before.items() if _ask(pid)}
    written = {pid: _written(files[pid], size, deadline) for pid, size in asked.items()}
    return "\n".join(f"process {pid}\n{text}" for pid, text in written.items() if text)


def _written(path: Path, start: int, deadline: float) -> str:
    seen = start
    while time.monotonic() < deadline:
        time.sleep(PAUSE)
        now = _size(path)
        if now == seen > start:
            break
        seen = now
    with contextlib.suppress(OSError), open_regular(path, follow=False) as stream:
        stream.seek(start)
        return read_exactly(stream, LIMIT).decode("utf-8", "replace")
    return ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _ask(pid: int) -> bool:
    """Send the signal, if it is handled: one that is not would be lost, or do harm."""
    number = signal.SIGURG
    with contextlib.suppress(OSError, ValueError):
        handled = int(procfs.fields(f"{procfs.PROC}/{pid}/status").get("SigCgt", "0"), 16)
        if handled >> (number - 1) & 1:
            os.kill(pid, number)
            return True
    return False
