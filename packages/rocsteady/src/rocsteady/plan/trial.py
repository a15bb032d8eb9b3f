"""A trial: the real script for a bounded time, over the user's folder and never in it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from statistics import fmean

from msgspec.structs import replace

from rocsteady.hangs.cgroups import ROOT
from rocsteady.hangs.gpu_counters import read_gpu_counters
from rocsteady.hangs.heartbeat_pages import Size, read_pages, read_size
from rocsteady.hangs.memory import read_memory
from rocsteady.hangs.process_tree import processes
from rocsteady.hangs.stacks import take_stacks
from rocsteady.hangs.values import Heartbeat
from rocsteady.model import Value
from rocsteady.plan.pace import StepTime, measure
from rocsteady.plan.sandbox.scratch import Scratch
from rocsteady.plan.script_traces import ScriptTraces, look_at
from rocsteady.plan.values import Pace
from rocsteady.run.attempt_end import AttemptEnd
from rocsteady.run.job.resume import Launch
from rocsteady.run.observer import ObservedRun, Observer

SHARE = 0.1  # of the time that the job still takes, for trials
MEMORY_EVERY, STACKS_EVERY = 1.0, 0.25  # seconds
STACKS_FOR = 5.0  # seconds, after the pace is measured
STACKS_WITHIN = timedelta(seconds=2)
COUNTERS_WITHIN = timedelta(seconds=5)
LEAST_ANSWERS = 3  # answers; fewer say little of a mean


class Bounds(Value, frozen=True, kw_only=True):
    """How long a trial may take."""

    wanted: float = 30.0  # seconds of steps, after the warm-up
    within: float = 180.0  # seconds in all; then it ends with what is known
    in_proportion: bool = False  # to the job: a short one has a short trial
    left: int | None = None  # steps of the job; None: as the script tells

    def enough(self, pace: Pace, reported: int | None) -> float:
        """Return the seconds of steps after which a trial ends; ``reported``: steps of the job."""
        left = self.left or reported
        if not self.in_proportion or not left:
            return self.wanted
        return min(self.wanted, SHARE * left / pace.rate)


class Measurement(Observer):
    """Measures the pace of a run, and ends it when that is known."""

    def __init__(self, bounds: Bounds, scratch: Scratch, *, sample_stacks: bool) -> None:
        """Say how long it may take, and whether to see then where the time goes."""
        self._bounds, self._scratch, self._sample_stacks = bounds, scratch, sample_stacks
        self.paces: dict[int, Pace] = {}  # by attempt
        self.ends: dict[int, AttemptEnd] = {}
        self.watched: dict[int, ScriptTraces] = {}
        self.sizes: dict[int, Size] = {}
        self.stacks: list[tuple[str, ...]] = []  # frames of the training thread, innermost first
        self._begun: dict[int, float] = {}
        self._phases: list[tuple[float, dict[str, float]]] = []
        self._most_memory, self._gpus = 0, GpuUse()
        self._known_since: float | None = None
        self._since, self._looked = time.monotonic(), 0.0

    def launching(self, run: ObservedRun, launch: Launch) -> Launch:
        """Begin anew with each attempt."""
        self._begun[run.attempt], self._phases, self._most_memory = time.time(), [], 0
        self._known_since = None
        return launch

    def ended(self, run: ObservedRun, end: AttemptEnd) -> None:
        """Look at what an attempt has left."""
        self.ends[run.attempt] = end
        self.watched[run.attempt] = look_at(
            end,
            pages=run.pages,
            log=run.folder / f"attempt-{run.attempt}.log",
            scratch=self._scratch,
            step_times=run.step_times,
            since=self._begun[run.attempt],
        )

    def ticked(self, run: ObservedRun) -> None:
        """Look at the attempt that is under way until its pace is known."""
        number = run.attempt
        if run.is_over or number not in self._begun:
            return
        beats = read_pages(run.pages) if run.pages else ()
        self._phases.append((time.time(), _by_phase(beats)))
        if time.monotonic() - self._looked >= MEMORY_EVERY:
            self._looked = time.monotonic()
            self._most_memory = max(self._most_memory, _held(run))
            self._gpus.look()
        self._take_in(run)
        if self._is_known(number, beats) or time.monotonic() - self._since > self._bounds.within:
            run.end()

    def _take_in(self, run: ObservedRun) -> None:
        if self._known_since is not None:  # stacks are looked at, which costs it some time
            return
        number = run.attempt
        size = read_size(run.pages) if run.pages else None
        if size is not None:
            self.sizes[number] = size
        step_times = [StepTime(*mark) for mark in run.step_times.since(self._begun[number])]
        pace = measure(step_times, started=self._begun[number])
        if pace is None:
            return
        use = self._gpus.since(step_times[-1].at - pace.seconds)
        self.paces[number] = replace(
            pace,
            slowed_by=self._slowed_by(pace, step_times[-1].at),
            memory=self._most_memory or None,
            gpu_busy=use.busy if use else None,
            gpu_memory=use.memory if use else None,
        )

    def _is_known(self, number: int, beats: tuple[Heartbeat, ...]) -> bool:
        """Tell whether there is enough; then stacks are looked at for a while, if wanted."""
        pace = self.paces.get(number)
        if pace is None:
            return False
        reported = max((beat.total for beat in beats if beat.total), default=None)
        enough = self._bounds.enough(pace, reported)
        if pace.seconds < enough:
            return False
        if not self._sample_stacks:
            return True
        self._known_since = self._known_since or time.monotonic()
        self._look_at_stacks(beats)
        return time.monotonic() - self._known_since >= min(STACKS_FOR, enough)

    def _look_at_stacks(self, beats: tuple[Heartbeat, ...]) -> None:
        if not beats:
            return
        lead = max(beats, key=lambda beat: beat.step)
        taken = take_stacks((lead.pid,), within=STACKS_WITHIN)
        for thread in taken.threads.get(lead.pid, ()):
            if thread.tid == lead.thread:
                self.stacks.append(thread.frames)
        time.sleep(STACKS_EVERY)

    def _slowed_by(self, pace: Pace, until: float) -> dict[str, float]:
        """Return the seconds of a step by phase, without those of the warm-up."""
        since = until - pace.seconds
        inside = [phases for at, phases in self._phases if at >= since]
        if len(inside) < 2 or not pace.steps:  # noqa: PLR2004 - a difference needs two
            return {}
        first, last = inside[0], inside[-1]
        spent = {phase: last[phase] - first.get(phase, 0.0) for phase in last}
        whole = sum(spent.values())
        each = pace.seconds / pace.steps
        return {
            phase: each * seconds / whole
            for phase, seconds in spent.items()
            if whole > 0 and seconds > 0
        }


def _held(run: ObservedRun) -> int:
    """Return the memory that the processes of an attempt hold."""
    if os.name == "nt":
        return 0
    pids = processes(0, f"{run.run.name}-{os.getpid()}-{run.attempt}")
    return sum(_own(sizes) for sizes in read_memory(pids).processes.values())


def _own(sizes: Mapping[str, int]) -> int:
    """Return what a process holds beside its files; shared memory counts in each that maps it."""
    return sizes.get("RssAnon", sizes.get("VmRSS", 0)) + sizes.get("RssShmem", 0)


def _by_phase(beats: tuple[Heartbeat, ...]) -> dict[str, float]:
    if not beats:
        return {}
    return dict(max(beats, key=lambda beat: beat.step).seconds_in)


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
            if len(seen) >= LEAST_ANSWERS
        ]
        return max(uses, key=lambda use: use.busy, default=None)

    def _ask(self) -> None:
        for gpu in read_gpu_counters(within=COUNTERS_WITHIN, root=self._root):
            reading = gpu.reading
            if reading is not None and reading.busy_percent is not None:
                seen = time.time(), gpu.card, float(reading.busy_percent), reading.vram_used_bytes
                self._seen.append(seen)
