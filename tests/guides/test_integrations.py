"""Checkpoints that the frameworks really wrote: the newest that is whole is found, and no other."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WITHIN = 300.0  # seconds, on a machine that has other things to do

pytestmark = pytest.mark.slow


def chosen(framework: str, folder: Path, python: str) -> dict[str, str | None]:
    """Return which checkpoint is chosen after each damage to the newest."""
    ended = subprocess.run(
        [python, str(HERE / "broken_checkpoints.py"), framework],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "packages" / "rocsteady_train" / "src"),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    said = [line for line in ended.stderr.splitlines() if line.startswith("rocsteady: ")]
    assert len(said) == len(set(said)), said  # each once
    found: dict[str, str | None] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_checkpoints_of_the_trainer(tmp_path: Path, frameworks_python: str) -> None:
    found = chosen("transformers", tmp_path, frameworks_python)

    told = {
        "nothing": "checkpoint-12",
        "an older one is asked for": "checkpoint-4",
        "one elsewhere is asked for": "checkpoint-12",
        "no folder": None,
        "after that": "checkpoint-12",
        "set aside": "checkpoint-12",
        # What the Trainer does not need to go on.
        "removed config.json": "checkpoint-12",
        "removed generation_config.json": "checkpoint-12",
        "removed training_args.bin": "checkpoint-12",
    }
    assert {name: found.pop(name) for name in told} == told
    assert len(found) >= 30
    assert {name for name, newest in found.items() if newest != "checkpoint-8"} == set()


def test_checkpoints_of_lightning(tmp_path: Path, frameworks_python: str) -> None:
    assert chosen("lightning", tmp_path, frameworks_python) == {
        "nothing": "last.ckpt",
        "half last.ckpt": "step=8.ckpt",
        "emptied last.ckpt": "step=8.ckpt",
        "flipped last.ckpt": "step=8.ckpt",
        "removed last.ckpt": "step=8.ckpt",
        "weights only": "last.ckpt",
        "not of Lightning": "last.ckpt",
        "an older one is asked for": "step=4.ckpt",
        "no folder": None,
    }


def test_checkpoints_of_accelerate(tmp_path: Path, frameworks_python: str) -> None:
    found = chosen("accelerate", tmp_path, frameworks_python)

    told = {
        "number at first": "None",
        "nothing": "checkpoint_2",
        "number after that": "1, step 2",
        "saved next": "checkpoint_3",
    }
    assert {name: found.pop(name) for name in told} == told
    assert len(found) >= 16
    assert {name for name, newest in found.items() if newest != "checkpoint_1"} == set()


def refused(framework: str, folder: Path, python: str, wrong: str) -> tuple[int, str, str]:
    """Train while the disk refuses the second and third of four saves."""
    ended = subprocess.run(
        [python, str(HERE / "failed_saves.py"), framework, wrong],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "packages" / "rocsteady_train" / "src"),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    return ended.returncode, (ended.stdout.splitlines() or [""])[-1], ended.stderr


def test_the_trainer_goes_on_after_saves_that_failed(
    tmp_path: Path, frameworks_python: str
) -> None:
    code, out, err = refused("transformers", tmp_path, frameworks_python, "disk")

    assert code == 0, err
    assert json.loads(out) == {
        "steps": 8,
        "left": ["checkpoint-2", "checkpoint-8"],  # what was begun is gone, the good one is not
        "newest": "checkpoint-8",
    }
    assert err.count("The training goes on") == 2


def test_lightning_goes_on_after_saves_that_failed_and_keeps_the_last_good_one(
    tmp_path: Path, frameworks_python: str
) -> None:
    code, out, err = refused("lightning", tmp_path, frameworks_python, "disk")

    assert code == 0, err
    told = json.loads(out)
    assert (told["steps"], told["newest"]) == (8, "step=8.ckpt")
    assert told["left"][2:] == [["step=2.ckpt"]] * 6
    assert [path.name for path in tmp_path.glob("checkpoints/*.ckpt")] == ["step=8.ckpt"]
    assert err.count("The training goes on") == 2


@pytest.mark.parametrize("framework", ["transformers", "lightning"])
def test_an_error_of_the_gpu_in_a_save_ends_the_training(
    tmp_path: Path, frameworks_python: str, framework: str
) -> None:
    code, _, err = refused(framework, tmp_path, frameworks_python, "gpu")

    assert code == 1
    assert "HIP error" in err
    assert "The training goes on" not in err
