"""What a plan is made from: the machine, what is wrong with it, and what was seen here before."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec
from msgspec.structs import replace

from rocsteady.doctor.diagnosis import diagnose, doctors_knowledge
from rocsteady.doctor.facts import visible_to_a_run
from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.doctor.knowledge.gpu_rental import CardSpeed, load_speeds, speed_of
from rocsteady.doctor.knowledge.harmful_variables import Harmful, harmful_variables
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.machine import Machine, software_of
from rocsteady.doctor.training_gpus import settings
from rocsteady.doctor.values import ComputeDevice, Finding
from rocsteady.errors import JournalError
from rocsteady.failures.probe_evidence import supported
from rocsteady.failures.remedy import load_remedies, requested_strategy
from rocsteady.model import IntentKind, Observation, ProbeOutcome, RunOutcome, Strategy, Value
from rocsteady.plan.pace import FailureHistory
from rocsteady.run.forecast import due
from rocsteady.run.job.stages import commands_of
from rocsteady.run.job.values import Job
from rocsteady.run.strategy_history import examined
from rocsteady.store.identity import script_fingerprint
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import Fate, RunLine, RunRecord


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
    histories: tuple[tuple[Strategy, FailureHistory], ...] = ()  # a strategy occurs once

    def history(self, strategy: Strategy) -> FailureHistory:
        return next((seen for each, seen in self.histories if each == strategy), FailureHistory())


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
            kind = "" if _is_for_a_person(kind) else kind
            steps = max(0, (attempt.last_step or 0) - (attempt.first_step or 0))
            found[number] = FailureHistory(
                failures=before.failures + bool(kind),
                seconds=before.seconds + max(0.0, attempt.ended - attempt.started),
                steps=before.steps + steps,
                kinds=(*before.kinds, kind) if kind else before.kinds,
            )
    return tuple(zip(strategies, found, strict=True))


def _is_for_a_person(kind: str) -> bool:
    known = load_failures().kinds.get(kind)
    return known is not None and known.fix is not None


LATEST = 20  # runs that are looked at


def circumstances(
    job: Job, folder: Path, memory: Memory, journal: Journal, *, again: bool
) -> Circumstances:
    known = doctors_knowledge()
    machine = examined(known)
    here, script = journal.here.machine, script_fingerprint(job.command, str(folder))
    scripts = {script_fingerprint(command, str(folder)) for command in commands_of(job)}
    observations = memory.observations(here)
    facts = facts_of(machine, known, observations)
    software = facts.software
    deadly = [each.strategy for it in scripts for each in memory.deadly(here, it)]
    deadly += _under_way_when_it_went_down(scripts, folder, journal)
    if _probe_went_down(observations, software):
        deadly.append(Strategy())
    helped = [
        each.remedy for each in memory.what_helped(here, script) if each.remedy in load_remedies()
    ]
    wanted = dict.fromkeys((*helped, *supported(observations, software)))
    return replace(
        facts,
        cores=_cores(),
        deadly=() if again else tuple(deadly),
        remedied=tuple(_remedied(wanted, machine, facts.gpus)),
        harmful=tuple(each for each in harmful_variables() if each.harms(os.environ)),
        histories=histories(_stories(job, journal)),
    )


def facts_of(
    machine: Machine, known: Knowledge, observations: tuple[Observation, ...] = ()
) -> Circumstances:
    """Gather what a machine, here or recorded, tells by itself."""
    diagnosis = diagnose(machine, known, observations=observations)
    seen = visible_to_a_run(machine, known)
    variables = settings(machine)
    return Circumstances(
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


def goal_of(job: Job, journal: Journal, now: float) -> Goal:
    total = job.total
    done = _done(job, journal) if total is not None and job.resume is not None else 0
    return Goal(
        left=max(1, total.count - done) if total and total.count else None,
        epochs=total.epochs if total else None,
        done=done,
        by=due(job.deadline, now),
        budget=job.budget,
    )


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
        left = [each.intent for each in journal.unfinished() if each.fate is Fate.MACHINE_WENT_DOWN]
        found = [journal.attempt_of(intent) for intent in left if intent.kind is IntentKind.START]
    except JournalError:
        return []
    return [
        each[1].strategy
        for each in found
        if each is not None and script_fingerprint(each[0].command, str(folder)) in scripts
    ]


def _probe_went_down(observations: tuple[Observation, ...], software: str) -> bool:
    down = ProbeOutcome.WENT_DOWN
    return any(each.outcome is down and each.software == software for each in observations)


def card_of(machine: Machine) -> CardSpeed | None:
    cards = load_speeds().values()
    for gpu in machine.gpus.gpus:
        found = speed_of(cards, gpu.device, gpu.compute_units)
        if found is not None:
            return found
    return None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _lines(job: Job, journal: Journal) -> list[RunLine]:
    try:
        lines = journal.runs()
    except JournalError:
        return []
    own = [line for line in lines if line.run.command == job.command]
    return sorted(own, key=lambda line: -line.run.started)[:LATEST]


def _stories(job: Job, journal: Journal) -> tuple[RunRecord, ...]:
    found = []
    for line in _lines(job, journal):
        with contextlib.suppress(JournalError, msgspec.MsgspecError):
            found.append(journal.story(line.run.name))
    return tuple(found)


def _done(job: Job, journal: Journal) -> int:
    """Return the steps that the last run made, if it was left and can be gone on with."""
    for line in _lines(job, journal):
        return 0 if line.run.outcome is RunOutcome.DONE else line.step or 0
    return 0
