"""Trials of the user's own script for ``plan`` and ``init``: over its folder, and no traces."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from datetime import timedelta
from enum import Enum
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Self

import msgspec
from msgspec.structs import replace

from rocsteady.doctor.knowledge.failures import Component, load_failures
from rocsteady.errors import NotRecordedError, RocsteadyError
from rocsteady.failures.memory_arguments import memory_arguments
from rocsteady.hangs.heartbeat_pages import (
    Size,
    read_pages,
    read_size,
)
from rocsteady.hangs.looking.stacks import sample_stacks
from rocsteady.hangs.values import Heartbeat
from rocsteady.model import (
    TRIAL,
    Failure,
    LoaderFacts,
    Observation,
    Outcome,
    ProbeOutcome,
    Strategy,
    Value,
)
from rocsteady.plan.pace import FailureHistory, StepTime, measure
from rocsteady.plan.saved_plan import PLAN_LIMIT, home
from rocsteady.plan.script_traces import ScriptTraces, look_at
from rocsteady.plan.values import DRILL_STEP, Pace
from rocsteady.probe.sandbox_run import Sandbox
from rocsteady.probe.scratch import Scratch
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.attempt.gauges import GPU_BUSY, GPU_MEMORY, HOST_MEMORY
from rocsteady.run.checkpoints.resume import Launch
from rocsteady.run.context import Services
from rocsteady.run.job.values import Job
from rocsteady.run.observer import ObservedRun, Observer
from rocsteady.run.options import RunOptions, Timing
from rocsteady.run.recovery.machine import run_machine
from rocsteady.run.startup import report_unfinished
from rocsteady.run.telling.announcer import Announcer
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import Sample
from rocsteady.system.atomic_file import write_whole
from rocsteady.typed_values import read_json
from rocsteady.wording import duration, plural, rough_duration

COMPUTE = ("compute", "backward", "optimizer")  # phases
ELSEWHERE = ("evaluate", "checkpoint", "compile")  # where own code runs too, outside of the loader
SHARE = 0.1  # of the time that the job still takes, for trials
GAUGES_EVERY = timedelta(seconds=1)
STACKS_FOR = 5.0  # seconds, after the pace is measured
RESTARTS_OFF = 2.0  # times, up or down, that a pace over a few restarts may be off; our guess
LEAST_ANSWERS = 3  # answers; fewer say little of a mean
Reading = tuple[float, Mapping[str, float]]  # when, and what was measured by name


class Bounds(Value, frozen=True, kw_only=True):
    wanted: float = 30.0  # seconds of steps, after the warm-up
    within: float = 180.0  # seconds in all; then it ends with what is known
    in_proportion: bool = False  # to the job: a short one has a short trial
    left: int | None = None  # steps of the job; None: as the script tells
    spent: float = 0.0  # seconds that earlier trials took

    def enough(self, pace: Pace, reported: int | None) -> float:
        """Return the seconds of steps after which a trial ends; ``reported``: steps of the job."""
        return min(self.wanted, self.share(pace, reported))

    def share(self, pace: Pace, reported: int | None) -> float:
        """Return the seconds that all trials together may take."""
        left = self.left or reported
        return SHARE * left / pace.rate if self.in_proportion and left else math.inf


class Measurement(Observer):
    """Measures the pace of a run, and ends it when that is known."""

    def __init__(self, bounds: Bounds, scratch: Scratch, *, sample_stacks: bool) -> None:
        self._bounds, self._scratch, self._sample_stacks = bounds, scratch, sample_stacks
        self.results: list[TrialResult] = []
        self.paces: dict[int, Pace] = {}  # by attempt
        self._sizes: dict[int, Size] = {}
        self._stacks: list[tuple[str, ...]] = []  # frames of the training thread, innermost first
        self._elsewhere = 0.0
        self._begun: dict[int, float] = {}
        self._phases: list[Reading] = []
        self._readings: list[Reading] = []
        self._known_since: float | None = None
        self._since = time.monotonic()

    def launching(self, run: ObservedRun, launch: Launch) -> Launch:
        self._begun[run.attempt], self._phases, self._readings = time.time(), [], []
        self._known_since = None
        return launch

    def ended(self, run: ObservedRun, end: AttemptEnd) -> None:
        number, strategy = run.attempt, run.history.strategy
        finished = end.exit is not None and end.exit.code == 0 and not run.is_over
        if finished:
            self._take_in(run)
        watched = look_at(
            end,
            pages=run.pages,
            log=run.folder / f"attempt-{number}.log",
            scratch=self._scratch,
            step_times=run.step_times,
            since=self._begun[number],
        )
        self.results.append(
            TrialResult(
                strategy=strategy,
                pace=_of_its_device(self.paces.get(number), strategy),
                hung=end.outcome in (Outcome.HUNG, Outcome.UNKILLABLE),
                step=end.last_step or 0,
                seconds=end.seconds,
                finished=finished,
                stacks=tuple(self._stacks),
                elsewhere=self._elsewhere,
                watched=watched,
                remedy=run.history.remedy,
                total=end.total,
                size=self._sizes.get(number),
                loader=end.loader,
                saves=_saves(end),
            )
        )

    def failed(self, run: ObservedRun, failure: Failure) -> None:
        del run
        self.results[-1] = replace(
            self.results[-1],
            failure=failure.kind,
            title=failure.title,
            place=failure.line or failure.fingerprint.place,
        )

    def sampled(self, run: ObservedRun, sample: Sample) -> None:
        del run
        self._phases.append((sample.at, sample.seconds_in))
        self._readings.append((sample.at, sample.measured))

    def ticked(self, run: ObservedRun) -> None:
        number = run.attempt
        if run.is_over or number not in self._begun:
            return
        beats = read_pages(run.pages) if run.pages else ()
        self._take_in(run)
        if self._is_known(run, beats) or time.monotonic() - self._since > self._bounds.within:
            run.end()

    def _take_in(self, run: ObservedRun) -> None:
        if self._known_since is not None:  # stacks are looked at, which costs it some time
            return
        number = run.attempt
        size = read_size(run.pages) if run.pages else None
        if size is not None:
            self._sizes[number] = size
        size = self._sizes.get(number)
        step_times = [StepTime(*mark) for mark in run.step_times.since(self._begun[number])]
        pace = measure(step_times, started=self._begun[number])
        if pace is None:
            return
        readings = tuple(self._readings)
        use = gpu_load(readings, step_times[-1].at - pace.seconds)
        memory = max((measured.get(HOST_MEMORY, 0) for _, measured in readings), default=0)
        self.paces[number] = replace(
            pace,
            slowed_by=self._slowed_by(pace, step_times[-1].at),
            memory=int(memory) or None,
            gpu_busy=use.busy if use else None,
            gpu_memory=use.memory if use else None,
            parameters=size.parameters if size else None,
        )

    def _is_known(self, run: ObservedRun, beats: tuple[Heartbeat, ...]) -> bool:
        """Whether there is enough; then stacks are looked at for a while, if wanted."""
        pace = self.paces.get(run.attempt)
        if pace is None:
            return False
        reported = max((beat.total for beat in beats if beat.total), default=None)
        enough = self._bounds.enough(pace, reported)
        spent = self._bounds.spent + time.monotonic() - self._since
        if spent >= self._bounds.share(pace, reported):
            return True
        if pace.seconds < enough:
            return False
        if not self._sample_stacks:
            return True
        self._known_since = time.monotonic()
        lead = max(beats, key=lambda beat: beat.step, default=None)
        if lead is not None and run.pages:
            self._stacks += sample_stacks(lead.pid, lead.thread, seconds=min(STACKS_FOR, enough))
            now = next((it for it in read_pages(run.pages) if it.pid == lead.pid), lead)
            took = {name: now.seconds_in[name] - lead.seconds_in[name] for name in now.seconds_in}
            elsewhere = sum(took[name] for name in ELSEWHERE)
            self._elsewhere = elsewhere / (elsewhere + sum(took[name] for name in COMPUTE) or 1.0)
        return True

    def _slowed_by(self, pace: Pace, until: float) -> dict[str, float]:
        """Return the seconds of a step by phase, without those of the warm-up."""
        since = until - pace.seconds
        inside = [phases for at, phases in tuple(self._phases) if at >= since]
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


class GpuLoad(Value, frozen=True, kw_only=True):
    busy: float  # of 100, the mean
    memory: int | None  # bytes, at most


def gpu_load(readings: Iterable[Reading], since: float) -> GpuLoad | None:
    """Return how much the GPU did that did the most; None if too little was seen."""
    seen: dict[tuple[str, str], list[float]] = {}
    for at, measured in readings:
        for name, value in measured.items() if at >= since else ():
            gpu, _, what = name.rpartition(" ")
            seen.setdefault((gpu, what), []).append(value)
    loads = [
        GpuLoad(busy=fmean(values), memory=int(max(seen.get((gpu, GPU_MEMORY), [0]))) or None)
        for (gpu, what), values in seen.items()
        if what == GPU_BUSY and len(values) >= LEAST_ANSWERS
    ]
    return max(loads, key=lambda load: load.busy, default=None)


NO_MEMORY = "oom"  # what kinds of failure for want of memory begin with


class TrialResult(Value, frozen=True, kw_only=True):
    """One attempt: a strategy, and its pace or its failure."""

    strategy: Strategy
    pace: Pace | None = None
    failure: str = ""  # its kind; "": it did not fail
    title: str = ""  # of the failure, one line
    place: str = ""
    hung: bool = False
    step: int = 0  # reached
    seconds: float = 0.0
    finished: bool = False  # by itself and well, before the trial was over
    stacks: tuple[tuple[str, ...], ...] = ()  # of the training thread, innermost first
    elsewhere: float = 0.0  # of these outside the loader: at validation, saving, or compiling
    remedy: str = ""  # that led to the strategy
    total: int | None = None  # steps of the whole job, if the script or the job told
    size: Size | None = None
    loader: LoaderFacts | None = None
    resumes: bool = False  # there is a known way to go on from a checkpoint
    saves: int = 0  # checkpoints that were seen to be written
    watched: ScriptTraces = ScriptTraces()  # what it prints and writes
    over_restarts: bool = False  # its pace includes the failures and what they cost

    @property
    def works(self) -> bool:
        return not self.failure and (self.pace is not None or self.finished)


def drill_step(result: TrialResult) -> int:
    """Return a step by which the script had saved, to kill it at; it saves evenly, by its number.

    From an earlier one it begins again at the start, which shows nothing.
    """
    first = result.step // result.saves + 1 if result.saves else 0
    return max(DRILL_STEP, min(first, result.step) if result.finished else first)


def _saves(end: AttemptEnd) -> int:
    counts = [sum(beat.histogram.get("checkpoint", ())) for beat in end.heartbeats]
    return max(counts, default=0)


def _of_its_device(pace: Pace | None, strategy: Strategy) -> Pace | None:
    """Leave out what the GPU did where the training ran on the CPU: it was not the training's."""
    if pace is None or strategy.device != "cpu":
        return pace
    return replace(pace, gpu_busy=None, gpu_memory=None)


