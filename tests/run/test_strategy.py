"""A strategy becomes variables; masks of the user's own are kept and chosen from."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocsteady_train.inside import wire
from rocsteady_train.inside.overrides import requested_settings

from rocsteady.errors import RocsteadyError
from rocsteady.model import Strategy
from rocsteady.run.attempt.strategy_environment import environment

HIP, CUDA, ROCR = "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


def test_as_the_script_says_sets_nothing() -> None:
    assert environment(Strategy(), {"PATH": "/bin", HIP: "0"}) == ({}, ())


def test_what_inside_must_apply_is_one_variable() -> None:
    strategy = Strategy(workers=0, persistent_workers=False, attention="math")

    told, unset = environment(strategy, {})

    assert (list(told), unset) == ([wire.STRATEGY], ())
    assert json.loads(told[wire.STRATEGY]) == {
        "version": 1,
        "workers": 0,
        "persistent_workers": False,
        "attention": "math",
    }


def test_a_strategy_of_a_run_around_this_one_is_not_inherited() -> None:
    assert environment(Strategy(), {wire.STRATEGY: "{}"}) == ({}, (wire.STRATEGY,))


def test_variables_are_set_and_unset() -> None:
    strategy = Strategy(variables={"A": "1", "B": None, "C": None})

    assert environment(strategy, {"A": "0", "B": "0"}) == ({"A": "1"}, ("B", "C"))


def test_no_compiling_is_told_to_dynamo_as_well() -> None:
    told, _ = environment(Strategy(compile=False), {})

    assert told["TORCHDYNAMO_DISABLE"] == "1"
    assert json.loads(told[wire.STRATEGY]) == {"version": 1, "compile": False}


def test_parts_are_told_to_the_loop() -> None:
    assert environment(Strategy(micro_batch=4), {wire.MICRO_BATCH: "8"}) == (
        {wire.MICRO_BATCH: "4"},
        (),
    )


@pytest.mark.parametrize("existing", [{}, {HIP: "1"}, {CUDA: "0,1"}, {ROCR: "1"}])
def test_the_cpu_sees_no_gpu_whatever_the_user_set(existing: dict[str, str]) -> None:
    assert environment(Strategy(device="cpu"), existing) == ({HIP: "-1", CUDA: "-1", ROCR: ""}, ())


@pytest.mark.parametrize(
    ("existing", "gpus", "visible"),
    [
        ({}, (0,), "0"),
        ({}, (1, 0), "1,0"),
        ({HIP: "2,3"}, (1,), "3"),
        ({CUDA: "2, 3"}, (1, 0), "3,2"),
        ({HIP: "1", CUDA: "2,3"}, (0,), "1"),  # HIP reads its own first
        ({HIP: "", CUDA: "2,3"}, (1,), "3"),  # and takes an empty one for none
        ({HIP: "GPU-8f3a,GPU-77aa"}, (1,), "GPU-77aa"),
        ({ROCR: "2,3"}, (1,), "1"),  # a filter before HIP, which counts what is left
        ({HIP: "1,-1,0"}, (0,), "1"),  # HIP stops at what is no GPU
    ],
)
def test_gpus_are_chosen_from_those_the_user_lets_be_seen(
    existing: dict[str, str], gpus: tuple[int, ...], visible: str
) -> None:
    told, unset = environment(Strategy(gpus=gpus), existing)

    assert requested_settings(told.pop(wire.STRATEGY)) == {"gpus": list(gpus)}  # for a launcher
    assert (told, unset) == ({HIP: visible, CUDA: visible}, ())


@pytest.mark.parametrize("mask", ["2,3", "0,1,-1,4", "-1"])
def test_a_gpu_that_the_user_hides_is_not_to_be_had(mask: str) -> None:
    with pytest.raises(RocsteadyError, match="there is no GPU 2, counted from 0"):
        environment(Strategy(gpus=(2,)), {HIP: mask})


def test_a_mask_that_the_strategy_unsets_is_not_chosen_from() -> None:
    strategy = Strategy(gpus=(1,), variables={HIP: None})

    told, unset = environment(strategy, {HIP: "0"})

    assert (told[HIP], told[CUDA], unset) == ("1", "1", ())


@given(
    st.builds(
        Strategy,
        workers=st.none() | st.integers(0, 99),
        worker_context=st.sampled_from([None, "fork", "forkserver", "spawn"]),
        persistent_workers=st.none() | st.booleans(),
        prefetch_factor=st.none() | st.integers(1, 99),
        attention=st.sampled_from([None, "math", "efficient", "flash"]),
        miopen=st.sampled_from([None, False]),
        precision=st.sampled_from([None, "bf16", "fp16", "fp32"]),
        compile=st.sampled_from([None, False]),
    )
)
def test_inside_reads_every_strategy_as_it_was_meant(strategy: Strategy) -> None:
    told, _ = environment(strategy, {})
    read = requested_settings(told.get(wire.STRATEGY, '{"version": 1}'))

    assert Strategy(**read) == strategy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "workers": 0}',
        '{"version": 1, "workers": -1}',
        '{"version": 1, "workers": true}',
        '{"version": 1, "compile": 1}',
        '{"version": 1, "compile": true}',
        '{"version": 1, "miopen": true}',
        '{"version": 1, "attention": "magic"}',
        '{"version": 1, "attention": ["math"]}',
        '{"version": 1, "workers": 0, "colour": "red"}',
    ],
)
def test_what_inside_does_not_know_is_refused_as_a_whole(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        requested_settings(text)
