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
from rocsteady.hangs.heartbeat_pages import (
    Applied,
    BatchSplit,
    CheckpointRead,
    LoaderFacts,
    SavedFiles,
    SettingOutcome,
)
from rocsteady.hangs.judgment.phase_history import PhaseHistory
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.looking.collect import Collected
from rocsteady.hangs.values import Heartbeat
from rocsteady.model import Failure, Fingerprint, Next, Outcome, RunState, Strategy
from rocsteady.run.attempt.attempt_end import AttemptEnd, HangEvidence
from rocsteady.run.checkpoints.resume import Checkpoint
from rocsteady.run.job.values import Job
from rocsteady.run.options import Timing
from rocsteady.run.recovery import attempt_review
from rocsteady.run.recovery.attempt_review import AttemptReview
from rocsteady.run.recovery.option_stop import OptionStop
from rocsteady.run.recovery.strategy_history import StrategyHistory
from rocsteady.store.values import Helped, Run, Sample
from rocsteady.system.child_end import Exit
from tests.run.decisions.histories import STARTED, Case, Ending
from tests.values import failure

FOLDER = Path("/nonexistent")
RUN = Run(
    id=1, name="calm-otter", command=("python", "train.py"), job={}, strategy=Strategy(),
    folder="/nonexistent/run", machine="m", boot_id="b", process="", started=STARTED,
)  # fmt: skip


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
        seconds = ending.made * ending.step_seconds
        exit_ = Exit(code=ending.code, signal=ending.signal, rank=ending.rank)
        return AttemptEnd(
            outcome=ending.outcome,
            exit=None if ending.outcome is Outcome.UNKILLABLE else exit_,
            seconds=seconds + ending.starting,
            progress_seconds=seconds,
            first_step=base + 1 if ending.made else None,
            last_step=last if ending.made or base else None,
            before=base,
            confirmed=ending.confirmed,
            own_counts=dict(ending.counts),
            start=start[0] if start else "",
            made=ending.made,
            saves=ending.saves,
            saved=SavedFiles(failed=ending.saved_failed),
            wrote_checkpoint=ending.wrote,
            all_cut_off=ending.all_cut_off,
            read=CheckpointRead(path=own[0], written=own[1]) if own else None,
            started_over="no reads" if ending.outcome is Outcome.STARTED_OVER else "",
            found=_found(ending) if ending.outcome in (Outcome.HUNG, Outcome.UNKILLABLE) else None,
            learned=PhaseHistory(),
            processes=(),
            began=began,
            heartbeats=(beat(ending, self.case.world),) if ending.beats else (),
            applied=tuple(
                Applied(pid=1, setting=each, outcome=SettingOutcome.NO_EFFECT, times=0, why="")
                for each in ending.ineffective
            ),
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
    return LoaderFacts(
        loaders=1, workers=workers, context=context, pickles=True, main_guarded=True, map_style=True
    )


def _found(ending: Ending) -> HangEvidence:
    verdict = Verdict(condition=RunState.HUNG, why="no step", quiet=30.0, place=ending.place)
    return HangEvidence(
        verdict=verdict,
        evidence=Collected(folder="", attempt="", seconds=0.0, files=(), missing={}),
    )


def failed(ending: Ending, end: AttemptEnd) -> Failure:
    """Return the failure as the classifier names it, before anything else is known of the run."""
    fingerprint = Fingerprint(kind=ending.kind, place=ending.place, step=end.last_step)
    return failure(ending.kind, fingerprint=fingerprint, seen=ending.seen, rank=ending.rank)


class Memory:
    """What the machine remembers."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.added: list[Helped] = []

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

    def helped(self, helped: Helped) -> None:
        self.added.append(helped)


class Checkpoints:
    """As much of the run's checkpoints as a review looks at."""

    def __init__(self, world: World) -> None:
        self.world, self.job, self.folder = world, Job(command=RUN.command), FOLDER
        self.avoid: list[Checkpoint] = []
        self.is_gone = self.is_unproven = False

    @property
    def can_resume(self) -> bool:
        return self.world.case.resumes != "not"

    @property
    def gone(self) -> Path | None:
        return Path("/drive") if self.is_gone else None

    @property
    def avoided(self) -> tuple[str, ...]:
        return tuple(str(each.path) for each in self.avoid)

    def ended(self, end: AttemptEnd) -> None:
        pass

    def whole(self) -> Iterator[Checkpoint]:
        for name, written in reversed(self.world.checkpoints):
            if self.world.case.resumes == "checkpoint" and name not in self.avoided:
                yield Checkpoint(path=Path(name), written=float(written))


class Announced:
    """Keeps nothing."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever is announced
        if name == "bug":
            return self._raise
        return lambda *_, **__: None

    def _raise(self, _effect: str, error: Exception) -> None:
        raise error


class Monitor:
    def __init__(self, due: float | None) -> None:
        self.due = due
        self.pace: float | None = None

    def needs(self) -> float | None:
        return self.pace

    def other_option(self) -> None:
        pass

    def forecast(self, now: float) -> None:
        del now


def decisions(case: Case, machine: Machine, knowledge: Knowledge) -> list[dict[str, Any]]:
    """Return what is decided after each attempt, up to the end of the run."""
    clock = Clock()
    with (
        clock.instead(),
        patch.object(attempt_review, "collect_symptoms", lambda *_: None),
        patch.object(AttemptReview, "_keep", lambda *_: ""),
    ):
        return list(_decisions(case, machine, knowledge, clock))


def _decisions(
    case: Case, machine: Machine, knowledge: Knowledge, clock: Clock
) -> Iterator[dict[str, Any]]:
    world = World(case)
    memory: Any = Memory(case)
    checkpoints: Any = Checkpoints(world)
    monitor: Any = Monitor(case.due)
    options = case.options
    strategies = StrategyHistory(
        options, script="s", here="m", memory=memory, knowledge=knowledge,
        machine=lambda: machine, variables={},
    )  # fmt: skip
    stop = OptionStop(options)
    environment = {"SLURM_JOB_ID": "1"} if case.scheduler else {}
    services: Any = SimpleNamespace(
        announcer=Announced(), environment=environment, known_variables={}, hosts=None
    )
    spec: Any = SimpleNamespace(folder=FOLDER, run=RUN, records=FOLDER)
    records: Any = SimpleNamespace(failed=lambda *_: None)
    review = AttemptReview(
        spec, options, services, checkpoints=checkpoints,
        records=records, strategies=strategies,
        deadline_monitor=monitor, option_stop=stop,
    )  # fmt: skip
    first = strategies.start()
    yield {"strategy": _fields(strategies.strategy), "start": first.why if first else ""}
    if first is not None and first.strategy is None:
        return
    for number, ending in enumerate(case.endings, 1):
        at = world.newest(checkpoints.avoided)
        stop.seen(Sample(at=clock.now, step=0, verdict=RunState.STARTING, quiet=0.0))
        end = world.end(ending, at, clock.now)
        clock.now += end.seconds
        monitor.pace, checkpoints.is_gone = ending.needs, ending.gone
        with patch.object(strategies, "name", lambda _, e=ending, f=end: failed(e, f)):
            context: Any = SimpleNamespace(number=number, resumed=bool(at))
            named = review.name(context, end)
        started_from = Checkpoint(path=Path(at[0]), written=float(at[1])) if at else None
        decision = review.decide(end, named, attempts=number, started_from=started_from)
        wait = review.backoff.wait() if decision.next is not Next.END else None
        quick = end.seconds < Timing().quick_crash.total_seconds()
        again = bool(wait and quick and end.outcome is Outcome.BY_ITSELF and wait.repeats)
        seconds = wait.seconds if wait and (decision.waits or again) else 0.0
        yield {
            "named": named.kind if named else "",
            "next": decision.next.value,
            "code": decision.code if decision.next is Next.END else None,
            "why": decision.why,
            "remedy": decision.remedy,
            "kind": decision.kind,
            "fallback": decision.fallback,
            "waits": decision.waits,
            "wait": round(seconds, 1),
            "first": bool(wait and decision.waits and wait.seconds > 0 and wait.first),
            "strategy": _fields(strategies.strategy),
            "avoid": list(checkpoints.avoided),
            "reverted": decision.proposal.reverted if decision.proposal else "",
            "gpu": decision.gpu_failed,
            "resume": decision.needs_resume,
            "announced": decision.is_announced,
            "save": review.starts.save_after,
            "planned": review.planned_restart.after if review.planned_restart else None,
            "hung": review.hung.place if review.hung else "",
            "hangs": dict(review.hangs_at),
            "crashes": review.crashes,
            "keep": list(strategies.in_force),
            "helped": [each.remedy for each in memory.added],
        }
        if decision.next is Next.END:
            return
        clock.now += seconds


def _fields(strategy: Strategy) -> dict[str, Any]:
    return dict(msgspec.to_builtins(strategy))
