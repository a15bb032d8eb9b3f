"""One decision for all hosts: whose proposal is chosen, and what the others do with it."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from rocsteady.errors import LauncherError, RocsteadyError
from rocsteady.exit_codes import PERSON_NEEDED
from rocsteady.failures import remedy
from rocsteady.failures.named_workarounds import Workaround, strategy_of, workarounds_in
from rocsteady.model import Decision, FailedAttempt, Fingerprint, Next, Outcome, Strategy
from rocsteady.run.checkpoints.resume import Checkpoint
from rocsteady.run.hosts.host_decision import Chooses, HostAgreement, choose
from rocsteady.run.hosts.messages import HostProposal, Tried, Weight
from rocsteady.run.options import RunOptions
from rocsteady.run.telling.announcer import Announcer
from tests.run.lived import Lived
from tests.values import failure

if TYPE_CHECKING:
    from rocsteady.run.checkpoints.checkpoints import Checkpoints
    from tests.conftest import Recorded

TRIED = (Tried(kind="oom-device"),)
INLINE = Strategy(workers=0)


class Hosts:
    """Other hosts that propose something; the host that is tested leads, or hears ``decided``."""

    def __init__(self, *others: HostProposal | bytes, decided: HostProposal | None = None) -> None:
        self._others = [
            each if isinstance(each, bytes) else msgspec.json.encode(each) for each in others
        ]
        self._decided = decided
        self.accepted = False

    def agree(self, mine: HostProposal, choose: Chooses) -> msgspec.Raw | None:
        if not self._others and self._decided is None:
            return None  # torchrun has ended
        chosen = self._decided or choose(mine, [msgspec.Raw(each) for each in self._others])
        self.chosen = chosen
        return msgspec.Raw(msgspec.json.encode(chosen))

    def tell(self, *, accepted: bool) -> None:
        self.accepted = accepted


AGAIN = Decision(next=Next.AGAIN, why="retrying", code=1)
NEWEST = ("step-20.pt", 20.0)
OLDER = ("step-10.pt", 10.0)
INLINED = (Workaround(id="loader-inline"),)


class Saved:
    """The checkpoints of the host that is tested."""

    def whole(self) -> list[Checkpoint]:
        return [Checkpoint(path=Path(path), written=at) for path, at in (NEWEST, OLDER)]


def agreement(
    hosts: Hosts | None,
    lived: Lived,
    *,
    checkpoints: object = None,
    **options: Any,  # noqa: ANN401 - fields
) -> HostAgreement:
    announcer = Announcer()
    announcer.quiet = True
    return HostAgreement(
        hosts,
        RunOptions(**options),
        lived.machine,
        cast("Checkpoints", checkpoints or Saved()),
        announcer,
    )


def proposal(host: int = 0, **known: Any) -> HostProposal:  # noqa: ANN401 - fields
    return HostProposal(host=host, **known)


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
    lived.decided(agreement(Hosts(*others), lived).agree(own, lived.history))
    return lived


def test_the_host_that_knows_the_cause_is_followed_whoever_leads() -> None:
    lost = proposal(host=0, end=1, tried=TRIED * 3)
    perhaps = proposal(host=1, weight=Weight.PERHAPS)
    cause = proposal(host=2, weight=Weight.CAUSE, workarounds=INLINED)

    for order in permutations([lost, perhaps, cause]):
        assert choose(order) == cause


def test_every_host_says_what_failed_on_the_one_that_is_followed(
    recorded: Recorded, capfd: pytest.CaptureFixture[str]
) -> None:
    here, there = Lived(recorded), Lived(recorded)
    there.ends(failure("killed", title="The process was killed (SIGKILL)", rank=3))
    leads, follows = Hosts(proposal(1)), Hosts(decided=proposal())
    for lived, hosts in ((there, leads), (here, follows)):
        made = agreement(hosts, lived)
        made._announcer.quiet = False
        made.agree(AGAIN, lived.history)
        made._announcer.close()
        follows._decided = leads.chosen

    assert capfd.readouterr().err == (
        "rocsteady: host 0: the process was killed (SIGKILL) on rank 3.\n"
    )


def test_in_a_hang_the_host_is_followed_whose_ranks_do_not_only_wait_for_others() -> None:
    waits = proposal(host=0, weight=Weight.PERHAPS, kind="hang-in-collective", tried=TRIED)
    backward = proposal(host=1, weight=Weight.PERHAPS, kind="hang-in-backward")
    loader = proposal(host=2, weight=Weight.CAUSE, kind="hang-in-dataloader")

    assert choose([waits, backward]) == backward
    assert choose([waits, backward, loader]) == loader


def test_an_end_that_one_host_knows_to_be_due_ends_all() -> None:
    retry = proposal(host=0, weight=Weight.CAUSE)
    end = proposal(host=3, weight=Weight.CAUSE, end=76)

    assert choose([retry, end]) == end


def test_without_a_cause_the_longest_memory_counts_and_nobody_ends_the_job_alone() -> None:
    new = proposal(host=0)
    remembers = proposal(host=2, tried=TRIED, workarounds=INLINED)
    gives_up = proposal(host=1, end=1, tried=TRIED * 2)

    assert choose([new, gives_up, remembers]) == remembers


def test_no_restart_costs_a_host_its_checkpoints() -> None:
    cause = proposal(host=1, weight=Weight.CAUSE)
    keeps = proposal(host=0, keeps=True, end=76)

    assert choose([cause, keeps]) == keeps


def test_a_host_takes_up_the_strategy_and_the_history_of_the_one_that_decides(
    recorded: Recorded,
) -> None:
    other = proposal(
        1, weight=Weight.CAUSE, workarounds=INLINED, remedy="loader-inline", tried=TRIED, why="so",
        avoid=(NEWEST,),
    )  # fmt: skip
    lived = agreed(recorded, other, outcome=Outcome.REPLACED)
    history = lived.history

    assert (history.strategy, tuple(history.tried), history.remedy) == (
        INLINE,
        (FailedAttempt(strategy=Strategy(), failure=Fingerprint(kind="oom-device")),),
        "loader-inline",
    )
    assert history.avoid == (NEWEST,)  # all hosts go on from the same checkpoint
    lived.taken_over()
    assert (lived.history.strategy, lived.history.avoid) == (INLINE, (NEWEST,))


def test_the_decision_names_the_host_that_made_it(recorded: Recorded) -> None:
    lived = Lived(recorded)
    lived.ends(None, outcome=Outcome.REPLACED)
    other = proposal(1, weight=Weight.CAUSE, workarounds=INLINED, remedy="loader-inline", why="so")
    decision = agreement(Hosts(other), lived).agree(AGAIN, lived.history)

    assert (decision.next, decision.host) == (Next.AGAIN, 1)
    assert decision.why == "decided by host 1 for all hosts: so"


def test_a_host_that_follows_into_the_end_has_its_code(recorded: Recorded) -> None:
    lived = Lived(recorded)
    lived.ends(failure("peer-died"))
    other = proposal(1, weight=Weight.CAUSE, end=PERSON_NEEDED, why="no")
    decision = agreement(Hosts(other), lived).agree(AGAIN, lived.history)

    assert (decision.next, decision.code) == (Next.END, PERSON_NEEDED)


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [("peer-died", INLINE), ("unknown", Strategy()), ("oom-device", Strategy())],
)
def test_a_rank_that_only_lost_another_is_no_cause(
    recorded: Recorded, kind: str, strategy: Strategy
) -> None:
    other = proposal(1, workarounds=INLINED, tried=TRIED * 3)

    assert agreed(recorded, other, kind=kind).history.strategy == strategy


def test_nothing_is_prepared_if_torchrun_has_ended(recorded: Recorded) -> None:
    lived = Lived(recorded)
    lived.ends(failure("peer-died"))
    end = Decision(next=Next.END, why="no", code=76)

    assert agreement(Hosts(), lived).agree(end, lived.history) is end
    with pytest.raises(LauncherError):
        agreement(Hosts(), lived).agree(AGAIN, lived.history)


def test_one_host_decides_for_itself(recorded: Recorded) -> None:
    lived = Lived(recorded)
    lived.ends(None)

    assert agreement(None, lived).agree(AGAIN, lived.history) is AGAIN


REFUSED = [
    (proposal(1, workarounds=(Workaround(id="ld-preload"),)), {}, "not known here"),
    (proposal(1, workarounds=INLINED), {"deny": ("loader-inline",)}, "denied by --deny"),
    (proposal(1, workarounds=INLINED), {"allow": ("retry",)}, "not in --allow"),
    (proposal(1, workarounds=INLINED), {"no_remedies": True}, "not in --allow"),
    (proposal(1, workarounds=INLINED), {"observe": True}, "not in --allow"),
    (proposal(1, workarounds=(Workaround(id="precision-bf16"),)), {}, "--also precision-bf16"),
    (
        proposal(1, tried=(Tried(kind="oom", workarounds=INLINED),)),
        {"deny": ("loader-inline",)},
        "--deny",
    ),
    (proposal(1, avoid=(NEWEST, OLDER)), {}, "every checkpoint"),
]


@pytest.mark.parametrize(("theirs", "options", "why"), REFUSED)
def test_what_this_host_may_not_do_is_not_done_whoever_names_it(
    recorded: Recorded, theirs: HostProposal, options: dict[str, Any], why: str
) -> None:
    lived = Lived(recorded)
    lived.ends(failure("hang-in-loader"))
    follows, leads = Hosts(decided=theirs), Hosts(msgspec.structs.replace(theirs, weight=2))

    with pytest.raises(RocsteadyError, match=why):
        agreement(follows, lived, **options).agree(AGAIN, lived.history)
    assert not follows.accepted

    kept = agreement(leads, lived, **options).agree(AGAIN, lived.history)
    assert (kept, leads.accepted) == (AGAIN, True)  # the leader leaves it out


def test_what_crashed_this_machine_is_not_started_because_another_host_says_so(
    recorded: Recorded,
) -> None:
    lived = Lived(recorded)
    lived.ends(failure("hang-in-loader"))
    lived.machine.deadly.append(INLINE)
    theirs = proposal(1, workarounds=INLINED)

    with pytest.raises(RocsteadyError, match="crashed this machine"):
        agreement(Hosts(decided=theirs), lived).agree(AGAIN, lived.history)
    asked = agreement(Hosts(decided=theirs), lived, retry_crashed=True)
    assert asked.agree(AGAIN, lived.history).strategy == INLINE


ILL_TYPED = [
    b'{"host":1,"weight":2,"strategy":{"variables":{"LD_PRELOAD":"/x/evil.so"}}}',
    b'{"workarounds":[{"id":"sdma-off","variables":{"LD_PRELOAD":"/x/evil.so"}}]}',
    b'{"workarounds":[{"id":"sdma-off","number":"1"}]}',
    b'{"workarounds":["sdma-off"]}',
    b'{"workarounds":[{"id":"../../x"}]}',
    b'{"workarounds":[{"id":"loader-inline\\n"}]}',
    b'{"end":256}',
    b'{"end":-1}',
    b'{"end":true}',
    b'{"host":"1"}',
    b'{"weight":9}',
    b'{"tried":[{"kind":"oom","steps":-1}]}',
    b'{"avoid":[["step-20.pt"]]}',
    b"[]",
    msgspec.json.encode({"why": "x" * 301}),
    msgspec.json.encode({"tried": [{"kind": "oom"}] * 65}),
    msgspec.json.encode({"workarounds": [{"id": "sdma-off"}] * 33}),
    msgspec.json.encode({"avoid": [["x", 1.0]] * 65}),
    msgspec.json.encode({"avoid": [["x" * 4097, 1.0]]}),
]


@pytest.mark.parametrize("content", ILL_TYPED)
def test_what_has_another_type_or_length_is_not_read(recorded: Recorded, content: bytes) -> None:
    lived = Lived(recorded)
    lived.ends(failure("hang-in-loader"))

    assert agreement(Hosts(content), lived).agree(AGAIN, lived.history) is AGAIN


def test_a_host_that_would_lose_its_checkpoints_or_only_observes_restarts_for_nobody(
    recorded: Recorded,
) -> None:
    lived = Lived(recorded)
    lived.ends(failure("peer-died"), wrote_checkpoint=True)
    end = Decision(next=Next.END, why="it cannot resume", code=1)

    with pytest.raises(RocsteadyError, match="checkpoints"):
        agreement(Hosts(decided=proposal(1)), lived).agree(end, lived.history)
    lived.ends(failure("peer-died"))
    with pytest.raises(RocsteadyError, match="observes"):
        agreement(Hosts(decided=proposal(1)), lived, observe=True).agree(end, lived.history)


def test_only_checkpoints_of_this_host_are_passed_over(recorded: Recorded) -> None:
    theirs = proposal(1, weight=Weight.CAUSE, avoid=(NEWEST, ("/etc/passwd", 1.0)))
    lived = Lived(recorded)
    lived.ends(failure("peer-died"))
    own = msgspec.structs.replace(AGAIN, avoid=(("step-5.pt", 5.0),))

    decision = agreement(Hosts(theirs), lived).agree(own, lived.history)

    assert decision.avoid == (("step-5.pt", 5.0), NEWEST)


STRATEGIES = [
    Strategy(),
    Strategy(workers=0),
    Strategy(workers=3),
    Strategy(worker_context="forkserver", prefetch_factor=1),
    Strategy(micro_batch=4, checkpoints_back=2),
    Strategy(device="cpu", miopen=False, compile=False),
    Strategy(precision="bf16", gpus=(1,)),
    Strategy(variables={"HSA_ENABLE_SDMA": "0", "NCCL_PROTO": "Simple"}),
    Strategy(variables={"PYTORCH_NO_HIP_MEMORY_CACHING": None, "HSA_OVERRIDE_GFX_VERSION": None}),
    Strategy(
        variables={
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128",
            "GPU_MAX_HW_QUEUES": "1",
        }
    ),
]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_is_the_same_on_the_host_that_hears_the_names_of_its_workarounds(
    recorded: Recorded, strategy: Strategy
) -> None:
    variables = {"PYTORCH_NO_HIP_MEMORY_CACHING": "1", "HSA_OVERRIDE_GFX_VERSION": "10.3.0"}
    if "PYTORCH_CUDA_ALLOC_CONF" in strategy.variables:
        variables = {}
    machine = recorded.machine("rx7900xt-pair")
    may = {"also": ("precision-bf16", "single-gpu"), "ranks": 2}
    situation = remedy.asked(machine, variables, **may)
    heard = msgspec.json.encode(workarounds_in(strategy))

    told = msgspec.json.decode(heard, type=tuple[Workaround, ...])

    assert strategy_of(told, situation) == strategy
    assert not any(name.encode() in heard for name in strategy.variables)
