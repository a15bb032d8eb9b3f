"""What hosts of one job tell each other, and what their agents pass on: typed, and bounded.

Workarounds have names; no message has a variable. docs/howto/torchrun.md says what is trusted.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from msgspec import Meta, Raw

from rocsteady.failures.named_workarounds import Name, Workaround, workarounds_in
from rocsteady.model import FailedAttempt, Value

MAX_TRIED = 64  # failed attempts that are passed on; budgets look no further back
MAX_TEXT = 300  # characters
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Number = Annotated[int, Meta(ge=0, lt=1 << 53)]
Workarounds = Annotated[tuple[Workaround, ...], Meta(max_length=32)]
StampedPath = tuple[Annotated[str, Meta(max_length=4096)], float]


def as_text(text: str) -> str:
    """Return as much of a text as fits into a message."""
    return text.encode(errors="replace").decode()[:MAX_TEXT]


class Weight(IntEnum):
    """How much a host knows of why the ranks ended."""

    NOTHING = 0  # it restarts because others do, or its ranks only lost another one
    PERHAPS = 1  # its ranks failed, and it cannot tell why
    CAUSE = 2


class Tried(Value, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    workarounds: Workarounds = ()
    remedy: Name = ""
    kind: Name
    place: Text = ""
    step: Number | None = None
    start: Text = ""
    clears: bool = False
    progressed: bool = False
    steps: Number = 0

    @classmethod
    def of(cls, attempt: FailedAttempt) -> Tried:
        failure = attempt.failure
        return cls(
            workarounds=workarounds_in(attempt.strategy),
            remedy=attempt.remedy,
            kind=failure.kind,
            place=as_text(failure.place),
            step=failure.step,
            start=as_text(failure.start),
            clears=attempt.clears,
            progressed=attempt.progressed,
            steps=attempt.steps,
        )


class HostProposal(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a host would do next; if it is chosen, what all hosts do."""

    host: Number = 0
    weight: Weight = Weight.NOTHING
    end: Annotated[int, Meta(ge=0, le=255)] = 0  # the exit code; 0: the ranks are started again
    keeps: bool = False  # a restart would cost this host its checkpoints
    kind: Name = ""  # of the failure
    why: Text = ""  # for people
    failed: Text = ""  # what did on this host, for people of the others
    workarounds: Workarounds = ()  # in force
    remedy: Name = ""  # the last of them
    avoid: Annotated[tuple[StampedPath, ...], Meta(max_length=MAX_TRIED)] = ()  # checkpoints
    tried: Annotated[tuple[Tried, ...], Meta(max_length=MAX_TRIED)] = ()


class FailedRank(Value, frozen=True, kw_only=True):
    """The rank that torchrun saw fail first, and its exit code; below 0 is a signal."""

    rank: int
    code: int


class ReapedRank(Value, frozen=True, kw_only=True):
    """A rank that the agent has reaped, by its process; below 0 is a signal."""

    pid: int
    code: int


class AgentMessage(Value, frozen=True, kw_only=True):
    """One message of the agent on this host. What others say in it is read where it is judged."""

    generation: bool = False  # is about to start, with this host in this place:
    host: int = 0
    proposals: tuple[Raw, ...] | None = None  # of the other hosts, to choose from
    decision: Raw = Raw()  # for all hosts
    stopping: bool = False  # the ranks, for a new generation
    over: bool | None = None  # torchrun is: True, with success
    stopped: bool = False  # by a signal
    spare: bool = False  # this host was not needed
    failed: FailedRank | None = None
    reaped: ReapedRank | None = None
    confirm: int | None = None  # the question to which the proof is to be repeated
    parts: tuple[Raw, ...] | None = None  # of all hosts in a hang, to be judged
    of: int = 0  # hosts
    asked: int = 0  # the question that these answer
    still: float = 0.0  # seconds since
    hangs: bool = False  # the job does: it was decided
    lost: tuple[int, ...] = ()  # hosts without a sign of life

    @property
    def is_of_hang(self) -> bool:
        told = self.hangs or bool(self.lost)
        return told or self.confirm is not None or self.parts is not None
