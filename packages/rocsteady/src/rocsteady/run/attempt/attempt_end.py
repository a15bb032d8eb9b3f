"""What came of an attempt."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from rocsteady_train.untrusted_file import open_regular

from rocsteady.hangs.heartbeat_pages import (
    Applied,
    CheckpointRead,
    RaisedException,
    SavedFiles,
)
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.looking.collect import Collected
from rocsteady.hangs.looking.process_tree import Members
from rocsteady.hangs.values import Heartbeat, Snapshot
from rocsteady.model import Blame, Outcome, Value, has_failed
from rocsteady.store.values import AttemptResult, PhaseHistory
from rocsteady.system.child_end import Exit
from rocsteady.system.logfile import timestamp


class HangEvidence(Value, frozen=True, kw_only=True):
    verdict: Verdict
    evidence: Collected
    blame: Blame | None = None  # which rank holds up the others; None: there is only one

    @property
    def cause(self) -> str:
        """The line that holds up the run; "" if nobody can tell."""
        own = self.verdict.place
        return self.blame.cause(own) if self.blame else own


class AttemptEnd(AttemptResult, frozen=True, kw_only=True):
    """What came of an attempt: what is recorded of it, and what only the supervisor looks at."""

    outcome: Outcome
    exit: Exit | None
    first_failure: Exit | None = None  # of a rank, as far as it was seen
    first_step: int | None
    last_step: int | None
    total: int | None = None  # steps of the whole job, if the script or the job told
    saved: SavedFiles = SavedFiles()
    unsure: int = 0  # by how many steps that may be too few, where they go on from a checkpoint
    read_checkpoint: CheckpointRead | None = None  # that the script found by itself
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

    @property
    def result(self) -> AttemptResult:
        """What a later decision may need to know of it."""
        kept = {name: getattr(self, name) for name in AttemptResult.__struct_fields__}
        return AttemptResult(**kept)


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
