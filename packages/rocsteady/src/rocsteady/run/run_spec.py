"""What a supervisor carries out, where, and what it works with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocsteady.hangs.stack_facts import KnownWaits
from rocsteady.run.attempt_settings import Settings
from rocsteady.run.engines import plain
from rocsteady.run.engines.processes import Engine
from rocsteady.run.host_decision import Hosts
from rocsteady.run.job.resume import Origin
from rocsteady.run.job.values import Job
from rocsteady.run.notifications import Notifier
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import Run, RunStory
from rocsteady.system.child_end import OURS, TerminalUse


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """What is carried out, and where."""

    job: Job
    run: Run
    folder: Path
    seen_as: tuple[Path, ...] = ()  # other paths by which the script sees its folder
    is_listed: bool = True  # other commands know the run by its name
    earlier: RunStory | None = None  # of a run that was left
    origin: Origin | None = None  # of the checkpoints that a new run finds
    note: str = ""  # what is to be said of them


@dataclass(frozen=True, kw_only=True)
class Equipment:
    """What a supervisor works with."""

    settings: Settings
    journal: Journal
    memory: Memory | None  # that it may add to
    waits: KnownWaits
    known_variables: frozenset[str]
    terminal: TerminalUse = OURS
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    quiet: bool = False  # only the journal is told
    notices: Notifier | None = None
    engine: Engine = plain.start
    hosts: Hosts | None = None  # that run the same job; None: this one only
