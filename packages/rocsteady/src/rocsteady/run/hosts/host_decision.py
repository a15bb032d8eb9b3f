"""One decision for all hosts of a job: each host proposes one, and the leader chooses.

Every watcher makes its proposal with the same code and the same history. The one that is chosen
replaces the history of all, so that any host can lead the next time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Protocol

import msgspec

from rocsteady.errors import LauncherError
from rocsteady.model import Decision, FailedAttempt, FailureKind, Next, Outcome, Value
from rocsteady.run.recovery.history import History

# What ranks report that only lost another one.
CASCADES = (
    FailureKind.PEER_DIED,
    FailureKind.COLLECTIVE_ERROR,
    FailureKind.COLLECTIVE_TIMEOUT,
    FailureKind.RENDEZVOUS_FAILED,
)
# What may also be a rank that waits for others, as those of another host; the surest first.
VAGUE = (FailureKind.HANG_IN_BACKWARD, FailureKind.UNKNOWN, FailureKind.HANG_IN_COLLECTIVE)
MAX_TRIED = 64  # failed attempts that are passed on; budgets look no further back

Message = dict[str, Any]


class Weight(IntEnum):
    """How much a host knows of why the ranks ended."""

    NOTHING = 0  # it restarts because others do, or its ranks only lost another one
    PERHAPS = 1  # its ranks failed, and it cannot tell why
    CAUSE = 2


class HostProposal(Value, frozen=True, kw_only=True):
    """What a host would do next; if it is chosen, what all hosts do."""

    decision: Decision
    host: int = 0
    weight: Weight = Weight.NOTHING
    keeps: bool = False  # a restart would cost this host its checkpoints
    kind: str = ""  # of the failure
    tried: tuple[FailedAttempt, ...] = ()
    given_up: int = 0  # how many of these were on options that were given up


def choose(proposals: Sequence[HostProposal]) -> HostProposal:
    """Choose what all hosts do: what the host proposes that knows most of the cause."""
    chosen = min(
        proposals,
        key=lambda each: (
            -each.weight,
            VAGUE.index(each.kind) if each.kind in VAGUE else -1,
            not each.decision.ends if each.weight else each.decision.ends,
            -len(each.tried),
            each.host,
        ),
    )
    keeping = [each for each in proposals if each.keeps]
    return keeping[0] if keeping and not chosen.decision.ends else chosen


class Agreeing(Protocol):
    """The way to the other hosts."""

    def agree(self, mine: Message, choose: Callable[[list[Message]], Message]) -> Message | None:
        """Return what was chosen of the proposals of all hosts; None: torchrun has ended."""


class HostAgreement:
    """Has each decision made for all hosts, before it is recorded and carried out."""

    def __init__(self, hosts: Agreeing | None) -> None:
        self._hosts = hosts

    def start(self, own: Decision, history: History) -> Decision:
        """Agree on what the first attempt of this supervisor runs with."""
        return self._agreed(_proposal(own, history)) or own

    def agree(self, own: Decision, history: History) -> Decision:
        """Return what is done by all in place of what this host would do."""
        if self._hosts is None or (own.ends and own.code == 0):
            return own
        weight = _weight(history)
        keeps = own.ends and not own.exhausted and history.result.wrote_checkpoint
        mine = _proposal(
            own,
            history,
            weight=max(weight, Weight.PERHAPS) if keeps else weight,  # so that it is heard
            keeps=keeps,
            kind=history.failure.kind if history.failure else "",
        )
        decision = self._agreed(mine)
        if decision is None and not own.ends:
            raise LauncherError("torchrun has ended and will not restart its ranks")
        return decision or own

    def _agreed(self, mine: HostProposal) -> Decision | None:
        """Return the decision for all; None: there is nobody to agree with."""
        answer = self._hosts.agree(msgspec.to_builtins(mine), _chosen) if self._hosts else None
        if answer is None:
            return None
        own, chosen = mine.decision, msgspec.convert(answer, HostProposal)
        if _essence(chosen) == _essence(mine):
            return own
        again = Next.AGAIN if own.ends else own.next
        why = chosen.decision.why or "start"
        return msgspec.structs.replace(
            chosen.decision,
            next=Next.END if chosen.decision.ends else again,
            why=f"decided by host {chosen.host} for all hosts: {why}",
            host=chosen.host,
            tried=chosen.tried,
            given_up=chosen.given_up,
            waits=False,
            wait=0.0,
            gpu_failed=own.gpu_failed,
            own_error="",
        )


def _proposal(own: Decision, history: History, **known: Any) -> HostProposal:  # noqa: ANN401 - fields, by name
    tried = tuple(history.tried)[-MAX_TRIED:]
    given_up = max(0, history.given_up - (len(history.tried) - len(tried)))
    return HostProposal(decision=own, tried=tried, given_up=given_up, **known)


def _essence(proposal: HostProposal) -> tuple[object, ...]:
    """Return what hosts must agree in."""
    decision = proposal.decision
    next_ = decision.next, decision.code, decision.strategy, decision.avoid
    return (*next_, decision.remedy, decision.fallback, proposal.tried, proposal.given_up)


def _chosen(proposals: list[Message]) -> Message:
    read = [msgspec.convert(each, HostProposal) for each in proposals]
    return dict(msgspec.to_builtins(choose(read)))


def _weight(history: History) -> Weight:
    """Return how much this host knows of the cause."""
    failure, outcome = history.failure, history.last.outcome if history.last else Outcome.NONE
    if outcome in (Outcome.STOPPED, Outcome.UNKILLABLE, Outcome.AT_EXIT, Outcome.STARTED_OVER):
        return Weight.CAUSE
    if failure is None or failure.kind in CASCADES:
        return Weight.NOTHING
    return Weight.PERHAPS if failure.kind in VAGUE else Weight.CAUSE
