"""Where and as what an attempt takes place, and what it works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rocsteady_train.inside import wire

from rocsteady.hangs.heartbeat_pages import Resumes
from rocsteady.hangs.phase_history import PhaseHistory
from rocsteady.hangs.stack_facts import KnownWaits
from rocsteady.model import Strategy, Value
from rocsteady.run.announcer import Announcer
from rocsteady.run.attempt_settings import Settings
from rocsteady.run.engines.processes import Engine
from rocsteady.run.injection import Injection
from rocsteady.run.job_hang import HostLink
from rocsteady.run.step_times import StepTimes
from rocsteady.run.stop_requests import StopRequests
from rocsteady.store.journal import Journal
from rocsteady.system.logfile import LogRules


class AttemptContext(Value, frozen=True, kw_only=True):
    """Where and as what an attempt takes place."""

    run: int  # its key in the journal
    number: int
    run_id: str  # of this attempt, by which its processes are found
    folder: Path  # the user's
    records: Path  # ours: log and incidents
    incident: int  # the number that the next incident gets
    injection: Injection | None  # None: the page could not be made
    environment: Mapping[str, str]  # the user's
    told: Mapping[str, str]  # the variables of it that evidence may hold
    learned: PhaseHistory | None
    total: int | None  # steps, if the job says so
    log_rules: LogRules = LogRules()
    pattern: str = ""  # for lines that count the work, if the job names one
    strategy: Strategy = Strategy()
    before: int = 0  # steps that the checkpoint has, from which it goes on, about
    resumed: bool = False  # it goes on from a checkpoint
    save_after: int | None = None  # steps, where earlier attempts did not come to a save
    between_failures: float | None = None  # seconds, as earlier runs here showed

    @property
    def saving(self) -> dict[str, str]:
        """What rocsteady_train.Loop is told of when to save, as variables."""
        told = {wire.BETWEEN_FAILURES: self.between_failures, wire.SAVE_AFTER: self.save_after}
        return {name: f"{value:.0f}" for name, value in told.items() if value is not None}

    @property
    def log(self) -> Path:
        """The kept log."""
        return self.records / f"attempt-{self.number}.log"


@dataclass(frozen=True, kw_only=True)
class AttemptTools:
    """What an attempt works with."""

    settings: Settings
    journal: Journal
    announcer: Announcer
    wishes: StopRequests
    waits: KnownWaits
    marks: StepTimes
    engine: Engine
    hosts: HostLink | None = None  # that run the same job; None: this one only
    resumes: Callable[[tuple[Resumes, ...]], None]  # is called once a script tells that it does
