"""Waits until a GPU can be used again: old processes have left it, the kernel is quiet about it.

A machine was seen to go down 40 s after a restart on a GPU that had faulted. Unconfirmed: there is
no AMD GPU here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

KFD = Path("/dev/kfd")
KFD_PROCESSES = Path("/sys/class/kfd/kfd/proc")
POLL_EVERY = 0.1  # seconds


def wait_until_free(
    pids: tuple[int, ...], within: timedelta, listed: Path = KFD_PROCESSES
) -> tuple[int, ...]:
    """Return the processes that KFD still lists at the deadline; none is good."""
    deadline = time.monotonic() + within.total_seconds()
    while True:
        left = tuple(pid for pid in pids if (listed / str(pid)).exists())
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(POLL_EVERY)


def wait_until_quiet(
    trouble: Callable[[float], str],
    *,
    rest: timedelta,
    at_most: timedelta,
    stop: Callable[[], bool],
) -> str:
    """Wait until there was no trouble for a while; return what there still is at the deadline.

    ``trouble`` says what the kernel said since a moment of the monotonic clock; "": nothing.
    """
    began = since = time.monotonic()
    while not stop():
        told, now = trouble(since), time.monotonic()
        if not told and now - since >= rest.total_seconds():
            return ""
        if told:
            since = now
            if now - began >= at_most.total_seconds():
                return told
        time.sleep(min(1.0, rest.total_seconds() / 4))
    return ""
