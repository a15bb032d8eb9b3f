"""Experiments: a piece of work under a setup, tried N times, each in a process of its own.

Work is the user's script, over a folder that it cannot change, or a reproduction of one operation.
Before each try an intent is on the disk, since it may take the machine down, and each has a time
limit that holds even if its process cannot be killed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Self

import msgspec
from rocsteady_train.inside import wire
from rocsteady_train.untrusted_file import read_tail

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.failures.classify import Classifier
from rocsteady.failures.symptoms import Symptoms
from rocsteady.model import (
    CAUSE,
    Failure,
    FailureKind,
    Observation,
    Outcome,
    ProbeOutcome,
    Strategy,
    Value,
)
from rocsteady.probe.guard import Guard, has_gone_down
from rocsteady.probe.payload_site import AT_ONCE, kill_isolated
from rocsteady.probe.recorded_operations import (
    AT_END,
    ComparedNumbers,
    Operation,
    Origin,
    read_compared,
    read_in_flight,
    read_origin,
)
from rocsteady.probe.sandbox_run import Sandbox, name_for
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.checkpoints.resume import Launch
from rocsteady.run.job.values import Job
from rocsteady.run.observer import ObservedRun, Observer
from rocsteady.run.options import RunOptions, Timing
from rocsteady.run.recovery.machine import gpu_trouble
from rocsteady.store.identity import fingerprint
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import Memory
from rocsteady.store.user_folders import state_folder
from rocsteady.system.child import Start, start_child
from rocsteady.system.child_end import DETACHED, Exit

SERIALIZED = {"AMD_SERIALIZE_KERNEL": "3", "HIP_LAUNCH_BLOCKING": "1", "CUDA_LAUNCH_BLOCKING": "1"}
WRONG_NUMBERS = 3  # exit code of a reproduction
STARTING = 120.0  # seconds for a process to import torch
NO_MEMORY = "oom"  # what kinds of failure for want of memory begin with
PAST = 3  # steps beyond the one that failed, after which a try works
OUTPUT_LIMIT = 256 * 1024  # bytes
BAD = (
    ProbeOutcome.WRONG,
    ProbeOutcome.EXCEPTION,
    ProbeOutcome.HANG,
    ProbeOutcome.CRASH,
    ProbeOutcome.NO_MEMORY,
    ProbeOutcome.UNKILLABLE,
)


class Setup(Value, frozen=True, kw_only=True):
    """What is different from how the script is usually started."""

    name: str = ""  # as a person would type it: "HSA_ENABLE_SDMA=0", "attention-math"
    strategy: Strategy = Strategy()
    python: str = ""  # another interpreter; "": the script's own
    build: str = ""  # of torch, as pip has it, for which that interpreter is still to be made
    on_cpu: str = ""  # the operator that is carried out on the processor


UNCHANGED = Setup()


class Try(Value, frozen=True, kw_only=True):
    outcome: ProbeOutcome
    seconds: float
    step: int = 0  # that it came to
    operation: Operation | None = None  # to which the outcome belongs, if it belongs to one
    how: str = ""  # the numbers are wrong
    exit: Exit | None = None
    failure: str = ""  # its kind, as a run would call it
    title: str = ""  # of the failure, or the exception
    numbers: ComparedNumbers | None = None
    log: str = ""  # its end


class Experiment(Value, frozen=True, kw_only=True):
    setup: Setup = Setup()
    tries: tuple[Try, ...] = ()

    @property
    def worked(self) -> int:
        return sum(each.outcome is ProbeOutcome.OK for each in self.tries)

    @property
    def failed(self) -> int:
        return sum(each.outcome in BAD for each in self.tries)

    @property
    def outcome(self) -> ProbeOutcome:
        """What came of most of the tries that failed; OK if none did."""
        bad = [each.outcome for each in self.tries if each.outcome in BAD]
        if bad:
            return max(set(bad), key=bad.count)
        return ProbeOutcome.OK if self.worked else ProbeOutcome.NOT_RUN

    @property
    def seconds(self) -> float:
        return sum(each.seconds for each in self.tries)


class Limits(Value, frozen=True, kw_only=True):
    hang_after: float = 60.0  # seconds in one operation
    within: float = 1800.0  # seconds in all
    last_step: int | None = None  # at which the script is known to fail


class Order(Value, frozen=True, kw_only=True, omit_defaults=True):
    """What the recorder is to do, beside writing operations down."""

    version: int = msgspec.field(default_factory=lambda: wire.RECORD_VERSION)
    keep: str = ""  # the key of the operation whose inputs are kept
    folder: str = ""  # and where
    on_cpu: str = ""
    numbers: dict[str, int] | None = None  # compared in the first steps, and in every so many


class Recording(Observer):
    """Has a run record its operations, and ends it when one is stuck, or nothing new can come."""

    def __init__(self, order: Order, limits: Limits, until: float, past: int | None) -> None:
        self._order, self._limits, self._until, self._past = order, limits, until, past
        self.stuck: Operation | None = None
        self.origin: Origin | None = None
        self.numbers: ComparedNumbers | None = None
        self.last: Operation | None = None  # that was in flight when it ended
        self.end: AttemptEnd | None = None
        self.failure: Failure | None = None
        self.late = False
        self.step = 0

    def launching(self, run: ObservedRun, launch: Launch) -> Launch:
        del run
        added = {**SERIALIZED, wire.RECORD: msgspec.json.encode(self._order).decode()}
        environment = {**launch.environment, **added}
        return msgspec.structs.replace(launch, environment=environment)

    def ticked(self, run: ObservedRun) -> None:
        if run.is_over or run.pages is None or self.end is not None:
            return
        flying = read_in_flight(run.pages)
        stuck = [each for each in flying if each.seconds > self._limits.hang_after]
        seen = (run.steps_before + each.operation.step for each in flying)
        self.step = max(self.step, *seen, 0)
        origin = read_origin(run.pages)
        if stuck:
            self.stuck = stuck[-1].operation
        elif time.monotonic() > self._until:
            self.late = True
        elif origin is not None and origin.kind not in AT_END:
            self.origin = origin
        elif self._past is None or self.step <= self._past:
            return
        run.end()

    def ended(self, run: ObservedRun, end: AttemptEnd) -> None:
        if run.pages is not None:
            flying = read_in_flight(run.pages)
            self.last = flying[0].operation if flying else None
            self.origin = self.origin or read_origin(run.pages)
            self.numbers = read_compared(run.pages)
        self.step = max(self.step, end.last_step or 0)
        if self.last is not None:
            self.step = max(self.step, run.steps_before + self.last.step)
        self.end = end

    def failed(self, run: ObservedRun, failure: Failure) -> None:
        del run
        self.failure = failure

    def result(self, seconds: float, *, is_over: bool) -> Try:
        """Say what came of it, and which operation that belongs to."""
        end = self.end
        if end is None:
            return Try(outcome=ProbeOutcome.NOT_RUN, seconds=seconds)
        kind = self.failure.kind if self.failure else ""
        plain = Try(
            outcome=ProbeOutcome.OK,
            seconds=seconds,
            step=self.step,
            numbers=self.numbers,
            exit=end.exit,
            failure="" if kind == FailureKind.UNKNOWN else kind,
            title=self.failure.title if self.failure else "",
        )
        change = msgspec.structs.replace
        if self.stuck or (end.outcome in (Outcome.HUNG, Outcome.UNKILLABLE) and not self.late):
            stays = end.outcome is Outcome.UNKILLABLE
            outcome = ProbeOutcome.UNKILLABLE if stays else ProbeOutcome.HANG
            return change(plain, outcome=outcome, operation=self.stuck or self.last)
        origin = self.origin
        ended_of_nan = kind == FailureKind.NAN_LOSS and origin is not None and origin.kind == "read"
        if origin is not None and (origin.kind not in AT_END or ended_of_nan):
            how = origin.how or HOW[origin.kind if origin.operation else "outside"]
            return change(plain, outcome=ProbeOutcome.WRONG, operation=origin.operation, how=how)
        if is_over or end.exit is None or not (end.exit.signal or end.exit.code):
            return change(plain, failure="", title="")
        if end.exit.signal and not kind.startswith(NO_MEMORY):
            return change(plain, outcome=ProbeOutcome.CRASH, operation=self.last)
        return self._raised(plain, origin, end)

    def _raised(self, named: Try, origin: Origin | None, end: AttemptEnd) -> Try:
        """Accuse the operation that raised the exception by which the script ended."""
        told = end.raised[-1] if end.raised else None
        same = (
            origin is not None
            and told is not None
            and told.type.rpartition(".")[2] == origin.type
            and told.message[:200] == origin.message[:200]
        )
        memory = named.failure.startswith(NO_MEMORY)
        return msgspec.structs.replace(
            named,
            outcome=ProbeOutcome.NO_MEMORY if memory else ProbeOutcome.EXCEPTION,
            operation=origin.operation if same and origin is not None else None,
            title=f"{told.type}: {told.message}"[:500] if told else named.title,
        )


HOW = {
    "nan": "the first NaN",
    "read": "the NaN that the script ended of",
    "infinite": "the infinity that became the first NaN",
    "outside": "the first NaN came in with the data, or from memory that was never written to",
}


class TryGuard(Guard):
    """Refuses what took this machine down before, and ends a search that became too risky."""

    def __init__(  # noqa: PLR0913 - what it knows, each by name
        self,
        journal: Journal,
        memory: Memory,
        command: tuple[str, ...],
        *,
        software: str = "",
        screens: tuple[str, ...] | None = (),  # on a GPU; None: cannot be told
        again: bool = False,
    ) -> None:
        super().__init__(journal, memory, software)
        self._again = again
        self._script = fingerprint("\0".join(command))[:12]
        self._may_lose_screen = screens != () and not again
        self.stopped = ""  # why nothing more is tried

    def carry_out(self, work: str, setup: Setup, attempt: Callable[[], Try]) -> Try:
        """Try once; what the machine went down in is not tried again unasked."""
        variant = self.variant(work, setup)
        if has_gone_down(CAUSE, variant, self.observations()) and not self._again:
            why = f"{setup.name or work}: the machine went down in it before (--again)"
            return Try(outcome=ProbeOutcome.NOT_RUN, seconds=0.0, title=why)
        since = time.time()
        with self.trying(CAUSE, variant) as intent:
            found = attempt()
            intent.end(found.outcome.value)
        if found.outcome is ProbeOutcome.UNKILLABLE:
            self.stopped = "a process cannot be killed, and may still hold the GPU"
        elif found.outcome in BAD and self._may_lose_screen and gpu_trouble(since):
            self.stopped = "the GPU was reset, and it may drive the display (--again: go on)"
        return found

    def keep(self, experiment: Experiment, work: str, operation: str) -> None:
        """Keep what came of it, for this machine and this software."""
        bad = next((each for each in experiment.tries if each.outcome in BAD), None)
        self.remember(
            Observation(
                probe=CAUSE,
                variant=self.variant(work, experiment.setup),
                outcome=experiment.outcome,
                tries=experiment.worked,
                seconds=experiment.seconds,
                why=bad.title or bad.how if bad else "",
                place=operation,
                failure=bad.failure if bad else "",
                software=self.software,
                at=time.time(),
            ),
        )

    def variant(self, work: str, setup: Setup) -> str:
        return f"{self._script} {work} {setup.name}".rstrip()


class ScriptTries(Sandbox):
    """Tries of the user's own script, over a folder that it cannot change."""

    def __init__(
        self, folder: Path, job: Job, limits: Limits, guard: TryGuard, say: Callable[[str], None]
    ) -> None:
        super().__init__(folder, state_folder() / "causes" / name_for(folder), "probe", say)
        self.guard, self.limits, self._job = guard, limits, job
        self._began = time.monotonic()
        self.kept = self.root / "kept"  # inputs, and reproductions
        self.results = state_folder() / "reproductions" / name_for(folder)  # what stays

    def __enter__(self) -> Self:
        super().__enter__()
        self.kept.mkdir()
        return self

    @property
    def left(self) -> float:
        """Seconds that are left of what all may take."""
        return self.limits.within - (time.monotonic() - self._began)

    def attempt(
        self,
        setup: Setup = UNCHANGED,
        *,
        keep: str = "",
        numbers: dict[str, int] | None = None,
        past: int | None = None,
    ) -> Try:
        """Run the script once; ``past`` is the step after which it has worked."""
        return self.guard.carry_out(
            "script", setup, lambda: self._attempt(setup, keep=keep, numbers=numbers, past=past)
        )

    def _attempt(
        self, setup: Setup, *, keep: str, numbers: dict[str, int] | None, past: int | None
    ) -> Try:
        run = self.lay_out()
        order = Order(keep=keep, folder=str(self.kept), on_cpu=setup.on_cpu, numbers=numbers)
        until = time.monotonic() + max(STARTING, self.left)
        recording = Recording(order, self.limits, until, past)
        job = self._job
        if setup.python:
            job = msgspec.structs.replace(job, command=(setup.python, *job.command[1:]))
        options = RunOptions(
            max_attempts=1,
            no_remedies=True,
            from_scratch=True,
            hang_after=timedelta(seconds=self.limits.hang_after + STARTING),
            strategy=setup.strategy,
            timing=Timing(quick_crash=timedelta(0), stopping=AT_ONCE),
        )
        began = time.monotonic()
        supervisor, _ = run.carry_out(job, recording, options)
        if supervisor.observed.stopped_by_user:
            raise KeyboardInterrupt
        found = recording.result(time.monotonic() - began, is_over=supervisor.observed.is_over)
        log = Path(supervisor.observed.folder) / "attempt-1.log"
        with contextlib.suppress(OSError):
            found = msgspec.structs.replace(
                found, log=read_tail(log, OUTPUT_LIMIT).decode("utf-8", "replace")
            )
        if found.outcome in BAD:
            run.refuse_blame(found.log)
        run.remove()
        return found


