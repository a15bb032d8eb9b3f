"""What came of an attempt."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

import msgspec
from rocsteady_train.untrusted_file import open_regular

from rocsteady.hangs.heartbeat_pages import (
    Applied,
    CheckpointRead,
    RaisedException,
    SavedFiles,
)
from rocsteady.hangs.judgment.phase_history import PhaseHistory
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.looking.collect import Collected
from rocsteady.hangs.looking.process_tree import Members
from rocsteady.hangs.values import Heartbeat, Snapshot
from rocsteady.model import BatchSplit, Blame, LoaderFacts, Outcome, Value, has_failed
from rocsteady.system.child_end import Exit
from rocsteady.system.logfile import timestamp


class HangEvidence(Value, frozen=True, kw_only=True):
    """What was found when it was hung."""

    verdict: Verdict
    evidence: Collected
    blame: Blame | None = None  # which rank holds up the others; None: there is only one


class AttemptEnd(Value, frozen=True, kw_only=True):
    """What came of an attempt."""

    outcome: Outcome
    exit: Exit | None
    seconds: float
    progress_seconds: float  # from its first step to its last
    first_step: int | None
    last_step: int | None
    total: int | None = None  # steps of the whole job, if the script or the job told
    before: int = 0  # the step that it went on from
    confirmed: bool = True  # by the script's own count
    own_counts: dict[str, int] = msgspec.field(
        default_factory=dict
    )  # other counts of the script's own, by their kind
    start: str = ""  # by which the checkpoint that it went on from is known again; "": none
    made: int = 0  # steps
    saves: int = 0  # how often it saved
    saved: SavedFiles = SavedFiles()
    unsure: int = 0  # by how many steps that may be too few, where they go on from a checkpoint
    wrote_checkpoint: bool  # or it cannot be told that it did not
    all_cut_off: bool = False  # no checkpoint of the run is whole; they were moved aside
    read: CheckpointRead | None = None  # that the script found by itself and went on from
    started_over: str = ""  # why it is known that it did so in place of resuming; "": it did not
    found: HangEvidence | None  # when it was hung
    learned: PhaseHistory
    processes: tuple[int, ...]  # that it had when it was last looked at
    began: float = 0.0  # by the monotonic clock
    snapshots: tuple[Snapshot, ...] = ()  # since its last progress, oldest first
    members: Members = Members()
    heartbeats: tuple[Heartbeat, ...] = ()
    raised: tuple[RaisedException, ...] = ()  # the first in time first
    oom_kills: int | None = None
    applied: tuple[Applied, ...] = ()  # what came of the settings of its strategy
    loader: LoaderFacts | None = None
    precision: str = ""  # the lowest that it computed in: fp32, bf16, fp16; "": not known
    batch_split: BatchSplit | None = None  # None: not trained through rocsteady_train.Loop

    @property
    def own_step(self) -> int | None:
        """How far it came by the script's own count; None if nothing confirms it."""
        return self.last_step if self.confirmed and (self.read is None or self.start) else None

    @property
    def checkpoint_found(self) -> str:
        """By what the checkpoint is known again that the script found by itself; "": none."""
        return f"{self.read.path} {self.read.written}" if self.read else ""


def is_failure(end: AttemptEnd) -> bool:
    """Return whether it failed: neither ended well nor was stopped."""
    return has_failed(end.outcome, end.exit.code if end.exit else None)


STOPPED_LINE = "rocsteady: stopped this attempt: "
_STOPPED_LINE = re.compile(rf"^{STOPPED_LINE}.*\n?", re.MULTILINE)


def mark_log_as_stopped(log: Path, end: AttemptEnd) -> None:
    """Add the line, if it was not the script that ended the attempt."""
    why = _stopped_because(end)
    if not why:
        return
    line = timestamp(time.time()) + f"{STOPPED_LINE}{why}.\n".encode(errors="replace")
    with contextlib.suppress(OSError), open_regular(log, follow=False, writable=True) as stream:
        stream.seek(0, os.SEEK_END)
        stream.write(line)  # no room, or no log: it stays without


def without_stopped_line(text: str) -> str:
    """Return a log, without the times, as the script alone would have left it."""
    return _STOPPED_LINE.sub("", text)


def _stopped_because(end: AttemptEnd) -> str:
    if end.outcome in (Outcome.HUNG, Outcome.UNKILLABLE) and end.found is not None:
        place = f", at {end.found.verdict.place}" if end.found.verdict.place else ""
        return f"hung, {end.found.verdict.why}{place}"
    if end.outcome is Outcome.AT_EXIT:
        return "the script finished but did not exit"
    return ""
