"""Faults as a person writes them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rocsteady.probe.drill import Fault, for_inside, not_tried, read_faults


def test_what_is_written_is_read() -> None:
    text = "hang:backward@200, oom@350,hang@400,nan@800,oom:aten::mm@40,kill:aten::add.Tensor@5"

    assert read_faults(text) == (
        Fault(kind="hang", place="backward", at=200, spelt="hang:backward@200"),
        Fault(kind="oom", place="step", at=350, spelt="oom@350"),
        Fault(kind="hang", place="step", at=400, spelt="hang@400"),
        Fault(kind="nan", place="backward", at=800, spelt="nan@800"),
        Fault(kind="oom", place="aten::mm", at=40, spelt="oom:aten::mm@40"),
        Fault(kind="kill", place="aten::add.Tensor", at=5, spelt="kill:aten::add.Tensor@5"),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "name at least one fault"),
        (",", "name at least one fault"),
        ("kill", "'kill' is not a fault; write it as kill@500"),
        ("kill@", "is not a fault"),
        ("kill@-1", "is not a fault"),
        ("kill@1.5", "is not a fault"),
        ("kill@0", "counted from 1"),
        ("kill@99999999999999", "counted from 1"),
        ("explode@5", "unknown fault 'explode'; known faults: hang, oom"),
        ("hang:sideways@5", "'sideways' is not an operator such as aten::mm. A hang can also be"),
        ("oom:backward@5", "'oom:backward@5': 'backward' is not an operator such as aten::mm."),
        ("oom:aten::@5", "is not an operator"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        read_faults(text)


def test_what_was_not_tried_is_named() -> None:
    assert not_tried(read_faults("hang:backward@1,oom:aten::mm@2,nan@3")) == (
        "hang:loader",
        "hang:step",
        "fault",
        "kill",
        "segv",
        "abort",
    )


def test_the_training_process_is_told_where_it_goes_on() -> None:
    told = json.loads(for_inside(read_faults("kill@5"), before=3, folder=Path("/marks")))

    assert told == {
        "version": 1,
        "before": 3,
        "folder": "/marks",
        "faults": [{"kind": "kill", "place": "step", "at": 5}],
    }
