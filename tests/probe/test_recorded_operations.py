"""What the recorder leaves is read as it was written; and it names the operation that fails."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path

import pytest
from operation_runs import MODELS, record
from rocsteady_train.inside import wire

from rocsteady.probe.recorded_operations import read_compared, read_in_flight, read_origin

MM = {
    "name": "aten::mm",
    "args": [
        {"shape": [4, 8], "stride": [8, 1], "dtype": "bfloat16", "device": "cuda"},
        [{"shape": [8], "stride": [1], "dtype": "int64", "device": "cpu"}],
    ],
    "line": "train.py:3 in step",
    "module": "0 (Linear)",
    "phase": "backward",
    "step": 7,
    "key": "abc",
}


def slot(state: int, text: bytes, *, began: int | None = None) -> bytes:
    began = time.monotonic_ns() if began is None else began
    return (struct.pack("=4Q", state, 1, began, len(text)) + text).ljust(wire.SLOT, b"\0")


def test_the_operation_in_flight_is_read_with_its_place(tmp_path: Path) -> None:
    began = time.monotonic_ns() - 5_000_000_000
    done = slot(wire.CAME_BACK, json.dumps({**MM, "name": "aten::add"}).encode())
    page = done + slot(wire.IN_FLIGHT, json.dumps(MM).encode(), began=began)
    (tmp_path / f"77{wire.OPERATION_SUFFIX}").write_bytes(page)

    (found,) = read_in_flight(tmp_path)

    assert (found.operation.name, found.operation.step) == ("aten::mm", 7)
    assert found.seconds == pytest.approx(5.0, abs=1.0)
    assert found.operation.tensors == ["bfloat16 [4, 8]", "int64 [8]"]
    assert found.operation.device == "cuda"
    assert found.operation.where == "backward of train.py:3 in step, 0 (Linear)"


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"name": 3}', b"\xff\xfe"])
def test_what_is_no_operation_is_passed_over(tmp_path: Path, text: bytes) -> None:
    (tmp_path / f"77{wire.OPERATION_SUFFIX}").write_bytes(slot(wire.IN_FLIGHT, text))
    for suffix in (wire.ORIGIN_SUFFIX, wire.NUMBERS_SUFFIX):
        (tmp_path / f"77{suffix}").write_bytes(text)

    assert read_in_flight(tmp_path) == ()
    assert read_origin(tmp_path) is None
    assert read_compared(tmp_path) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "operator", "fault"),
    [
        ("transformer", "aten::native_layer_norm_backward", "hang"),
        ("gnn", "aten::index_add_", "abort"),
        ("cnn", "aten::max_pool2d_with_indices", "segv"),
    ],
)
def test_a_fault_below_the_dispatcher_is_named(
    torch_python: str, tmp_path: Path, model: str, operator: str, fault: str
) -> None:
    order: dict[str, object] = {"operator": operator, "fault": fault, "after": 1}

    found = record(torch_python, tmp_path, str(MODELS), model, fault=order)

    assert found.notes == ""
    assert found.operation is not None
    assert found.operation.name == operator
    assert found.operation.line.startswith(str(MODELS))


@pytest.mark.slow
def test_the_first_nan_is_followed_to_the_operation_that_made_it(
    torch_python: str, tmp_path: Path
) -> None:
    order: dict[str, object] = {"operator": "aten::convolution_backward", "fault": "nan"}

    found = record(torch_python, tmp_path, str(MODELS), "diffusion", fault=order)

    assert found.origin is not None
    assert found.origin.operation is not None
    assert (found.origin.kind, found.origin.operation.name) == (
        "nan",
        "aten::convolution_backward",
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", ["half", "clipped"])
def test_masks_dropout_and_a_scaler_accuse_nobody(
    torch_python: str, tmp_path: Path, model: str
) -> None:
    found = record(torch_python, tmp_path, str(MODELS), model)

    assert (found.code, found.origin, found.notes) == (0, None, "")


@pytest.mark.slow
def test_one_percent_is_found_by_comparing_and_a_healthy_model_is_not_accused(
    torch_python: str, tmp_path: Path
) -> None:
    order: dict[str, object] = {"operator": "aten::_softmax", "fault": "share", "share": 0.01}
    numbers = {"first": 2, "every": 50}

    wrong = record(torch_python, tmp_path, str(MODELS), "clipped", fault=order, numbers=numbers)
    right = record(torch_python, tmp_path, str(MODELS), "clipped", numbers=numbers)

    assert wrong.origin is not None
    assert wrong.origin.operation is not None
    assert (wrong.origin.operation.name, wrong.origin.how) == (
        "aten::_softmax",
        "1.01 times what it should be",
    )
    assert right.numbers is not None
    assert right.numbers.deviations == ()
    assert right.numbers.compared["aten::_softmax"] > 0
    assert right.numbers.not_compared["aten::bernoulli_"] == "random"
