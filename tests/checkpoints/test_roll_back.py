"""Loop(roll_back=...): a bad loss costs its batch, and not the training."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rocsteady_train

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("loops") / "roll_back.py"
LIBRARY = Path(rocsteady_train.__file__).parents[1]
Train = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def train(tmp_path: Path, torch_python: str) -> Train:
    def trained(spoil: str, **settings: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [torch_python, SCRIPT, tmp_path / "checkpoints", spoil, json.dumps(settings)],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(LIBRARY)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return trained


def result(done: subprocess.CompletedProcess[str]) -> Any:  # noqa: ANN401 - JSON
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.ci
def test_a_batch_that_is_not_finite_is_left_out_and_kept(train: Train) -> None:
    told = result(train("sample", at_most=5))

    assert (told["steps"], told["finite"], told["left_out"]) == (40, True, 2)
    steps = [each["step"] for each in told["evidence"]]
    assert told["kept"] == sorted(f"step-{step}.safetensors" for step in steps)
    assert {each["first_not_finite"] for each in told["evidence"]} == {"first (its output)"}
    repeated: dict[int, set[float]] = {}
    for step, loss in told["trained"]:
        repeated.setdefault(step, set()).add(loss)
    assert all(len(losses) == 1 for losses in repeated.values())  # the same again, to the bit
    assert sorted(repeated) == [n for n in range(40) if n + 1 not in steps]


def test_without_it_nothing_is_looked_at(train: Train) -> None:
    told = result(train("sample"))

    assert (told["steps"], told["finite"], told["evidence"]) == (40, False, [])


def test_a_leap_is_left_out_and_the_learning_rate_lowered(train: Train) -> None:
    told = result(train("leap", leap=50.0, learning_rate=0.5))

    assert (told["steps"], told["left_out"], told["lr"]) == (40, 1, 0.005)
    assert [each["step"] for each in told["evidence"]] == [31]


def test_a_checkpoint_with_bad_weights_is_passed_over(train: Train) -> None:
    told = result(train("weights", at_most=2))

    assert (told["steps"], told["finite"]) == (40, True)
    assert told["evidence"][0]["first_not_finite"] == "first.weight (its weights)"


def test_it_ends_when_it_went_back_too_often(train: Train) -> None:
    done = train("sample", at_most=1)

    assert done.returncode == 1
    assert "FloatingPointError: step" in done.stderr


def test_settings_that_mean_nothing_are_refused(train: Train) -> None:
    assert "ValueError: leap" in train("none", leap=0.5).stderr
    assert "ValueError: learning_rate" in train("none", learning_rate=2.0).stderr
