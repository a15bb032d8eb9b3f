"""How busy the GPUs are during a trial, and how much of their memory is used.

Asked by a thread of its own, through children that may hang: a trial never waits for an answer.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path
from statistics import fmean

from rocsteady.evidence.cgroups import ROOT
from rocsteady.evidence.gpu_counters import read_gpu_counters
from rocsteady.model import Value

WITHIN = timedelta(seconds=5)
LEAST = 3  # answers; fewer say little of a mean


class Use(Value, frozen=True, kw_only=True):
    """What was seen of the GPU that was used most."""

    busy: float  # of 100, the mean
    memory: int | None  # bytes, at most


class GpuUse:
    """Collects what the GPUs say of themselves."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._asking: threading.Thread | None = None
        self._seen: list[tuple[float, str, float, int | None]] = []  # when, which, busy, memory

    def look(self) -> None:
        """Ask, unless an answer is still awaited."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._ask, daemon=True)
            self._asking.start()

    def since(self, moment: float) -> Use | None:
        """Return what was seen since; None if too little was."""
        by_gpu: dict[str, list[tuple[float, int | None]]] = {}
        for at, card, busy, memory in tuple(self._seen):
            if at >= moment:
                by_gpu.setdefault(card, []).append((busy, memory))
        uses = [
            Use(
                busy=fmean(busy for busy, _ in seen),
                memory=max((memory for _, memory in seen if memory is not None), default=None),
            )
            for seen in by_gpu.values()
            if len(seen) >= LEAST
        ]
        return max(uses, key=lambda use: use.busy, default=None)

    def _ask(self) -> None:
        for gpu in read_gpu_counters(within=WITHIN, root=self._root):
            told = gpu.reading
            if told is not None and told.busy_percent is not None:
                seen = time.time(), gpu.card, float(told.busy_percent), told.vram_used_bytes
                self._seen.append(seen)
