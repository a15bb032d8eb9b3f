"""Has the code decide after each attempt of a generated history, without a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec

from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.machine import Machine
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.looking.collect import Collected
from rocsteady.hangs.values import Heartbeat
from rocsteady.model import (
    BatchSplit,
    Decision,
    Failure,
    Fingerprint,
    LoaderFacts,
    Outcome,
    RunState,
    Strategy,
)
from rocsteady.run.attempt.attempt_end import AttemptEnd, HangEvidence, is_failure
from rocsteady.run.recovery.backoff import Drives
from rocsteady.run.recovery.decision import Here, decide, first_decision, in_force
from rocsteady.run.recovery.history import history_of
from rocsteady.run.recovery.machine import RunMachine
from rocsteady.store.values import (
    AttemptRecord,
    DecisionRecord,
    Event,
    Helped,
    Incident,
    NamedFailure,
    PhaseHistory,
)
from rocsteady.system.child_end import Exit
from tests.run.decisions.histories import STARTED, Case, Ending
from tests.values import failure

FOLDER = Path("/nonexistent")


class Clock:
    def __init__(self) -> None:
        self.now = STARTED

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Let the code see this clock."""
        with patch("time.time", lambda: self.now), patch("time.monotonic", lambda: self.now):
            yield


@dataclass
class World:
    """The checkpoints, and how far the script is: what attempts leave behind."""

    case: Case
    checkpoints: list[tuple[str, int]] = field(default_factory=list)  # oldest first
    read: tuple[str, int] | None = None

    def newest(self, avoid: tuple[str, ...]) -> tuple[str, int] | None:
        if self.case.resumes != "checkpoint":
            return None
        return next((each for each in reversed(self.checkpoints) if each[0] not in avoid), None)

    def end(self, ending: Ending, start: tuple[str, int] | None, began: float) -> AttemptEnd:
        """Return how an attempt ends that goes on from a checkpoint."""
        own = self.checkpoints[-1] if self.case.resumes == "itself" and self.checkpoints else None
        base = (start or own or ("", 0))[1]
        last = base + ending.made
        for save in ending.saves:
            self.checkpoints.append((f"step {base + save}", base + save))
        seconds, moved = ending.made * ending.step_seconds, bool(ending.made or base)
        exit_ = Exit(code=ending.code, signal=ending.signal, rank=ending.rank)
        return AttemptEnd(
            outcome=ending.outcome,
            exit=None if ending.outcome is Outcome.UNKILLABLE else exit_,
            seconds=seconds + ending.starting,
            progress_seconds=seconds,
            first_step=base + 1 if ending.made else None,
            last_step=last if moved else None,
            base=base,
            own_step=last if moved and ending.confirmed and (start or not own) else None,
            own_counts=dict(ending.counts),
            checkpoint=(start[0], float(start[1])) if start else None,
            start=start[0] if start else "",
            made=ending.made,
            saves=len(ending.saves),
            unsaved=ending.saved_failed,
            wrote_checkpoint=ending.wrote,
            all_cut_off=ending.all_cut_off,
            read=f"{own[0]} {own[1]}" if own else "",
            started_over="no reads" if ending.outcome is Outcome.STARTED_OVER else "",
            found=_found(ending) if ending.outcome in (Outcome.HUNG, Outcome.UNKILLABLE) else None,
            learned=PhaseHistory(),
            processes=(),
            began=began,
            heard=ending.beats,
            stepped=ending.beats and ending.made > 0,
            ranks=self.case.world if ending.beats else 1,
            ineffective=tuple(sorted(set(ending.ineffective))),
            loader=_loader(ending.workers) if ending.beats else None,
            precision=ending.precision,
            batch_split=None
            if ending.split is None
            else BatchSplit(batch=32, micro_batch=ending.split),
        )


def beat(ending: Ending, world: int) -> Heartbeat:
    return Heartbeat(
        pid=1, rank=0, world=world, thread=1, step=ending.made, beats=ending.made, phase="",
        since=0.0, last_step=None, ended=False, raised=False, total=None, seconds_in={},
        longest_in={}, histogram={},
    )  # fmt: skip


def _loader(workers: int) -> LoaderFacts:
    context = "fork" if workers else ""
    return LoaderFacts(loaders=1, workers=workers, context=context, pickles=True, main_guarded=True)


def _found(ending: Ending) -> HangEvidence:
    verdict = Verdict(condition=RunState.HUNG, why="no step", quiet=30.0, place=ending.place)
    return HangEvidence(
        verdict=verdict,
        evidence=Collected(folder="", missing={}),
    )


def failed(ending: Ending, end: AttemptEnd) -> Failure:
    """Return the failure as the classifier names it, before anything else is known of the run."""
    fingerprint = Fingerprint(kind=ending.kind, place=ending.place, step=end.last_step)
    return failure(ending.kind, fingerprint=fingerprint, seen=ending.seen, rank=ending.rank)


