"""Puts supervisors together: that of every run, drill, trial and probed script is made here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path

from rocsteady.doctor.knowledge.harmful_variables import harmful_variables
from rocsteady.doctor.knowledge.reader import Knowledge, load_knowledge
from rocsteady.doctor.knowledge.waits import load_waits
from rocsteady.doctor.machine.disk_root import DiskRoot
from rocsteady.doctor.machine.machine import Machine, examine
from rocsteady.hangs.verdict import Patience
from rocsteady.run.attempt_settings import Settings
from rocsteady.run.engines import plain
from rocsteady.run.engines.processes import Engine
from rocsteady.run.host_decision import Hosts
from rocsteady.run.job.values import Job
from rocsteady.run.loop import Supervisor
from rocsteady.run.notifications import Notifier
from rocsteady.run.observer import Observer
from rocsteady.run.run_spec import Equipment, RunSpec
from rocsteady.run.strategy_history import RunWishes, StrategyHistory
from rocsteady.store.identity import script_fingerprint
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import Memory
from rocsteady.system.child_end import OURS, TerminalUse


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the script of a run sees."""

    terminal: TerminalUse = OURS
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    quiet: bool = False  # nothing is said of the run but in its journal
    notices: Notifier | None = None  # who tells people that do not look
    engine: Engine = plain.start
    hosts: Hosts | None = None  # that run the same job; None: this one only


@dataclass(frozen=True, kw_only=True)
class SupervisorFactory:
    """Makes the supervisors of one command."""

    folder: Path  # the user's own
    journal: Journal
    memory: Memory | None  # by which strategies are chosen
    known: Knowledge = field(default_factory=load_knowledge)

    def course(self, wanted: RunWishes, job: Job) -> StrategyHistory:
        """Make the course of a run; the machine is examined when that is first needed."""

        @cache
        def machine() -> Machine:
            return examined(self.known)

        telling = {*self.known.variables, *(each.name for each in harmful_variables())}
        return StrategyHistory(
            wanted,
            script=script_fingerprint(job.command, str(self.folder)),
            here=self.journal.here.machine,
            memory=self.memory,
            knowledge=self.known,
            machine=machine,
            variables={name: os.environ[name] for name in telling if name in os.environ},
        )

    def supervisor(  # noqa: PLR0913 - each is said by name
        self,
        spec: RunSpec,
        wanted: RunWishes,
        settings: Settings,
        *,
        learns: bool,  # what it sees is true of this machine, and remembered
        surroundings: Surroundings,
        observers: Sequence[Observer] = (),
    ) -> Supervisor:
        """Return who carries out a run."""
        equipment = Equipment(
            settings=settings,
            journal=self.journal,
            memory=self.memory if learns else None,
            waits=load_waits(),
            known_variables=frozenset(self.known.variables),
            terminal=surroundings.terminal,
            environment=surroundings.environment,
            quiet=surroundings.quiet,
            notices=surroundings.notices,
            engine=surroundings.engine,
            hosts=surroundings.hosts,
        )
        return Supervisor(spec, equipment, self.course(wanted, spec.job), observers)


def examined(known: Knowledge) -> Machine:
    """Return what this machine is."""
    return examine(DiskRoot(), known.variables)[0]


def patience_for(hang_after: timedelta | None) -> Patience:
    """Return how long is too long; the user's own limit replaces those of all that is unproven."""
    return Patience(hang_after=hang_after)
