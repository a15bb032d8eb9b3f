"""Counts the GPUs that did work during a run, if a job asks for it. Unconfirmed: no GPU here."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

from rocsteady.hangs.cgroups import ROOT
from rocsteady.hangs.gpu_counters import read_gpu_counters

EVERY = timedelta(seconds=20)
WITHIN = timedelta(seconds=5)  # for a GPU to answer; one that does not is not waited for
BUSY = 10  # percent; a desktop that draws stays below it


class BusyGpus:
    """Asks every GPU now and then, in a thread of its own."""

    def __init__(self, *, every: timedelta = EVERY, root: Path = ROOT) -> None:
        self._every, self._root = every, root
        self._busy: set[str] = set()
        self._answered = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rocsteady-gpus", daemon=True)
        self._thread.start()

    @property
    def count(self) -> int | None:
        """How many were seen at work; None if no GPU ever answered."""
        return len(self._busy) if self._answered else None

    def close(self) -> None:
        """Ask no more."""
        self._ended.set()
        self._thread.join(0.5)  # one that waits for a GPU is left: it is a daemon

    def _watch(self) -> None:
        while not self._ended.is_set():
            for gpu in read_gpu_counters(within=WITHIN, root=self._root):
                if gpu.asleep:
                    self._answered = True  # and it is surely not at work
                if gpu.reading is not None and gpu.reading.busy_percent is not None:
                    self._answered = True
                    if gpu.reading.busy_percent >= BUSY:
                        self._busy.add(gpu.pci_address)
            self._ended.wait(self._every.total_seconds())
