"""A job, as values: what the user wants done, in parts."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum

import msgspec

from rocsteady.model import Deadline, Value
from rocsteady.run.job.metrics import Metrics
from rocsteady.run.job.notify import Notify
from rocsteady.system.logfile import LOG_BYTES, LogRules

CHECKPOINT = "{checkpoint}"


class FileKind(Enum):
    """What a file must be to count as readable."""

    MODEL = "model"
    JSON = "json"
    ANY = "any"


class WantedFile(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str  # a pattern, from the folder of the job file
    kind: FileKind = FileKind.ANY
    readable: bool = True


class DoneWhen(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must be so when the command ends, besides exit code 0."""

    files: tuple[WantedFile, ...] = ()
    steps: int | None = None
    epochs: int | None = None
    absent_text: tuple[str, ...] = ()
    present_text: tuple[str, ...] = ()
    gpus_busy: int | None = None
    within: timedelta | None = None


class Existing(Enum):
    """What a new run does about checkpoints that it did not write."""

    CONTINUE = "continue"
    FRESH = "fresh"
    REFUSE = "refuse"


class Resume(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the command is told to go on from a checkpoint."""

    arguments: tuple[str, ...] = ()  # added to the command
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    checkpoints: tuple[str, ...]  # patterns, from the folder of the job file
    existing: Existing | None = None  # None: continue if the last run of the job was unfinished


class Total(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    steps: int | None = None
    epochs: int | None = None
    log: str = ""  # a pattern for lines that count the work; its groups are n and total

    @property
    def count(self) -> int | None:
        """All of it in the units in which it is counted: steps, or those of the pattern."""
        return self.steps or (self.epochs if self.log else None)


class Variant(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same script with another model, another batch or other variables."""

    arguments: tuple[str, ...] = ()  # each takes the place of what the command has
    without: tuple[str, ...] = ()  # words of the command
    environment: dict[str, str] = msgspec.field(default_factory=dict)  # only plan tries it
    total: Total | None = None  # None: as the job's
    words: str = ""  # what is other, for people


class Stage(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the job that must be done before the next one starts. None: as the job's."""

    name: str
    arguments: tuple[str, ...] = ()
    variant: str = ""
    total: Total | None = None
    done_when: DoneWhen | None = None
    deadline: Deadline | None = None


class Job(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    command: tuple[str, ...]
    name: str | None = None
    total: Total | None = None
    deadline: Deadline | None = None
    budget: float | None = None  # dollars
    hang_after: timedelta | None = None
    log_limit: int = LOG_BYTES  # bytes of the log of an attempt
    resume: Resume | None = None
    resume_trainer: bool = False  # a plain trainer.train() or fit() is given the checkpoint
    done_when: DoneWhen = DoneWhen()
    variants: dict[str, Variant] = msgspec.field(default_factory=dict)
    stages: tuple[Stage, ...] = ()
    notify: Notify | None = None
    metrics: Metrics | None = None

    @property
    def log_rules(self) -> LogRules:
        """How much of a log is kept, and what of it in any case."""
        texts = (*self.done_when.absent_text, *self.done_when.present_text)
        return LogRules(limit=self.log_limit, keep=texts)
