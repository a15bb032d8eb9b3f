"""Runs that fail until the right thing is changed: how they get there, with the natures on file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.failures.ladder import choose_remedy
from rocsteady.model import Strategy

if TYPE_CHECKING:
    from tests.failures.remedies.conftest import Situations

CACHING = "PYTORCH_NO_HIP_MEMORY_CACHING"
WORKSPACE = "HIPBLASLT_WORKSPACE_SIZE"
KINDS = load_failures().kinds


def unset(name: str) -> Callable[[Strategy], bool]:
    return lambda strategy: strategy.variables.get(name, "") is None


@pytest.mark.parametrize(
    ("kind", "given", "mended", "path"),
    [
        pytest.param(
            "hang-in-loader",
            {},
            lambda strategy: strategy.workers == 0,
            ["retry", "loader-forkserver", "loader-inline"],
            id="a DataLoader that hangs with workers",
        ),
        pytest.param(
            "hang-in-attention",
            {},
            lambda strategy: strategy.attention == "math",
            ["retry", "attention-math"],
            id="attention that hangs when fused",
        ),
        pytest.param(
            "hang-in-backward",
            {},
            lambda strategy: strategy.attention == "math",
            ["retry", "attention-math"],
            id="its backward, of which no more is known",
        ),
        pytest.param(
            "blas-handle-failed",
            {"variables": {WORKSPACE: "8388608"}},
            unset(WORKSPACE),
            ["retry", "unset-variable"],
            id="HIPBLAS_STATUS_ALLOC_FAILED while a variable is set",
        ),
        pytest.param(
            "oom-fragmentation",
            {"variables": {CACHING: "1", "PYTORCH_HIP_ALLOC_CONF": "max_split_size_mb:32"}},
            unset(CACHING),
            ["retry", "unset-variable"],
            id="a variable that cancels the allocator settings",
        ),
        pytest.param(
            "oom-host",
            {},
            lambda strategy: strategy.workers in (0, 1, 2),
            ["retry", "loader-less-prefetch", "loader-fewer-workers"],
            id="too many workers for the host's memory",
        ),
        pytest.param(
            "compile-failure",
            {},
            lambda strategy: strategy.compile is False,
            ["compile-off"],
            id="a compile that dies",
        ),
        pytest.param(
            "nan-loss",
            {},
            lambda strategy: strategy.precision in ("bf16", "fp32"),
            ["retry", "precision-bf16"],
            id="NaN under fp16",
        ),
        pytest.param(
            "gpu-hang",
            {"ranks": 2, "rank": 1},
            lambda strategy: strategy.gpus == (0,),
            ["retry", "single-gpu"],
            id="a GPU that fails only with two ranks",
        ),
        pytest.param(
            "checkpoint-corrupt",
            {},
            lambda strategy: strategy.checkpoints_back == 1,
            ["checkpoint-back"],
            id="the last checkpoint cannot be read",
        ),
    ],
)
def test_without_a_gpu_it_gets_there(
    situations: Situations,
    kind: str,
    given: dict[str, object],
    mended: Callable[[Strategy], bool],
    path: list[str],
) -> None:
    nature = KINDS[kind].nature
    loader = situations.loader()

    situation = situations(kind, nature=nature, loader=loader, **given)  # type: ignore[arg-type]
    taken = []
    while not mended(situation.strategy):
        choice = choose_remedy(situation)
        taken.append(choice.remedy)
        situation = situations.after(situation, choice)

    assert taken == path


@pytest.mark.parametrize(
    ("kind", "on", "path"),
    [
        pytest.param(
            "hang-in-backward",
            "rx9070xt-windows",
            ["retry", "unset-variable", "attention-math", "cpu"],
            id="note A",
        ),
        pytest.param(
            "blas-handle-failed", "rx7900xt-pair", ["retry", "single-gpu", "cpu"], id="note B"
        ),
        pytest.param(
            "hang-in-loader",
            "rx5700xt-override",
            ["retry", "loader-spawn", "loader-inline", "omp-threads"],
            id="note C",
        ),
        pytest.param(
            "oom-fragmentation",
            "rx7900xt-allocator",
            ["retry", "unset-variable", "cpu"],
            id="note D",
        ),
        pytest.param("machine-went-down", "rx5700xt-override", ["cpu"], id="note E"),
    ],
)
def test_the_field_notes_to_the_end_of_the_ladder(
    situations: Situations, kind: str, on: str, path: list[str]
) -> None:
    situation = situations(kind, on, nature=KINDS[kind].nature)
    taken = []
    while (choice := choose_remedy(situation)).strategy is not None:
        taken.append(choice.remedy)
        situation = situations.after(situation, choice)

    assert taken == path


@pytest.mark.parametrize(
    ("kind", "path"),
    [("segfault", ["retry"]), ("script-error", []), ("disk-full", []), ("machine-went-down", [])],
)
def test_what_nothing_mends_ends_soon_and_says_what_was_tried(
    situations: Situations, kind: str, path: list[str]
) -> None:
    about = KINDS[kind]
    situation = situations(kind, nature=about.nature, person=about.fix)
    taken = []
    while (choice := choose_remedy(situation)).strategy is not None:
        taken.append(choice.remedy)
        situation = situations.after(situation, choice)

    assert taken == path
    assert all(name in choice.why for name in path)
    assert choice.person == about.fix
