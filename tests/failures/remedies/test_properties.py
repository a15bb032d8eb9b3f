"""Whatever happens, and on every recorded machine: it ends, and it never does what it must not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocsteady.doctor.knowledge.failures import Nature
from rocsteady.doctor.knowledge.values import Fix
from rocsteady.doctor.machine.torch_build import made_by
from rocsteady.failures.difference import changed
from rocsteady.failures.ladder import choose_remedy
from rocsteady.failures.remedy import ANY, load_remedies
from rocsteady.failures.situation import Situation
from rocsteady.model import Certainty, Decision, FailedAttempt, Fingerprint, Strategy
from tests.values import failure

if TYPE_CHECKING:
    from tests.failures.remedies.conftest import Situations

KINDS = sorted({kind for remedy in load_remedies().values() for kind in remedy.answers} - {ANY})
KINDS += ["unknown", "script-error", "network-error", "hang", "disk-full"]
NATURES = {
    kind: (Nature.TRANSIENT, Nature.DETERMINISTIC, Nature.EITHER)[number % 3]
    for number, kind in enumerate(KINDS)
}
PERSON = {"disk-full": Fix(text="Free some space.")}
PLACES = ("train.py step", "librocblas.so", "")
MOST_PROGRESS = 6
VARIABLES = {
    "AMD_SERIALIZE_KERNEL": "3",
    "HSA_ENABLE_SDMA": "0",
    "HSA_OVERRIDE_GFX_VERSION": "10.3.0",
    "NCCL_P2P_DISABLE": "0",
    "PYTORCH_HIP_ALLOC_CONF": "max_split_size_mb:64",
    "PYTORCH_NO_HIP_MEMORY_CACHING": "1",
    "TORCH_BLAS_PREFER_HIPBLASLT": "1",
}
OWN = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
ANYWHERE = {"HF_HUB_DISABLE_XET", "TORCHINDUCTOR_COMPILE_THREADS"}  # act without a GPU too
PREFERRING = {"gfx90a", "gfx942", "gfx950", "gfx1200", "gfx1201"}


IDS = st.sets(st.sampled_from(sorted(load_remedies())), max_size=4).map(tuple)
DEADLY = st.sampled_from((Strategy(), Strategy(attention="math"), Strategy(device="cpu")))
LOADERS = st.fixed_dictionaries(
    {
        "workers": st.integers(0, 8),
        "pickles": st.none() | st.booleans(),
        "main_guarded": st.none() | st.booleans(),
    }
)
WORLDS = st.fixed_dictionaries(
    {
        "variables": st.sets(st.sampled_from(sorted(VARIABLES))),
        "ranks": st.sampled_from((1, 2)),
        "gpus": st.booleans(),
        "can_resume": st.booleans(),
        "checkpoints": st.integers(0, 3),
        "allow": st.just(()) | IDS,
        "deny": IDS,
        "helped_before": IDS,
        "crashed_machine": st.lists(DEADLY, max_size=2).map(tuple),
        "loader": st.none() | LOADERS,
    }
)


class Event(NamedTuple):
    """How one attempt ends."""

    kind: int
    place: int
    reach: int  # 0: at its start; 1: one step before the furthest; 2: there; 3: one step beyond
    rank: int | None
    idle: bool  # what was changed had no effect on this script


EVENTS = st.lists(
    st.builds(
        Event,
        kind=st.integers(0, 2),
        place=st.integers(0, 2),
        reach=st.integers(0, 3),
        rank=st.none() | st.integers(0, 1),
        idle=st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


class Run:
    """A run that fails and fails, and what the ladder makes of it."""

    def __init__(self, situation: Situation, kinds: list[str], events: list[Event]) -> None:
        self._kinds, self._events = kinds, events
        self._progress = 0
        self.situation = situation
        self._fail(Strategy(), "")

    def play(self) -> Iterator[tuple[Situation, Decision]]:
        """Choose and fail until it ends."""
        most = (MOST_PROGRESS + 1) * self.situation.budget.without_progress + 1
        for _ in range(most):
            choice = choose_remedy(self.situation)
            yield self.situation, choice
            if choice.ends:
                return
            self._fail(choice.strategy, choice.remedy)
        raise AssertionError("it does not end")

    def _fail(self, strategy: Strategy, remedy: str) -> None:
        situation = self.situation
        event = self._events[len(situation.tried) % len(self._events)]
        kind = self._kinds[event.kind % len(self._kinds)]
        furthest = max((entry.steps for entry in situation.tried), default=0)
        reach = min(event.reach, 2 if self._progress == MOST_PROGRESS else 3)
        steps = max(0, furthest + reach - 2) if reach else 0
        self._progress += steps > furthest
        fingerprint = Fingerprint(kind=kind, place=PLACES[event.place], step=steps or None)
        attempt = FailedAttempt(
            strategy=strategy,
            remedy=remedy,
            failure=fingerprint,
            progressed=steps > furthest,
            steps=steps,
        )
        before = situation.tried[-1].strategy if situation.tried else Strategy()
        idle = changed(before, strategy) if event.idle else ()
        crashed = [strategy] if kind == "machine-went-down" else []
        self.situation = msgspec.structs.replace(
            situation,
            failure=failure(
                fingerprint.kind,
                fingerprint=fingerprint,
                rank=event.rank,
                certainty=Certainty.LIKELY,
            ),
            nature=NATURES[kind],
            person=PERSON.get(kind),
            strategy=strategy,
            tried=(*situation.tried, attempt),
            ineffective=(*situation.ineffective, *idle),
            crashed_machine=(*situation.crashed_machine, *crashed),
        )


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    number=st.integers(0, 1000),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
    world=WORLDS,
    events=EVENTS,
)
def test_it_ends_and_never_does_what_it_must_not(
    situations: Situations,
    number: int,
    kinds: list[str],
    world: dict[str, Any],
    events: list[Event],
) -> None:
    plain = situations(kinds[0], situations.names[number % len(situations.names)], tried=())
    own = {each: VARIABLES[each] for each in world["variables"]}
    gpus = plain.gpus if world["gpus"] else 0
    told = situations.loader(**world["loader"]) if world["loader"] else None
    given_ = world | {"variables": plain.variables | own, "gpus": gpus, "loader": told}
    asked = set()
    for situation, choice in Run(msgspec.structs.replace(plain, **given_), kinds, events).play():
        assert choose_remedy(situation) == choice, "it is a function of the situation alone"
        assert choice.why
        if not choice.ends:
            check(situation, choice, choice.strategy)
            pair = (situation.failure.fingerprint, repr(choice.strategy))
            assert pair not in asked, "already tried after this failure"
            asked.add(pair)


@pytest.mark.parametrize("variables", [{}, VARIABLES], ids=["nothing set", "much set"])
def test_on_every_machine_the_whole_ladder_of_every_failure_is_right_there(
    situations: Situations, every_machine: str, variables: dict[str, str]
) -> None:
    for kind in KINDS:
        plain = situations(kind, every_machine, ranks=2, person=PERSON.get(kind))
        situation = msgspec.structs.replace(plain, variables=plain.variables | variables)
        *choices, end = situations.preview(situation)
        for choice in choices:
            assert not choice.ends
            check(situation, choice, choice.strategy)
        assert end.ends
        assert choices or end.skipped or kind in ("script-error", "disk-full")


def check(situation: Situation, choice: Decision, strategy: Strategy) -> None:
    for crashed in situation.crashed_machine:
        assert not same_settings(crashed, strategy), "it crashed the machine"
    assert changes(situation, strategy) <= 1, "two changes at once"
    assert choice.remedy not in situation.deny
    assert not situation.allow or choice.remedy in situation.allow
    assert situation.failure.kind != "disk-full", "a person is needed"
    assert ruled_out(situation, strategy) == []


def same_settings(one: Strategy, other: Strategy) -> bool:
    return set(changed(one, other)) <= {"checkpoints_back"}


def changes(situation: Situation, strategy: Strategy) -> int:
    """Count the changes against the nearest strategy that was tried."""
    tried = [entry.strategy for entry in situation.tried]
    tried += [msgspec.structs.replace(each, checkpoints_back=0) for each in tried]
    return min(len(changed(each, strategy)) for each in tried)


def ruled_out(situation: Situation, strategy: Strategy) -> list[str]:
    """Say what is wrong with a strategy on a machine, worked out apart from the remedies."""
    machine, torch = situation.machine, situation.machine.torch
    set_now = {name: value for name, value in strategy.variables.items() if value is not None}
    names = {gpu.gfx for gpu in machine.gpus.gpus}
    wrong = [
        f"{name} is the user's own"
        for name, value in set_now.items()
        if name in situation.variables and not value.startswith(situation.variables[name])
    ]
    wrong += [
        f"{name} is the user's own"
        for name in set_now
        if name in situation.variables and name not in OWN
    ]
    if not situation.gpus and (set_now.keys() - ANYWHERE or strategy.device == "cpu"):
        wrong.append("there is no GPU")
    if (
        torch is not None
        and torch.build == "cpu"
        and set_now.keys() - {"OMP_NUM_THREADS", "NCCL_P2P_DISABLE"} - ANYWHERE
    ):
        wrong.append("torch is for the CPU")
    if machine.system.os == "windows":
        wrong += [name for name in set_now if name.startswith(("HSA_", "NCCL_", "TORCH_BLAS"))]
    if "TORCH_BLAS_PREFER_HIPBLASLT" in set_now and not names & PREFERRING:
        assert torch is not None
        used = torch.version.startswith(("2.4", "2.5")) or made_by(torch) == "amd"
        wrong += [] if used else ["hipBLASLt is not used"]
    if "HSA_ENABLE_SDMA" in set_now and not all(gpu.integrated for gpu in machine.gpus.gpus):
        assert torch is not None
        wrong += [] if str(torch.rocm).startswith("5.") else ["copies are not known to hang"]
    if strategy.variables.get("HSA_OVERRIDE_GFX_VERSION", "") is None:
        cards = {gpu.gfx for gpu in machine.gpus.gpus if not gpu.integrated} or names
        wrong += [] if torch and cards <= set(torch.arches) else ["no code without the override"]
    if strategy.gpus is not None and situation.ranks == 1 and situation.gpus < 2:
        wrong.append("the run already uses one GPU")
    return wrong
