"""What came of an attempt."""

from __future__ import annotations

from enum import Enum

from rocsteady.evidence.collect import Collected
from rocsteady.host.child import Exit
from rocsteady.pulse.learning import Learned
from rocsteady.pulse.verdict import Verdict
from rocsteady.vocabulary import Value


class Outcome(Enum):
    """How an attempt ended."""

    BY_ITSELF = "by itself"
    HUNG = "hung"
    AT_EXIT = "hung at exit, after its work"
    STOPPED = "stopped by the user"
    UNKILLABLE = "cannot be killed"


class Found(Value, frozen=True, kw_only=True):
    """What was found when it was hung."""

    verdict: Verdict
    evidence: Collected


class AttemptEnd(Value, frozen=True, kw_only=True):
    """What came of an attempt."""

    outcome: Outcome
    exit: Exit | None
    seconds: float
    progress_seconds: float  # from its first step to its last
    first_step: int | None
    last_step: int | None
    wrote_checkpoint: bool  # or it cannot be told that it did not
    found: Found | None  # when it was hung
    learned: Learned
    processes: tuple[int, ...]  # that it had when it was last looked at