def observation(result: TrialResult, way: str, *, software: str, at: float) -> Observation:
    outcome = ProbeOutcome.OK if result.works else ProbeOutcome.EXCEPTION
    if result.hung:
        outcome = ProbeOutcome.HANG
    elif result.failure.startswith(NO_MEMORY):
        outcome = ProbeOutcome.NO_MEMORY
    return Observation(
        probe=TRIAL,
        variant=way,
        outcome=outcome,
        tries=result.step,
        seconds=result.seconds,
        why=result.title,
        place=result.place,
        failure=result.failure,
        figures={"steps_per_second": result.pace.rate} if result.pace else {},
        software=software,
        at=at,
    )


def last_of_each_strategy(results: Iterable[TrialResult]) -> list[TrialResult]:
    """Return the last result per strategy; a truncated trial does not replace an earlier one."""
    last: list[TrialResult] = []
    for result in results:
        same = [number for number, each in enumerate(last) if each.strategy == result.strategy]
        if not same:
            last.append(result)
        elif result.works or result.failure:
            last[same[0]] = result
    return last


def with_pace_over_restarts(results: Iterable[TrialResult], result: TrialResult) -> TrialResult:
    """Add the pace of what fails before its speed is known, and still gets on by restarts."""
    own = [each for each in results if each.strategy == result.strategy]
    steps = [each.step for each in own]
    gets_on = len(own) > 1 and all(one < two for one, two in pairwise(steps))
    if result.pace is not None or not result.failure or not gets_on:
        return result
    gained, seconds = steps[-1] - steps[0], sum(each.seconds for each in own[1:])
    rate = gained / max(seconds, 1e-3)
    pace = Pace(
        steps=gained,
        seconds=seconds,
        rate=rate,
        low=rate / RESTARTS_OFF,
        high=rate * RESTARTS_OFF,
        starting=0.0,
    )
    return replace(result, pace=pace, over_restarts=True)


