"""How long processes were ready to run and had no processor: on a busy machine slow is not stuck.

A thread that waits for a lock, a pipe or a GPU is not ready, and so waits for no processor.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from rocsteady.system import procfs
from rocsteady.system.procfs import PROC

_NANOSECONDS = 1e9
_STEAL = 8  # field of the first line of /proc/stat: what the host of a virtual machine withheld
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_UNREADABLE = (OSError, ValueError, IndexError)


class ProcessorWait:
    """Counts from the moment it is made."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._before, self._withheld = _delays(pids), _withheld()

    def seconds(self, pids: Sequence[int]) -> float:
        """Return what all threads of these waited since, and what the host withheld, together."""
        waited = sum(
            max(0.0, delay - self._before.get(thread, 0.0))  # one that is ending tells nothing
            for thread, delay in _delays(pids).items()
        )
        return waited + _withheld() - self._withheld


def _delays(pids: Sequence[int]) -> dict[tuple[int, int], float]:
    """Return the seconds in which each thread was ready and did not run."""
    return {(pid, tid): _delay(pid, tid) for pid in pids for tid in _threads(pid)}


def _threads(pid: int) -> list[int]:
    try:
        return procfs.numbers(f"{PROC}/{pid}/task")
    except OSError:  # it has ended, or there is no /proc
        return []


def _delay(pid: int, tid: int) -> float:
    try:
        told = procfs.text(f"{PROC}/{pid}/task/{tid}/schedstat").split()
        return int(told[1]) / _NANOSECONDS
    except _UNREADABLE:
        return 0.0


def _withheld() -> float:
    try:
        return int(procfs.text(f"{PROC}/stat").split()[_STEAL]) / _TICKS
    except _UNREADABLE:
        return 0.0
