"""Second signs that a GPU is stuck, for a process that has waited for it too long.

A wait for the GPU looks the same whether a kernel runs for minutes or never ends. The kernel log
may say more, and so may counters: a GPU that is idle while a process waits for it will not answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from rocsteady.hangs.gpu_counters import read_gpu_counters
from rocsteady.hangs.kernel_log import KMSG, concerning, read_kernel_log
from rocsteady.hangs.members import KFD, ROOT, Members

IDLE_READINGS = 3  # in a row
IDLE_PERCENT = 1
MOST_WORDS = 120  # characters of a line of the kernel's that are told
STUCK = re.compile(
    r"ring \S+ timeout|gpu reset|gpu hang|page fault|\bMES\b.*(?:fail|timeout|respond|hang)"
    r"|queue (?:preemption|eviction) (?:failed|timed? ?out)|hang detected|wedged",
    re.IGNORECASE,
)


class GpuSigns:
    """Collects signs over the snapshots of one attempt."""

    def __init__(self, since: float, root: Path = ROOT, kmsg: Path = KMSG) -> None:
        self._since, self._root, self._kmsg = since, root, kmsg
        self._copied: int | None = None  # by SDMA, at the last reading
        self._idle = 0  # readings in a row

    def read(self, pids: Sequence[int], members: Members, within: timedelta) -> tuple[str, ...]:
        """Return what speaks for a GPU of these processes that is stuck, as clauses."""
        if not members.gpus:
            return ()
        log = read_kernel_log(self._since, within=within / 2, kmsg=self._kmsg)
        lines = [line for line in concerning(log.lines, members) if STUCK.search(line)]
        said = [f"the kernel says: {line.partition('] ')[2][:MOST_WORDS]}" for line in lines[:1]]
        self._idle = self._idle + 1 if self._is_idle(pids, members, within / 2) else 0
        if self._idle >= IDLE_READINGS:
            said.append("the GPU is idle while the process waits for it")
        return tuple(said)

    def _is_idle(self, pids: Sequence[int], members: Members, within: timedelta) -> bool:
        """Tell whether all counters are there and say that nothing runs; what is missing is no."""
        copied, before = self._sdma(pids), self._copied
        self._copied = copied
        occupied = self._numbers(pids, "stats_*/cu_occupancy")
        if copied is None or copied != before or not occupied or any(occupied):
            return False
        counters = read_gpu_counters(within=within, root=self._root)
        busy = [
            gpu.reading.busy_percent if gpu.reading else None
            for gpu in counters
            if gpu.pci_address.rpartition(".")[0] in members.gpus
        ]
        return bool(busy) and all(each is not None and each <= IDLE_PERCENT for each in busy)

    def _sdma(self, pids: Sequence[int]) -> int | None:
        found = self._numbers(pids, "sdma_*")
        return sum(found) if found else None

    def _numbers(self, pids: Sequence[int], pattern: str) -> list[int]:
        folders = [self._root / KFD / "proc" / str(pid) for pid in pids]
        try:
            return [
                int(path.read_text()) for folder in folders for path in sorted(folder.glob(pattern))
            ]
        except (OSError, ValueError):
            return []
