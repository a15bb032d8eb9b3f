"""The search for a cause, with tries whose ends are known."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocsteady.failures.situation import Refused
from rocsteady.model import CAUSE, Observation, ProbeOutcome, Strategy
from rocsteady.probe.builds import is_build
from rocsteady.probe.cause_search import Cause, Cure, Reproduction, Search, requested
from rocsteady.probe.experiment import Experiment, Limits, Setup, Try, TryGuard
from rocsteady.probe.recorded_operations import Operation
from rocsteady.screens.cause_search import command_with, render_cause
from rocsteady.screens.screen import Page
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.machine_history import Memory

OK, HANG, CRASH = ProbeOutcome.OK, ProbeOutcome.HANG, ProbeOutcome.CRASH
OPERATION = Operation(
    name="aten::_scaled_dot_product_flash_attention",
    args=[{"shape": [8, 16], "stride": [16, 1], "dtype": "bfloat16", "device": "cuda"}],
    line="model.py:88 in Block.forward",
    step=212,
    key="k",
)


def ended(outcome: ProbeOutcome, operation: Operation | None = None, seconds: float = 1.0) -> Try:
    return Try(outcome=outcome, seconds=seconds, operation=operation, step=212)


class Tries:
    """Tries of a script that fails as told, by the name of the setup."""

    def __init__(self, folder: Path, **outcomes: list[ProbeOutcome]) -> None:
        self.outcomes, self.kept, self.journal = outcomes, folder, None
        self.limits, self.left = Limits(), 1000.0
        self.guard = SimpleNamespace(stopped="", keep=lambda *_: None)
        self.orders: list[tuple[str, str, int | None]] = []

    def attempt(
        self,
        setup: Setup = Setup(),  # noqa: B008 - as the real one
        *,
        keep: str = "",
        numbers: Any = None,  # noqa: ANN401
        past: int | None = None,
    ) -> Try:
        del numbers
        self.orders.append((setup.name, keep, past))
        outcome = self.outcomes[setup.name or "script"].pop(0)
        return ended(outcome, OPERATION if outcome is not OK else None)


def search(tries: Tries, remedies: dict[str, Strategy]) -> Search:
    machine = SimpleNamespace(
        with_remedies=lambda names: remedies.get(names[0], Refused(why="not here"))
    )
    return Search(tries, machine, python="python", numbers=False, say=lambda _: None)  # type: ignore[arg-type]


def test_one_that_fails_is_tried_under_what_fits_it(tmp_path: Path) -> None:
    tries = Tries(
        tmp_path,
        script=[HANG] * 3,
        **{
            "A=1": [HANG, HANG],
            "attention-math": [OK, OK, OK],
            "aten::_scaled_dot_product_flash_attention on the CPU": [OK, HANG, OK],
        },
    )

    cause = search(tries, {"attention-math": Strategy(attention="math")}).find(
        requested(["A=1"]), ("python", "train.py")
    )

    assert tries.orders[:3] == [("", "", None), ("", "k", 215), ("", "k", 215)]
    assert [(it.experiment.setup.name, it.experiment.worked, it.holds) for it in cause.cures] == [
        ("A=1", 0, False),
        ("attention-math", 3, True),
        ("aten::_scaled_dot_product_flash_attention on the CPU", 2, False),
    ]
    assert cause.cure is not None
    assert cause.cure.remedy == "attention-math"
    assert cause.not_reproduced
    assert "run --with attention-math -- python train.py" in command_with(cause, cause.cure)


def test_what_does_not_fail_accuses_nobody(tmp_path: Path) -> None:
    cause = search(Tries(tmp_path, script=[OK] * 3), {}).find((), ("python", "train.py"))

    assert (cause.operation, cause.cures, cause.reproducing.worked) == (None, (), 3)


def test_the_scripts_own_error_is_tried_once_and_accuses_nobody(tmp_path: Path) -> None:
    tries = Tries(tmp_path, script=[ProbeOutcome.EXCEPTION])
    tries.attempt = lambda *_, **__: ended(ProbeOutcome.EXCEPTION)  # type: ignore[method-assign]

    cause = search(tries, {}).find((), ("python", "train.py"))

    assert (len(cause.reproducing.tries), cause.operation) == (1, None)


def test_nothing_more_is_tried_once_a_process_cannot_be_killed(tmp_path: Path) -> None:
    tries = Tries(tmp_path, script=[ProbeOutcome.UNKILLABLE])
    tries.guard.stopped = "a process cannot be killed"

    cause = search(tries, {}).find(requested(["A=1"]), ("python", "train.py"))

    assert len(tries.orders) == 1
    assert cause.cures == ()
    assert cause.stopped


def test_nothing_is_begun_that_the_time_does_not_suffice_for(tmp_path: Path) -> None:
    tries = Tries(tmp_path, script=[HANG])
    tries.left = 0.5

    cause = search(tries, {}).find(requested(["A=1"]), ("python", "train.py"))

    assert (len(tries.orders), cause.cures) == (1, ())
    assert cause.stopped


def guard(place: Path, **known: Any) -> TryGuard:  # noqa: ANN401
    here = find_place(place)
    journal, memory = Journal(here), Memory(here)
    return TryGuard(journal, memory, ("python", "train.py"), software="torch 2", **known)


def test_what_took_the_machine_down_is_not_tried_again_unasked(tmp_path: Path) -> None:
    first = guard(tmp_path)
    down = Try(outcome=ProbeOutcome.WENT_DOWN, seconds=1.0)
    first.keep(Experiment(setup=Setup(name="A=1"), tries=(ended(OK),)), "script", "")
    tried: list[str] = []

    def attempt() -> Try:
        tried.append("A=1")
        return ended(OK)

    assert first.carry_out("script", Setup(name="A=1"), attempt).outcome is OK
    first.remember(
        Observation(
            probe=CAUSE,
            variant=first.variant("script", Setup(name="A=1")),
            outcome=down.outcome,
            tries=0,
            seconds=0.0,
            at=time.time() + 1,
        ),
    )
    first.memory.flush()
    refused = first.carry_out("script", Setup(name="A=1"), attempt)
    again = guard(tmp_path, again=True).carry_out("script", Setup(name="A=1"), attempt)

    assert refused.outcome is ProbeOutcome.NOT_RUN
    assert again.outcome is OK
    assert tried == ["A=1", "A=1"]


def test_the_intent_is_on_the_disk_while_it_is_tried_and_settled_after(tmp_path: Path) -> None:
    here = guard(tmp_path)
    seen: list[int] = []

    def attempt() -> Try:
        seen.append(len(here.journal.unfinished()))
        return ended(HANG)

    here.carry_out("script", Setup(), attempt)

    assert seen == [1]
    assert here.journal.unfinished() == ()


@pytest.mark.parametrize(
    ("text", "alone", "control", "proven"),
    [
        ("a\n" * 40, [CRASH, OK], OK, True),
        ("a\n" * 41, [CRASH, OK], OK, False),
        ("a\n", [OK, OK], OK, False),
        ("a\n", [CRASH], CRASH, False),
    ],
)
def test_a_reproduction_is_short_fails_alone_and_works_in_float64(
    text: str, alone: list[ProbeOutcome], control: ProbeOutcome, *, proven: bool
) -> None:
    made = Reproduction(
        text=text, alone=Experiment(tries=tuple(map(ended, alone))), control=ended(control)
    )

    assert made.is_proven is proven


def names() -> Iterator[str]:
    yield from ("no-equals", "=1", "a b=1")


@pytest.mark.parametrize("text", list(names()))
def test_a_variable_is_written_as_name_and_value(text: str) -> None:
    with pytest.raises(ValueError, match="NAME=VALUE"):
        requested([text])


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("torch==2.9.1", True),
        ("torch==2.9.1+rocm6.4", True),
        ("torch==2.13.0+cpu", True),
        ("torch==2.9.1 --index-url=x", False),
        ("torchvision==1", False),
        ("torch==2.9.1+evil;x", False),
    ],
)
def test_a_build_is_torch_with_its_version_and_nothing_else(text: str, *, is_one: bool) -> None:
    assert is_build(text) is is_one


def test_an_empty_value_unsets_a_variable() -> None:
    assert requested(["HSA_X="])[0].strategy.variables == {"HSA_X": None}


def test_a_staged_fault_is_called_that_and_a_gpu_is_unconfirmed() -> None:
    cause = Cause(
        command=("python", "train.py"),
        reproducing=Experiment(tries=(ended(HANG, OPERATION),)),
        operation=OPERATION,
        staged=True,
        cures=(Cure(experiment=Experiment(setup=Setup(name="A=1"), tries=(ended(HANG),))),),
    )

    text = render_cause(cause, page=Page(80, colour=False))

    assert text.startswith("STAGED FAULT")
    assert "unconfirmed" in text
    assert "A=1 0 of 1" in text
    assert all(len(line) <= 80 for line in text.splitlines())