class Memory:
    """What the machine remembers."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def deadly(self, machine: str, script: str) -> tuple[Any, ...]:
        del machine, script
        return tuple(SimpleNamespace(strategy=each) for each in self._case.deadly)

    def what_helped(self, machine: str, script: str) -> tuple[Helped, ...]:
        return tuple(
            Helped(machine=machine, script=script, failure="", remedy=each, run="", at=0.0)
            for each in self._case.helped
        )

    def observations(self, machine: str) -> tuple[Any, ...]:
        del machine
        return ()


class Driven:
    """A run of which each attempt does what its history says."""

    def __init__(self, case: Case, machine: Machine, knowledge: Knowledge) -> None:
        self.case, self.clock, self.world = case, Clock(), World(case)
        self.events: list[Event] = []
        memory: Any = Memory(case)
        self.machine = RunMachine(
            script="s", here="m", memory=memory, knowledge=knowledge, machine=lambda: machine,
            variables={},
        )  # fmt: skip
        self.history = history_of((), case.options.strategy)
        self.helped: list[str] = []
        self.gone: Path | None = None
        self.drives = Drives(FOLDER, lambda: self.gone)

    def record(self, event: Event) -> None:
        self.events.append(event)
        self.history.add(event)

    def decided(self, number: int, decision: Decision) -> None:
        self.record(DecisionRecord(run=1, attempt=number, decision=decision, at=self.clock.now))

    def first(self) -> Decision:
        here = Here(machine=self.machine, now=self.clock.now)
        decision = first_decision(self.history, self.case.options, here)
        if not decision.ends and (decision.strategy != self.history.strategy or decision.asked):
            self.decided(0, decision)
        return decision

    def attempt(self, number: int) -> None:
        """Have one attempt end, and name why it failed."""
        ending, clock = self.case.endings[number - 1], self.clock
        at = self.world.newest(tuple(name for name, _ in self.history.avoid))
        row = AttemptRecord(
            run=1, number=number, strategy=self.history.strategy, boot_id="b", started=clock.now
        )
        self.record(row)
        end = self.world.end(ending, at, clock.now)
        clock.now += end.seconds
        self.gone = Path("/drive") if ending.gone else None
        self.record(
            msgspec.structs.replace(
                row, ended=clock.now, exit_code=end.exit.code if end.exit else None,
                signal=end.exit.signal if end.exit else None, outcome=end.outcome,
                first_step=end.first_step, last_step=end.last_step,
                result=end.result,
            )
        )  # fmt: skip
        if end.found:
            self.record(
                Incident(
                    run=1, attempt=number, number=self.history.incidents + 1,
                    verdict=RunState.HUNG, why="", place=end.found.verdict.place, quiet=1.0,
                    evidence="", at=clock.now,
                )
            )  # fmt: skip
        if is_failure(end):
            named = self.drives.judged(failed(ending, end), self.history, end.result)
            self.record(
                NamedFailure(run=1, attempt=number, failure=named, evidence="", at=clock.now)
            )
        if self.history.has_helped:
            self.helped.append(self.history.remedy)

    def here(self, number: int) -> Here:
        """Return what is true after an attempt."""
        case = self.case
        whole = case.resumes == "checkpoint"
        avoid = [name for name, _ in self.history.avoid]
        left = [name for name, _ in self.world.checkpoints if whole and name not in avoid]
        return Here(
            machine=self.machine,
            now=self.clock.now,
            can_resume=case.resumes != "not",
            checkpoints=min(2, len(left)),
            gone=str(self.gone or ""),
            in_allocation=case.scheduler,
            due=case.due,
            needs=case.endings[number - 1].needs,
        )


def decisions(case: Case, machine: Machine, knowledge: Knowledge) -> list[dict[str, Any]]:
    """Return what is decided after each attempt, up to the end of the run."""
    driven = Driven(case, machine, knowledge)
    with driven.clock.instead():
        return list(_decisions(driven))


def _decisions(driven: Driven) -> Iterator[dict[str, Any]]:
    case, history = driven.case, driven.history
    first = driven.first()
    why = first.why if first.crashed or first.ends else ""
    yield {"strategy": _fields(first.strategy), "start": why}
    if first.ends:
        return
    for number in range(1, len(case.endings) + 1):
        driven.attempt(number)
        decision = decide(history, case.options, driven.here(number))
        driven.decided(number, decision)
        yield {
            "named": history.failure.kind if history.failure else "",
            "next": decision.next.value,
            "code": decision.code if decision.ends else None,
            "why": decision.why,
            "remedy": decision.what if decision.fallback else decision.remedy,
            "kind": decision.kind,
            "fallback": decision.fallback,
            "waits": decision.waits,
            "wait": round(decision.wait, 1),
            "first": bool(decision.waits and decision.wait and not decision.announced),
            "strategy": _fields(history.strategy),
            "avoid": [name for name, _ in history.avoid],
            "reverted": decision.reverted,
            "gpu": decision.gpu_failed,
            "resume": decision.needs_resume,
            "announced": bool(decision.own_error),
            "save": history.save_after,
            "hung": history.hung.place if history.hung else "",
            "hangs": dict(history.hangs),
            "crashes": history.crashes,
            "keep": list(in_force(history, case.options, driven.machine)),
            "helped": list(driven.helped),
        }
        if decision.ends:
            return
        driven.clock.now += decision.wait


def _fields(strategy: Strategy) -> dict[str, Any]:
    return dict(msgspec.to_builtins(strategy))
