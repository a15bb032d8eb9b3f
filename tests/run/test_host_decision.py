"""One decision for all hosts: whose proposal is chosen, and what the others do with it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import msgspec
import pytest

from rocsteady.errors import LauncherError
from rocsteady.exit_codes import PERSON_NEEDED
from rocsteady.failures.situation import FailedAttempt
from rocsteady.hangs.judgment.phase_history import PhaseHistory
from rocsteady.model import Certainty, Failure, Fingerprint, Next, Outcome, Strategy
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.hosts.host_decision import (
    HostAgreement,
    HostDecision,
    Weight,
    choose,
)
from rocsteady.run.recovery.recovery import Decision
from rocsteady.run.telling.announcer import Announcer

TRIED = (FailedAttempt(strategy=Strategy(), failure=Fingerprint(kind="oom-device")),)
INLINE = Strategy(workers=0)


class Course:
    """As much of a course as an agreement needs."""

    def __init__(self) -> None:
        self.strategy, self.remedy = Strategy(), ""
        self.tried: tuple[FailedAttempt, ...] = ()
        self.given_up = 0

    def adopt(
        self, strategy: Strategy, remedy: str, tried: tuple[FailedAttempt, ...], given_up: int
    ) -> None:
        self.strategy, self.remedy, self.tried = strategy, remedy, tried
        self.given_up = given_up


class Hosts:
    """Other hosts that propose something; the host that is tested leads."""

    def __init__(self, *others: HostDecision) -> None:
        self._others = others

    def agree(
        self, mine: dict[str, Any], choose: Callable[..., dict[str, Any]]
    ) -> dict[str, Any] | None:
        if not self._others:
            return None  # torchrun has ended
        return choose([mine, *map(msgspec.to_builtins, self._others)])


def ended(outcome: Outcome, *, wrote: bool = False) -> AttemptEnd:
    return AttemptEnd(
        outcome=outcome,
        exit=None,
        seconds=1.0,
        progress_seconds=1.0,
        first_step=1,
        last_step=9,
        wrote_checkpoint=wrote,
        found=None,
        learned=PhaseHistory(),
        processes=(),
    )


def failed(kind: str) -> Failure:
    return Failure(
        kind=kind,
        title="",
        words="",
        certainty=Certainty.CERTAIN,
        fingerprint=Fingerprint(kind=kind),
        seen=(),
    )


AGAIN = Decision(next=Next.AGAIN, why="retrying", code=1)


def test_the_host_that_knows_the_cause_is_followed_whoever_leads() -> None:
    lost = HostDecision(host=0, ends=True, code=1, tried=TRIED * 3)
    perhaps = HostDecision(host=1, weight=Weight.PERHAPS)
    cause = HostDecision(host=2, weight=Weight.CAUSE, strategy=INLINE)

    for order in permutations([lost, perhaps, cause]):
        assert choose(order) == cause


def test_in_a_hang_the_host_is_followed_whose_ranks_do_not_only_wait_for_others() -> None:
    waits = HostDecision(host=0, weight=Weight.PERHAPS, kind="hang-in-collective", tried=TRIED)
    backward = HostDecision(host=1, weight=Weight.PERHAPS, kind="hang-in-backward")
    loader = HostDecision(host=2, weight=Weight.CAUSE, kind="hang-in-dataloader")

    assert choose([waits, backward]) == backward
    assert choose([waits, backward, loader]) == loader


def test_an_end_that_one_host_knows_to_be_due_ends_all() -> None:
    retry = HostDecision(host=0, weight=Weight.CAUSE)
    end = HostDecision(host=3, weight=Weight.CAUSE, ends=True, code=76)

    assert choose([retry, end]) == end


def test_without_a_cause_the_longest_memory_counts_and_nobody_ends_the_job_alone() -> None:
    new = HostDecision(host=0)
    remembers = HostDecision(host=2, tried=TRIED, strategy=INLINE)
    gives_up = HostDecision(host=1, ends=True, code=1, tried=TRIED * 2)

    assert choose([new, gives_up, remembers]) == remembers


def test_no_restart_costs_a_host_its_checkpoints() -> None:
    cause = HostDecision(host=1, weight=Weight.CAUSE)
    keeps = HostDecision(host=0, keeps=True, ends=True, code=76)

    assert choose([cause, keeps]) == keeps


def test_a_host_takes_up_the_strategy_and_the_history_of_the_one_that_decides() -> None:
    strategies = Course()
    other = HostDecision(
        host=1, weight=Weight.CAUSE, strategy=INLINE, remedy="loader-inline", tried=TRIED, why="so"
    )
    agreement = HostAgreement(Hosts(other), strategies, Announcer())  # type: ignore[arg-type]

    decision = agreement.settle(AGAIN, ended(Outcome.REPLACED), None)

    assert (strategies.strategy, strategies.tried, strategies.remedy) == (
        INLINE,
        TRIED,
        "loader-inline",
    )
    assert decision == Decision(
        next=Next.AGAIN,
        why="decided by host 1 for all hosts: so",
        code=0,
        remedy="loader-inline",
    )


def test_a_host_that_follows_into_the_end_has_its_code() -> None:
    other = HostDecision(host=1, weight=Weight.CAUSE, ends=True, code=PERSON_NEEDED, why="no")
    agreement = HostAgreement(Hosts(other), Course(), Announcer())  # type: ignore[arg-type]

    decision = agreement.settle(AGAIN, ended(Outcome.BY_ITSELF), failed("peer-died"))

    assert (decision.next, decision.code) == (Next.END, PERSON_NEEDED)


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [("peer-died", INLINE), ("unknown", Strategy()), ("oom-device", Strategy())],
)
def test_a_rank_that_only_lost_another_is_no_cause(kind: str, strategy: Strategy) -> None:
    strategies = Course()
    other = HostDecision(host=1, strategy=INLINE, tried=TRIED)
    agreement = HostAgreement(Hosts(other), strategies, Announcer())  # type: ignore[arg-type]

    agreement.settle(AGAIN, ended(Outcome.BY_ITSELF), failed(kind))

    assert strategies.strategy == strategy


def test_nothing_is_prepared_if_torchrun_has_ended() -> None:
    agreement = HostAgreement(Hosts(), Course(), Announcer())  # type: ignore[arg-type]
    end = Decision(next=Next.END, why="no", code=76)

    assert agreement.settle(end, ended(Outcome.BY_ITSELF), failed("peer-died")) is end
    with pytest.raises(LauncherError):
        agreement.settle(AGAIN, ended(Outcome.BY_ITSELF), failed("peer-died"))


def test_one_host_decides_for_itself() -> None:
    agreement = HostAgreement(None, Course(), Announcer())  # type: ignore[arg-type]

    assert agreement.settle(AGAIN, ended(Outcome.BY_ITSELF), None) is AGAIN
