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