class ReproductionTries:
    """Tries of a script that makes one call, alone."""

    def __init__(
        self,
        python: str,
        folder: Path,
        guard: TryGuard,
        limits: Limits,
        environment: Mapping[str, str],
    ) -> None:
        self.python, self.folder, self._guard, self._limits = python, folder, guard, limits
        self._environment = dict(environment)
        self._numbers = itertools.count(1)

    def attempt(self, script: Path, setup: Setup = UNCHANGED, *words: str) -> Try:
        """Run it once; its clock begins when torch is there and it says so."""
        work = " ".join((script.name, *words))
        return self._guard.carry_out(work, setup, lambda: self._attempt(script, setup, words))

    def _attempt(self, script: Path, setup: Setup, words: tuple[str, ...]) -> Try:
        number = next(self._numbers)
        name = f"{CAUSE}-{os.getpid()}-{number}"
        log = self.folder / f"{name}.log"
        spoke: list[float] = []
        variables = {**SERIALIZED, **setup.strategy.variables}
        environment = {**self._environment, "ROCSTEADY_RUN": name}
        for variable, value in variables.items():
            if value is None:
                environment.pop(variable, None)
            else:
                environment[variable] = value
        began = time.monotonic()
        child = start_child(
            Start(
                command=[setup.python or self.python, script.name, *words],
                environment=environment,
                folder=script.parent,
                run_id=name,
                log=log,
                on_output=lambda _: spoke.append(time.monotonic()),
                terminal=DETACHED,
            )
        )
        try:
            ended = None
            while ended is None:
                ended = child.wait(0.1)
                since = time.monotonic() - (spoke[0] if spoke else began)
                if since > (self._limits.hang_after if spoke else STARTING):
                    break
            unkillable = ended is None and not kill_isolated(child)
        finally:
            child.close()
        seconds = time.monotonic() - began
        text = ""
        with contextlib.suppress(OSError):
            text = read_tail(log, OUTPUT_LIMIT).decode("utf-8", "replace")
        if ended is None:
            outcome = ProbeOutcome.UNKILLABLE if unkillable else ProbeOutcome.HANG
            if not spoke:
                outcome = ProbeOutcome.NOT_RUN  # torch itself could not be imported
            return Try(outcome=outcome, seconds=seconds, log=text)
        return Try(
            outcome=_outcome(ended, text, spoke=bool(spoke)), seconds=seconds, exit=ended, log=text
        )


def _outcome(ended: Exit, log: str, *, spoke: bool) -> ProbeOutcome:
    if ended.code == 0:
        return ProbeOutcome.OK
    if not spoke:
        return ProbeOutcome.NOT_RUN
    if ended.code == WRONG_NUMBERS:
        return ProbeOutcome.WRONG
    if ended.signal:
        return ProbeOutcome.CRASH
    named = Classifier(load_failures()).name(Symptoms(log=log, exit_code=ended.code))
    return ProbeOutcome.NO_MEMORY if named.kind.startswith(NO_MEMORY) else ProbeOutcome.EXCEPTION
