"""Remedies that a person asks for by name, before anything has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocsteady.failures.remedy import requested_strategy
from rocsteady.failures.situation import Refused
from rocsteady.model import Strategy

if TYPE_CHECKING:
    from tests.conftest import Recorded


def test_one_after_the_other(recorded: Recorded) -> None:
    machine = recorded.machine("rx9070xt")

    strategy = requested_strategy(
        ("hipblaslt-off", "loader-inline", "precision-bf16", "cpu"), machine, {}, gpus=1
    )

    assert strategy == Strategy(
        workers=0,
        precision="bf16",
        device="cpu",
        variables={"TORCH_BLAS_PREFER_HIPBLASLT": "0"},
    )


def test_a_harmful_variable_is_unset_without_a_failure_that_it_brought_about(
    recorded: Recorded,
) -> None:
    strategy = requested_strategy(
        ("unset-variable",), recorded.machine("no-amd-gpu"), {"AMD_SERIALIZE_KERNEL": "3"}, gpus=0
    )

    assert strategy == Strategy(variables={"AMD_SERIALIZE_KERNEL": None})


def test_what_is_not_right_here_is_refused_by_name(recorded: Recorded) -> None:
    machine = recorded.machine("no-amd-gpu")

    assert requested_strategy(("loader-inline", "sdma-off"), machine, {}, gpus=0) == Refused(
        why="sdma-off: torch 2.9.0+cpu is not built for ROCm"
    )
    asked = requested_strategy(("cpu",), machine, {}, gpus=0)  # what is so already is no error
    assert asked == Strategy(device="cpu")
    assert isinstance(requested_strategy(("retry",), machine, {}, gpus=0), Refused)
