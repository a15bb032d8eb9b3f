"""One decision for all hosts of a job: each host proposes one, and the leader chooses.

Every watcher makes its proposal with the same code and the same history. The one that is chosen
replaces the history of all, so that any host can lead the next time.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import msgspec

from rocsteady.errors import LauncherError
from rocsteady.failures.situation import FailedAttempt
from rocsteady.model import Failure, FailureKind, Next, Outcome, Strategy, Value
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.engines.torchrun import AgentLink
from rocsteady.run.recovery.recovery import Decision
from rocsteady.run.recovery.strategy_history import StrategyHistory
from rocsteady.run.telling.announcer import Announcer
from rocsteady.wording import plural

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


class HostDecision(Value, frozen=True, kw_only=True):
    """What a host would do next; if it is chosen, what all hosts do."""

    host: int = 0
    weight: Weight = Weight.NOTHING
    keeps: bool = False  # a restart would cost this host its checkpoints
    ends: bool = False
    code: int = 0  # with which the job ends, if it does
    why: str = ""
    remedy: str = ""
    kind: str = ""  # of the failure
    strategy: Strategy = Strategy()
    tried: tuple[FailedAttempt, ...] = ()
    given_up: int = 0  # how many of these were on options that were given up


def choose(proposals: Sequence[HostDecision]) -> HostDecision:
    """Choose what all hosts do: what the host proposes that knows most of the cause."""
    chosen = min(
        proposals,
        key=lambda each: (
            -each.weight,
            VAGUE.index(each.kind) if each.kind in VAGUE else -1,
            not each.ends if each.weight else each.ends,
            -len(each.tried),
            each.host,
        ),
    )
    keeping = [each for each in proposals if each.keeps]
    return keeping[0] if keeping and not chosen.ends else chosen


class HostAgreement:
    """Has each decision of a run made for all hosts; with one host, there is nothing to do."""

    def __init__(
        self, hosts: AgentLink | None, strategies: StrategyHistory, announcer: Announcer
    ) -> None:
        self._hosts, self._strategies, self._announcer = hosts, strategies, announcer

    def start(self) -> None:
        """Agree on what the first attempt of this watcher runs with."""
        mine = self._proposal()
        decision = self._agreed(mine)
        if decision is not None and decision.tried:
            failed = plural(len(decision.tried), "failure")
            self._announcer.say(f"using the history of the other hosts: {failed} of this job.")

    def settle(self, own: Decision, end: AttemptEnd, failure: Failure | None) -> Decision:
        """Replace what this host decided with what is done by all."""
        if self._hosts is None or (own.next is Next.END and own.code == 0):
            return own
        weight, keeps = _weight(end, failure), _is_refused(own) and end.wrote_checkpoint
        mine = self._proposal(
            weight=max(weight, Weight.PERHAPS) if keeps else weight,  # so that it is heard
            keeps=keeps,
            ends=own.next is Next.END,
            code=own.code,
            why=own.why,
            remedy=own.remedy,
            kind=failure.kind if failure else "",
        )
        decision = self._agreed(mine)
        if decision is None and own.next is not Next.END:
            raise LauncherError("torchrun has ended and will not restart its ranks")
        if decision is None or _is_same(decision, mine):
            return own
        again = Next.AGAIN if own.next is Next.END else own.next
        return Decision(
            next=Next.END if decision.ends else again,
            why=f"decided by host {decision.host} for all hosts: {decision.why or 'start'}",
            code=decision.code,
            remedy=decision.remedy,
            kind=decision.kind,
        )

    def _proposal(self, **known: Any) -> HostDecision:  # noqa: ANN401 - fields, by name
        strategies = self._strategies
        tried = tuple(strategies.tried)[-MAX_TRIED:]
        given_up = max(0, strategies.given_up - (len(strategies.tried) - len(tried)))
        return HostDecision(strategy=strategies.strategy, tried=tried, given_up=given_up, **known)

    def _agreed(self, mine: HostDecision) -> HostDecision | None:
        if self._hosts is None:
            return None
        answer = self._hosts.agree(msgspec.to_builtins(mine), _chosen)
        if answer is None:
            return None
        decision = msgspec.convert(answer, HostDecision)
        if not _is_same(decision, mine):
            self._strategies.adopt(
                decision.strategy, decision.remedy, decision.tried, decision.given_up
            )
        return decision


def _chosen(proposals: list[Message]) -> Message:
    read = [msgspec.convert(each, HostDecision) for each in proposals]
    return dict(msgspec.to_builtins(choose(read)))


def _is_same(decision: HostDecision, mine: HostDecision) -> bool:
    return decision == msgspec.structs.replace(mine, host=decision.host)


def _is_refused(own: Decision) -> bool:
    """Return whether this is an end that no remedy could change."""
    proposal = own.proposal
    return own.next is Next.END and (proposal is None or proposal.strategy is not None)


def _weight(end: AttemptEnd, failure: Failure | None) -> Weight:
    if end.outcome in (Outcome.STOPPED, Outcome.UNKILLABLE, Outcome.AT_EXIT, Outcome.STARTED_OVER):
        return Weight.CAUSE
    if failure is None or failure.kind in CASCADES:
        return Weight.NOTHING
    return Weight.PERHAPS if failure.kind in VAGUE else Weight.CAUSE
