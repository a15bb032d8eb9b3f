"""What is measured while a run goes: its loss, memory and GPUs.

A GPU is asked by a thread of its own, through a child that may hang: the watching never waits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

from rocsteady.hangs.looking.cgroups import ROOT, read
from rocsteady.hangs.looking.gpu_counters import AMD, CARDS, GpuCounters, read_gpu_counters

LOSS, HOST_MEMORY = "loss", "host memory"
GPU_MEMORY, GPU_BUSY, GPU_POWER = "memory", "busy", "power"
GPU_TEMPERATURE, GPU_CLOCK = "temperature", "clock"
HOTTEST = ("junction", "edge")  # the sensors that a GPU's temperature is taken from
MEMORY_EVERY, GPUS_EVERY = 10.0, 20.0  # seconds
AT_FIRST, FIRST_EVERY = 60.0, 2.0  # seconds: memory grows most while a script starts
GPU_WITHIN = timedelta(seconds=5)


class Gauges:
    def __init__(
        self,
        take_loss: Callable[[], float | None],
        every: timedelta | None = None,
        root: Path = ROOT,
    ) -> None:
        self._every = every.total_seconds() if every else None
        self._take_loss = take_loss
        self._root = root
        self._began: float | None = None
        self._memory_at = self._gpus_at = float("-inf")
        self._gpus: dict[str, float] = {}  # that were read since they were last asked for
        self._asking: threading.Thread | None = None
        vendors = [read(card / "device/vendor").strip() for card in (root / CARDS).glob("card*")]
        self._has_gpus = AMD in vendors

    def read(self, now: float, pids: Callable[[], Iterable[int]]) -> dict[str, float]:
        measured, self._gpus = self._gpus, {}
        loss = self._take_loss()
        if loss is not None:
            measured[LOSS] = loss
        self._began = now if self._began is None else self._began
        every = FIRST_EVERY if now - self._began < AT_FIRST else MEMORY_EVERY
        if now - self._memory_at >= (self._every or every):
            self._memory_at = now
            if used := host_memory(pids(), self._root):
                measured[HOST_MEMORY] = used
        due = self._has_gpus and now - self._gpus_at >= (self._every or GPUS_EVERY)
        if due and (self._asking is None or not self._asking.is_alive()):
            self._gpus_at = now
            self._asking = threading.Thread(target=self._ask_gpus, daemon=True)
            self._asking.start()
        return measured

    def _ask_gpus(self) -> None:
        self._gpus = gpu_readings(read_gpu_counters(within=GPU_WITHIN, root=self._root))


def host_memory(pids: Iterable[int], root: Path = ROOT) -> float:
    """Return the bytes that processes hold: what each has alone, and what they share once."""
    page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
    own, shared = 0, 0
    for pid in pids:
        words = read(root / f"proc/{pid}/statm").split()
        if len(words) > 2 and words[1].isdecimal() and words[2].isdecimal():  # noqa: PLR2004
            own += int(words[1]) - int(words[2])
            shared = max(shared, int(words[2]))
    return float((own + shared) * page)


def gpu_readings(counters: Iterable[GpuCounters]) -> dict[str, float]:
    """Name each number that a GPU gave: GPU 0 memory, in bytes, percent, W, degrees C or Hz."""
    measured: dict[str, float] = {}
    for number, gpu in enumerate(counters):
        reading = gpu.reading
        if gpu.asleep:
            measured[f"GPU {number} {GPU_BUSY}"] = 0.0
        if reading is None:
            continue
        sensors = reading.temperatures_celsius
        hot = next((sensors[name] for name in HOTTEST if name in sensors), None)
        values = {
            GPU_MEMORY: reading.vram_used_bytes,
            GPU_BUSY: reading.busy_percent,
            GPU_POWER: reading.power_watts,
            GPU_TEMPERATURE: hot,
            GPU_CLOCK: reading.clock_hz,
        }
        measured |= {
            f"GPU {number} {name}": float(value)
            for name, value in values.items()
            if value is not None
        }
    return measured