def survived(result: TrialResult) -> bool:
    """Whether a fresh process gets over a failure: it came some way and left a checkpoint."""
    if (
        result.pace is None
        or not result.resumes
        or not (result.saves or result.watched.checkpoints)
    ):
        return False
    kind = load_failures().kinds.get(result.failure)
    return kind is not None and kind.component in (
        Component.DEVICE,
        Component.LOADER,
        Component.MEMORY,
    )


def is_of_loaders(kind: str) -> bool:
    known = load_failures().kinds.get(kind)
    return known is not None and known.component is Component.LOADER


def failed(result: TrialResult, command: Sequence[str] = ()) -> str:
    if not result.failure:
        made = f"no step after step {result.step:,}" if result.step else "no step"
        return f"trial: {made} in {duration(result.seconds)}"
    at = f" at step {result.step:,}" if result.step else ""
    place = f", {result.place}" if result.place else ""
    lower = (
        memory_arguments(command, result.failure) if result.failure.startswith(NO_MEMORY) else ()
    )
    less = f"; lower {lower[0][0]}, now {lower[0][1]}" if lower else ""
    return f"trial failed with {result.failure}{at}{place}{less}"


def trial_history(results: Iterable[TrialResult], result: TrialResult) -> FailureHistory:
    own = [each for each in results if each.strategy == result.strategy]
    kinds = tuple(each.failure for each in own if each.failure)
    return FailureHistory(
        failures=len(kinds),
        seconds=sum(each.seconds for each in own),
        steps=sum(each.step for each in own),
        kinds=kinds,
    )


