"""What a plan is made from: the machine, what is wrong with it, and what was seen here before."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from rocsteady.doctor.diagnosis import diagnose, doctors_knowledge
from rocsteady.doctor.facts import gather, visible_to_a_run
from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.doctor.knowledge.gpu_names import card_name, gfx_of
from rocsteady.doctor.knowledge.gpu_rental import CardSpeed, load_speeds, speed_of
from rocsteady.doctor.knowledge.harmful_variables import Harmful, harmful_variables
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.machine.gpus import Gpu
from rocsteady.doctor.machine.machine import Machine, examined, software_of
from rocsteady.doctor.machine.system import SetVariable
from rocsteady.doctor.training_gpus import (
    READ_FIRST,
    SECOND,
    has_code,
    settings,
    trainable,
    visible,
)
from rocsteady.doctor.values import ComputeDevice, Finding
from rocsteady.errors import JournalError
from rocsteady.failures.probe_evidence import supported
from rocsteady.failures.remedy import load_remedies, requested_strategy
from rocsteady.model import (
    IntentKind,
    Observation,
    ProbeOutcome,
    RunOutcome,
    Strategy,
    Value,
)
from rocsteady.plan.pace import FailureHistory
from rocsteady.run.attempt.progress import StepTimes
from rocsteady.run.checkpoints.resume import STEP, checkpoint_number, find_checkpoints
from rocsteady.run.checkpoints.script_facts import defaults_of, read_facts, script_in
from rocsteady.run.job.stages import commands_of
from rocsteady.run.job.values import Job
from rocsteady.store.forecast import due
from rocsteady.store.identity import script_fingerprint
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import RunLine, RunRecord


class Circumstances(Value, frozen=True, kw_only=True):
    """What is known before anything is tried."""

    os: str  # linux, windows
    wsl: bool = False
    gpus: int = 0  # that a run would see
    gfx: tuple[str, ...] = ()
    card: CardSpeed | None = None
    trains_on: ComputeDevice = ComputeDevice.UNKNOWN
    cores: int = 1
    software: str = ""
    findings: tuple[Finding, ...] = ()
    deadly: tuple[Strategy, ...] = ()  # with which this script took the machine down
    remedied: tuple[tuple[str, Strategy], ...] = ()  # by what helped here, or probes speak for
    harmful: tuple[Harmful, ...] = ()  # variables that are set and known to harm
    fixes: dict[str, str | None] = msgspec.field(default_factory=dict)
    # variables that the doctor's fixes set or, None, unset
    ranks: int = 0  # that the command starts on a recorded machine; here a trial tells if they fit
    best_gpu: int = 0  # by its number, of those that a run would see
    machine: Machine | None = None  # None: only its findings are known
    histories: tuple[tuple[Strategy, FailureHistory], ...] = ()  # a strategy occurs once
    defaults: tuple[str, ...] = ()  # of the script's options with a number, as they would be typed
    switches: tuple[str, ...] = ()  # of the script's options that take no value

    @property
    def gpus_together(self) -> int:
        """Return how many could share a job; a card would wait for an integrated one."""
        worth = len(trainable(self.machine)) if self.machine else 0
        return min(self.gpus, worth or self.gpus)

    @property
    def has_amd_gpu(self) -> bool:
        """Whether there is one, in use or not: what blocks it is found only where there is one."""
        blocked = any(it.severity is Severity.BLOCKS for it in self.findings)
        return bool(self.gpus or self.gfx or blocked)

    def history(self, strategy: Strategy) -> FailureHistory:
        return next((seen for each, seen in self.histories if each == strategy), FailureHistory())

    def findings_with(self, strategy: Strategy) -> tuple[Finding, ...]:
        """Return what the doctor would still find with the changes of a strategy, on a GPU."""
        if self.machine is None or strategy == Strategy():
            return self.findings
        if not (strategy.variables or strategy.gpus):
            return self.findings
        return diagnose(changed(self.machine, strategy), doctors_knowledge()).findings


class Goal(Value, frozen=True, kw_only=True):
    left: int | None = None  # steps; None: not known before a trial
    epochs: int | None = None
    done: int = 0  # steps that a run has made and can go on from
    by: float | None = None  # by the wall clock
    budget: float | None = None


def histories(stories: tuple[RunRecord, ...]) -> tuple[tuple[Strategy, FailureHistory], ...]:
    """Count what runs of a script have shown, by strategy.

    What a person must mend and has, as an error in the script, says nothing of what is to come.
    """
    strategies: list[Strategy] = []
    found: list[FailureHistory] = []
    for story in stories:
        failed = {row.attempt: row.failure.kind for row in story.failures}
        for attempt in story.attempts:
            if attempt.ended is None:
                continue
            if attempt.strategy not in strategies:
                strategies.append(attempt.strategy)
                found.append(FailureHistory())
            number = strategies.index(attempt.strategy)
            before = found[number]
            kind = failed.get(attempt.number, "")
            known = load_failures().kinds.get(kind)
            kind = "" if known and known.fix else kind
            steps = max(0, (attempt.last_step or 0) - (attempt.first_step or 0))
            found[number] = FailureHistory(
                failures=before.failures + bool(kind),
                seconds=before.seconds + max(0.0, attempt.ended - attempt.started),
                steps=before.steps + steps,
                kinds=(*before.kinds, kind) if kind else before.kinds,
            )
    return tuple(zip(strategies, found, strict=True))


LATEST_RUNS = 20  # runs that are looked at


def circumstances(
    job: Job, folder: Path, memory: Memory, journal: Journal, *, again: bool
) -> Circumstances:
    known = doctors_knowledge()
    machine = examined(known, job.command)
    here, script = journal.here.machine, script_fingerprint(job.command, str(folder))
    scripts = {script_fingerprint(command, str(folder)) for command in commands_of(job)}
    observations = memory.observations(here)
    facts = facts_of(machine, known, observations)
    software = facts.software
    deadly = [each.strategy for it in scripts for each in memory.deadly(here, it)]
    deadly += _under_way_when_it_went_down(scripts, folder, journal)
    crashed = [it for it in observations if it.outcome is ProbeOutcome.WENT_DOWN]
    if any(it.software == software for it in crashed):
        deadly.append(Strategy())
    helped = [
        each.remedy for each in memory.what_helped(here, script) if each.remedy in load_remedies()
    ]
    wanted = dict.fromkeys((*helped, *supported(observations, software)))
    seen = histories(_stories(job, journal))
    options = read_facts(script_in(job.command, folder)).options
    return replace(
        facts,
        cores=cores_here(),
        defaults=defaults_of(options, job.command),
        switches=tuple(it.flags[-1] for it in options if it.alone),
        deadly=() if again else tuple(deadly),
        remedied=(
            *_remedied(wanted, machine, facts.gpus),
            *workarounds(
                [kind for _, history in seen for kind in history.kinds], machine, facts.gpus
            ),
        ),
        harmful=tuple(each for each in harmful_variables() if each.harms(os.environ)),
        histories=seen,
    )


def facts_of(
    machine: Machine, known: Knowledge, observations: tuple[Observation, ...] = ()
) -> Circumstances:
    """Gather what a machine, here or recorded, tells by itself."""
    diagnosis = diagnose(machine, known, observations=observations)
    variables = settings(machine)
    fixes = _fixes(diagnosis.findings, variables)
    fixed = changed(machine, Strategy(variables=fixes))
    seen = visible_to_a_run(fixed, known)
    return Circumstances(
        machine=machine,
        fixes=fixes,
        best_gpu=_best_gpu(fixed, known),
        cores=machine.system.processors or 0,
        os=machine.system.os,
        wsl=machine.system.wsl,
        gpus=seen.gpus,
        gfx=seen.gfx,
        card=card_of(machine),
        trains_on=diagnosis.trains_on,
        software=software_of(machine),
        findings=diagnosis.findings,
        harmful=tuple(each for each in harmful_variables() if each.harms(variables)),
    )


def goal_of(job: Job, folder: Path, journal: Journal, now: float) -> Goal:
    total = job.total
    done = _done(job, folder, journal) if total is not None and job.resume is not None else 0
    return Goal(
        left=max(1, total.count - done) if total and total.count else None,
        epochs=total.epochs if total else None,
        done=done,
        by=due(job.deadline, now),
        budget=job.budget,
    )


def changed(machine: Machine, strategy: Strategy) -> Machine:
    """Return the machine as the doctor would see it with the changes of a strategy."""
    kept = [each for each in machine.variables if each.name not in strategy.variables]
    kept += [
        SetVariable(name=name, value=value)
        for name, value in strategy.variables.items()
        if value is not None
    ]
    machine = replace(machine, variables=tuple(kept))
    if strategy.gpus is None:
        return machine
    seen = visible(machine)
    gpus = tuple(seen[number] for number in strategy.gpus if number < len(seen))
    rest = tuple(each for each in kept if each.name not in (READ_FIRST, *SECOND))
    return replace(machine, gpus=replace(machine.gpus, gpus=gpus), variables=rest)


def _fixes(findings: Sequence[Finding], variables: Mapping[str, str]) -> dict[str, str | None]:
    """Return what fixes of the doctor change, where they only change variables.

    To unset one is a fix for a risk too; to set one only where training is blocked without it.
    """
    found: dict[str, str | None] = {}
    for finding in findings:
        if finding.severity is Severity.NOTES:
            continue
        found |= dict.fromkeys(name for name in finding.fix.unset if name in variables)
        if finding.severity is Severity.BLOCKS:
            found |= finding.fix.set
    return found


def _best_gpu(machine: Machine, known: Knowledge) -> int:
    arches = {str(arch) for arch in gather(machine, known).values("torch.arches")}
    gpus = visible(machine)

    def worth(number: int) -> tuple[bool, bool, int, int]:
        gpu = gpus[number]
        usable = not arches or has_code(gfx_of(gpu, known) or "", arches, known)
        return usable, not gpu.integrated, gpu.compute_units or 0, -number

    return max(range(len(gpus)), key=worth, default=0)


WORKAROUNDS = ("loader-fewer-workers", "loader-inline", "hipblaslt-off")
# that plan tries for failures of earlier runs, beside the cleaned variables


def workarounds(
    kinds: Iterable[str], machine: Machine, gpus: int
) -> tuple[tuple[str, Strategy], ...]:
    """Return what may answer the failures of earlier runs and changes no numbers."""
    known, seen = load_remedies(), set(kinds)
    wanted = dict.fromkeys(
        name for name in WORKAROUNDS if name in known and any(map(known[name].answers_to, seen))
    )
    return tuple(_remedied(wanted, machine, gpus))


def _remedied(names: dict[str, None], machine: Machine, gpus: int) -> list[tuple[str, Strategy]]:
    found = []
    for name in names:
        strategy = requested_strategy((name,), machine, dict(os.environ), gpus=gpus)
        if isinstance(strategy, Strategy):
            found.append((name, strategy))
    return found


def _under_way_when_it_went_down(
    scripts: set[str], folder: Path, journal: Journal
) -> list[Strategy]:
    """Return how these scripts ran when the machine went down, if no run has looked back since."""
    try:
        left = [each for each in journal.unfinished() if each.crashed_machine]
        found = [journal.attempt_of(intent) for intent in left if intent.kind is IntentKind.START]
    except JournalError:
        return []
    return [
        each[1].strategy
        for each in found
        if each is not None and script_fingerprint(each[0].command, str(folder)) in scripts
    ]


def card_of(machine: Machine) -> CardSpeed | None:
    cards = load_speeds().values()
    for gpu in machine.gpus.gpus or machine.gpus.not_offered:
        units = gpu.compute_units if isinstance(gpu, Gpu) else None
        if card := speed_of(cards, gpu.device, units, card_name(gpu, doctors_knowledge())):
            return card
    return None


def cores_here() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _lines(job: Job, journal: Journal) -> list[RunLine]:
    try:
        lines = journal.runs()
    except JournalError:
        return []
    own = [line for line in lines if line.run.command == job.command]
    return sorted(own, key=lambda line: -line.run.started)[:LATEST_RUNS]


def _stories(job: Job, journal: Journal) -> tuple[RunRecord, ...]:
    found = []
    for line in _lines(job, journal):
        with contextlib.suppress(JournalError, msgspec.MsgspecError):
            found.append(journal.story(line.run.name))
    return tuple(found)


def _done(job: Job, folder: Path, journal: Journal) -> int:
    """Return the steps that the last run saved, if it was left and can be gone on with."""
    line = next(iter(_lines(job, journal)), None)
    if line is None or line.run.outcome is RunOutcome.DONE or not line.step:
        return 0
    saved = max(find_checkpoints(job.resume, folder), key=lambda it: it.written, default=None)
    if saved is None:
        return 0 if job.resume and job.resume.checkpoints else line.step
    number = checkpoint_number(folder, Path(saved.path))
    if number and number.unit == STEP:
        return min(number.value, line.step)
    least, _ = StepTimes(journal.story(line.run.name).progress).step_at(saved.written / 1e9)
    return min(least, line.step)
