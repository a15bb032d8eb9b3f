"""One decision for all hosts: whose proposal is chosen, and what the others do with it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from rocsteady.errors import LauncherError
from rocsteady.exit_codes import PERSON_NEEDED
from rocsteady.model import Decision, FailedAttempt, Fingerprint, Next, Outcome, Strategy
from rocsteady.run.hosts.host_decision import HostAgreement, HostProposal, Weight, choose
from tests.run.lived import Lived
from tests.values import failure

if TYPE_CHECKING:
    from tests.conftest import Recorded

TRIED = (FailedAttempt(strategy=Strategy(), failure=Fingerprint(kind="oom-device")),)
INLINE = Strategy(workers=0)


class Hosts:
    """Other hosts that propose something; the host that is tested leads."""

    def __init__(self, *others: HostProposal) -> None:
        self._others = others

    def agree(
        self, mine: dict[str, Any], choose: Callable[..., dict[str, Any]]
    ) -> dict[str, Any] | None:
        if not self._others:
            return None  # torchrun has ended
        return choose([mine, *map(msgspec.to_builtins, self._others)])


AGAIN = Decision(next=Next.AGAIN, why="retrying", code=1)
NEWEST = ("step-20.pt", 20.0)


def proposal(host: int = 0, *, ends: bool = False, code: int = 0, **known: Any) -> HostProposal:  # noqa: ANN401 - fields of either
    names = ("strategy", "remedy", "why", "avoid")
    decided = {name: known.pop(name) for name in names if name in known}
    decision = Decision(
        **{"next": Next.END if ends else Next.AGAIN, "why": "", "code": code, **decided}
    )
    return HostProposal(host=host, decision=decision, **known)


def agreed(
    recorded: Recorded,
    *others: HostProposal,
    own: Decision = AGAIN,
    kind: str = "",
    outcome: Outcome = Outcome.BY_ITSELF,
) -> Lived:
    """Return a run whose decision after its first attempt was agreed on."""
    lived = Lived(recorded)
    lived.ends(failure(kind) if kind else None, outcome=outcome)
    lived.decided(HostAgreement(Hosts(*others)).agree(own, lived.history))
    return lived


def test_the_host_that_knows_the_cause_is_followed_whoever_leads() -> None:
    lost = proposal(host=0, ends=True, code=1, tried=TRIED * 3)
    perhaps = proposal(host=1, weight=Weight.PERHAPS)
    cause = proposal(host=2, weight=Weight.CAUSE, strategy=INLINE)

    for order in permutations([lost, perhaps, cause]):
        assert choose(order) == cause


def test_in_a_hang_the_host_is_followed_whose_ranks_do_not_only_wait_for_others() -> None:
    waits = proposal(host=0, weight=Weight.PERHAPS, kind="hang-in-collective", tried=TRIED)
    backward = proposal(host=1, weight=Weight.PERHAPS, kind="hang-in-backward")
    loader = proposal(host=2, weight=Weight.CAUSE, kind="hang-in-dataloader")

    assert choose([waits, backward]) == backward
    assert choose([waits, backward, loader]) == loader


def test_an_end_that_one_host_knows_to_be_due_ends_all() -> None:
    retry = proposal(host=0, weight=Weight.CAUSE)
    end = proposal(host=3, weight=Weight.CAUSE, ends=True, code=76)

    assert choose([retry, end]) == end


def test_without_a_cause_the_longest_memory_counts_and_nobody_ends_the_job_alone() -> None:
    new = proposal(host=0)
    remembers = proposal(host=2, tried=TRIED, strategy=INLINE)
    gives_up = proposal(host=1, ends=True, code=1, tried=TRIED * 2)

    assert choose([new, gives_up, remembers]) == remembers


def test_no_restart_costs_a_host_its_checkpoints() -> None:
    cause = proposal(host=1, weight=Weight.CAUSE)
    keeps = proposal(host=0, keeps=True, ends=True, code=76)

    assert choose([cause, keeps]) == keeps


def test_a_host_takes_up_the_strategy_and_the_history_of_the_one_that_decides(
    recorded: Recorded,
) -> None:
    other = proposal(
        1, weight=Weight.CAUSE, strategy=INLINE, remedy="loader-inline", tried=TRIED, why="so",
        avoid=(NEWEST,),
    )  # fmt: skip
    lived = agreed(recorded, other, outcome=Outcome.REPLACED)
    history = lived.history

    assert (history.strategy, tuple(history.tried), history.remedy) == (
        INLINE,
        TRIED,
        "loader-inline",
    )
    assert history.avoid == (NEWEST,)  # all hosts go on from the same checkpoint
    lived.taken_over()
    assert (lived.history.strategy, lived.history.avoid) == (INLINE, (NEWEST,))


def test_the_decision_names_the_host_that_made_it(recorded: Recorded) -> None:
    lived = Lived(recorded)
    lived.ends(None, outcome=Outcome.REPLACED)
    other = proposal(1, weight=Weight.CAUSE, strategy=INLINE, remedy="loader-inline", why="so")
    decision = HostAgreement(Hosts(other)).agree(AGAIN, lived.history)

    assert (decision.next, decision.host) == (Next.AGAIN, 1)
    assert decision.why == "decided by host 1 for all hosts: so"


def test_a_host_that_follows_into_the_end_has_its_code(recorded: Recorded) -> None:
    lived = Lived(recorded)
    lived.ends(failure("peer-died"))
    other = proposal(1, weight=Weight.CAUSE, ends=True, code=PERSON_NEEDED, why="no")
    decision = HostAgreement(Hosts(other)).agree(AGAIN, lived.history)

    assert (decision.next, decision.code) == (Next.END, PERSON_NEEDED)


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [("peer-died", INLINE), ("unknown", Strategy()), ("oom-device", Strategy())],
)
def test_a_rank_that_only_lost_another_is_no_cause(
    recorded: Recorded, kind: str, strategy: Strategy
) -> None:
    other = proposal(1, strategy=INLINE, tried=TRIED * 3)

    assert agreed(recorded, other, kind=kind).history.strategy == strategy


def test_nothing_is_prepared_if_torchrun_has_ended(recorded: Recorded) -> None:
    lived = Lived(recorded)
    lived.ends(failure("peer-died"))
    end = Decision(next=Next.END, why="no", code=76)

    assert HostAgreement(Hosts()).agree(end, lived.history) is end
    with pytest.raises(LauncherError):
        HostAgreement(Hosts()).agree(AGAIN, lived.history)


def test_one_host_decides_for_itself(recorded: Recorded) -> None:
    lived = Lived(recorded)
    lived.ends(None)

    assert HostAgreement(None).agree(AGAIN, lived.history) is AGAIN