def together(first: FailureHistory, second: FailureHistory) -> FailureHistory:
    return FailureHistory(
        failures=first.failures + second.failures,
        seconds=first.seconds + second.seconds,
        steps=first.steps + second.steps,
        kinds=first.kinds + second.kinds,
    )


def rests_on(result: TrialResult, seen: FailureHistory) -> tuple[str, ...]:
    """Return what an option is based on: the trial, and the failures that were seen or not."""
    pace = result.pace
    measured = f"trial, {pace.steps:,} steps in {duration(pace.seconds)}" if pace else "trial"
    split = result.watched.batch_split
    if split is not None and 0 < split.micro_batch < split.batch:  # Loop found what fits
        measured += f", batches of {split.batch} in micro-batches of {split.micro_batch}"
    if seen.failures:
        kinds = ", ".join(dict.fromkeys(seen.kinds))
        count = plural(seen.failures, "failure")
        after = "; a new process resumes from the checkpoint" if result.resumes else ""
        return (f"{measured}; {count} in {seen.steps:,} steps here ({kinds}){after}",)
    if seen.steps:
        return (f"{measured}; 0 failures in {seen.steps:,} steps",)
    return (measured,)


KEPT = "trials.json"  # beside the last plan
SHORT = 0.6  # of the seconds of a trial, for those that only compare
STARTING = 130.0  # seconds for a script to start; a hang before its first step is seen after 100
LEAST = 15.0  # seconds that must be left to begin another


class Trials(Sandbox):
    """Runs trials of one folder's script, and removes what they wrote."""

    def __init__(
        self,
        folder: Path,
        memory: Memory,
        say: Callable[[str], None],
        *,
        retry_crashed: bool = False,
        instead: str = "",  # of a trial, where a script names its folder by an absolute path
    ) -> None:
        super().__init__(folder, _root(folder), "trial", say, instead=instead)
        self._memory, self._retry_crashed = memory, retry_crashed
        self.seconds = 0.0  # that the trials took
        self.stopped = False  # by the user
        self._trial: Measurement | None = None  # the last one

    def __enter__(self) -> Self:
        """Make a place for them. What an earlier one was doing when the machine died is kept."""
        look_back(self.folder, self._memory)
        return super().__enter__()

    @property
    def measured(self) -> float:
        """Seconds of steps that the last trial has measured so far."""
        paces = list(self._trial.paces.values()) if self._trial else []
        return max((pace.seconds for pace in paces), default=0.0)

    def run(
        self,
        job: Job,
        strategy: Strategy,
        bounds: Bounds,
        *,
        remedies: bool = False,
        sample_stacks: bool = False,
    ) -> tuple[TrialResult, ...]:
        """Run the job for a while; return what came of each attempt, the last one last."""
        began = time.monotonic()
        run = self.lay_out()
        options = RunOptions(
            max_attempts=None if remedies else 1,
            no_remedies=not remedies,
            from_scratch=True,
            retry_crashed=self._retry_crashed,
            strategy=strategy,
            timing=Timing(quick_crash=timedelta(0), gauges_every=GAUGES_EVERY),
        )
        self._trial = trial = Measurement(bounds, run.scratch, sample_stacks=sample_stacks)
        try:
            supervisor, _ = run.carry_out(job, trial, options, memory=self._memory)
        except NotRecordedError as error:
            raise RocsteadyError(f"{error}. Nothing was started") from None
        self.seconds += time.monotonic() - began
        self.stopped = self.stopped or supervisor.observed.stopped_by_user
        results = tuple(replace(each, resumes=supervisor.can_resume) for each in trial.results)
        run.remove()
        for result in results:
            if result.failure:
                run.refuse_blame("\n".join(result.watched.printed.tail))
        return results


