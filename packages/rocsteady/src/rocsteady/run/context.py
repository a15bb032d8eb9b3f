"""What a run is about, what it uses, and where one of its attempts takes place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rocsteady_train.inside import wire

from rocsteady.doctor.knowledge.reader import Knowledge, load_knowledge
from rocsteady.doctor.knowledge.waits import WaitKnowledge, load_waits
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.model import Strategy, Value
from rocsteady.run.attempt.injection import Injection
from rocsteady.run.checkpoints.checkpoints import StepEstimate
from rocsteady.run.checkpoints.resume import Checkpoint, Launch, Origin
from rocsteady.run.engines.plain_command import Engine, start_command
from rocsteady.run.engines.torchrun import AgentLink
from rocsteady.run.job.values import Job
from rocsteady.run.stop_requests import StopRequests
from rocsteady.run.telling.announcer import Announcer
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import Incident, PhaseHistory, Run, RunRecord
from rocsteady.system.child_end import INHERIT_TERMINAL, TerminalUse

if TYPE_CHECKING:  # it imports this module
    from rocsteady.run.telling.notifications import Notifier


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    job: Job
    run: Run
    folder: Path  # the user's
    seen_as: tuple[Path, ...] = ()  # other paths by which the script sees its folder
    earlier: RunRecord | None = None  # of a run that was left
    origin: Origin | None = None  # of the checkpoints that a new run finds
    note: str = ""  # what is to be said of them

    @property
    def records(self) -> Path:
        """Where the log and the evidence of the run lie."""
        return Path(self.run.folder)


@dataclass(frozen=True, kw_only=True)
class Services:
    """What a run uses that is not its own: one value, from the command to the attempt."""

    journal: Journal
    announcer: Announcer
    memory: Memory | None = None  # of this machine
    learns: bool = True  # what the run shows is true of this machine, and added to its memory
    notifier: Notifier | None = None
    terminal: TerminalUse = INHERIT_TERMINAL
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)  # the user's
    engine: Engine = start_command
    hosts: AgentLink | None = None  # that run the same job; None: this one only
    knowledge: Knowledge = field(default_factory=load_knowledge)
    waits: WaitKnowledge = field(default_factory=load_waits)
    stop_requests: StopRequests = field(default_factory=StopRequests)

    @property
    def known_variables(self) -> dict[str, str]:
        """The variables of the environment that evidence may hold."""
        known = self.knowledge.variables
        return {name: value for name, value in self.environment.items() if name in known}


class HangPlace(NamedTuple):
    place: str
    step: int | None
    ranks: tuple[int, ...] = ()  # that stand out


def hang_place(hang: Verdict | Incident, step: int | None) -> HangPlace:
    """Return where a run hung, at a step."""
    ranks = hang.blame.ranks if hang.blame else ()
    return HangPlace(hang.place, step, tuple(each.rank for each in ranks))


class AttemptContext(Value, frozen=True, kw_only=True):
    """Where and as what an attempt takes place."""

    spec: RunSpec
    number: int
    launch: Launch
    checkpoint: Checkpoint | None = None  # that it goes on from
    before: StepEstimate = StepEstimate()  # steps that it does not have to make
    run_id: str = ""  # of this attempt, by which its processes are found
    incident: int = 1  # the number that the next incident gets
    hung_before: HangPlace | None = None  # where the attempt before this one hung
    injection: Injection | None = None  # None: the page could not be made
    learned: PhaseHistory | None = None
    strategy: Strategy = Strategy()
    save_after: int | None = None  # steps, where earlier attempts did not come to a save
    between_failures: float | None = None  # seconds, as earlier runs here showed

    @property
    def saving(self) -> dict[str, str]:
        """When rocsteady_train.Loop is to save, as variables."""
        values = {wire.BETWEEN_FAILURES: self.between_failures, wire.SAVE_AFTER: self.save_after}
        return {name: f"{value:.0f}" for name, value in values.items() if value is not None}

    @property
    def pages(self) -> Path | None:
        """Where its processes write their heartbeats."""
        return self.injection.pages if self.injection else None

    @property
    def log(self) -> Path:
        return self.spec.records / f"attempt-{self.number}.log"