def look_back(folder: Path, memory: Memory) -> None:
    """Remember what was being tried when the machine went down, before it is removed."""
    if not _root(folder).exists():
        return
    journal = Journal(find_place(_root(folder)))
    with closing(Announcer()) as announcer, closing(journal):
        services = Services(journal=journal, announcer=announcer, memory=memory)
        report_unfinished(services, run_machine(services, ("",), folder), folder)
    memory.flush()


def _root(folder: Path) -> Path:
    return home(folder) / "trials"


class KeptTrial(Value, frozen=True, kw_only=True):
    """A trial that a later plan can do without."""

    command: tuple[str, ...]
    strategy: Strategy
    results: tuple[TrialResult, ...]  # of each attempt


class KeptTrials(Value, frozen=True, kw_only=True):
    """The trials of the last plan of a folder that made any."""

    software: str  # that they were made with
    trials: tuple[KeptTrial, ...] = ()
    seconds: float = 0.0  # that they took
    made: float | None = None  # by the wall clock

    def run(self, job: Job, strategy: Strategy, kind: TrialKind) -> tuple[TrialResult, ...]:
        """Return what a trial showed then; () if there was none."""
        del kind
        same = (it for it in self.trials if (it.command, it.strategy) == (job.command, strategy))
        return next((it.results for it in same), ())


def keep_trials(kept: KeptTrials, folder: Path) -> None:
    with contextlib.suppress(OSError):  # what cannot be kept is measured again
        home(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(home(folder) / KEPT, msgspec.json.encode(kept))


def kept_trials(folder: Path, software: str) -> KeptTrials:
    """Return the trials of the last plan, if they are of the same software."""
    kept = read_json(home(folder) / KEPT, KeptTrials, PLAN_LIMIT)
    return kept if kept and kept.software == software else KeptTrials(software=software)


class TrialKind(Enum):
    WITH_STACKS = "the pace, and where the time goes"
    PACE = "the pace"
    COMPARISON = "the pace, in less time"


Show = Callable[[Callable[[float], tuple[str, float]]], AbstractContextManager[None]]


class PlanTrials:
    """Runs trials as the planner asks for them, as long as there is time."""

    def __init__(
        self,
        trials: Trials,
        show: Show,
        *,
        each: float,  # seconds of steps
        within: float,  # seconds, all together
        left: int | None,  # steps of the job, if known
    ) -> None:
        """Take no longer than a share of the job, all together, whatever is asked for."""
        self._trials, self._each, self._within = trials, each, within
        self._left = left
        self._title, self._show = "", show
        self._made: list[KeptTrial] = []

    def say(self, title: str) -> None:
        self._title = title

    def run(self, job: Job, strategy: Strategy, kind: TrialKind) -> tuple[TrialResult, ...]:
        """Run a trial, unless the time is up or the user has stopped it."""
        left = self._within - self._trials.seconds
        if left < LEAST or self._trials.stopped:
            return ()
        wanted = self._each * (SHORT if kind is TrialKind.COMPARISON else 1.0)
        bounds = Bounds(
            wanted=wanted,
            within=min(left, wanted * 3 + STARTING),
            in_proportion=True,
            left=self._left,
            spent=self._trials.seconds,
        )
        with self._show(self._progress):
            stacks = kind is TrialKind.WITH_STACKS
            results = self._trials.run(job, strategy, bounds, remedies=True, sample_stacks=stacks)
        self._within = min(self._within, *self._shares(results))
        self._made.append(KeptTrial(command=job.command, strategy=strategy, results=results))
        return results

    def kept(self, software: str) -> KeptTrials:
        seconds = self._trials.seconds
        made = tuple(self._made)
        return KeptTrials(software=software, trials=made, seconds=seconds, made=time.time())

    def _shares(self, results: tuple[TrialResult, ...]) -> Iterator[float]:
        """Yield what all trials may take together, once it is known how long the job takes."""
        yield self._within
        for result in results:
            left = self._left or result.total
            pace = with_pace_over_restarts(results, result).pace
            if pace is not None and left:
                yield SHARE * left / pace.rate

    def _progress(self, elapsed: float) -> tuple[str, float]:
        """Return what is being tried, and the share of the time that has passed."""
        used = self._trials.seconds + elapsed
        left = max(1.0, self._within - used)
        text = f"at most {rough_duration(left)} left; trying: {self._title}"
        return text, used / self._within
