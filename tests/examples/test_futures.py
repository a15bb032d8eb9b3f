"""The futures job: bounded memory, and two ranks that do what one does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "futures"
MOST_MEMORY = 600e6  # bytes
SAME = 1e-3  # of the loss, at every point of the curve
CURVE = (
    *("--folds", "2", "--batch_size", "256", "--epochs", "2", "--hidden_layers", "64"),
    *("--checkpoint_every", "100000"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "futures"))


def carry_out(folder: Path, *words: str) -> int:
    """Run to the end, and return the most memory that a process of it had, in bytes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_maxrss * 1024


def test_five_million_rows_fit_in_bounded_memory(folder: Path, torch_python: str) -> None:
    made = carry_out(folder, torch_python, "make_data.py", "--rows", "5000000")
    small = ("--epochs", "1", "--batch_size", "4096", "--folds", "2", "--hidden_layers", "64")
    used = carry_out(folder, torch_python, "train.py", *small)

    assert made < MOST_MEMORY
    assert used < MOST_MEMORY


def test_two_ranks_give_the_loss_curve_of_one(folder: Path, torch_python: str) -> None:
    carry_out(folder, torch_python, "make_data.py", "--rows", "100000")
    carry_out(folder, torch_python, "train.py", *CURVE, "--output", "one")
    ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    carry_out(folder, torch_python, *ranks, "train.py", *CURVE, "--output", "two")

    one, two = (
        json.loads((folder / output / "metadata.json").read_text())["loss_curve"]
        for output in ("one", "two")
    )
    assert len(one) == len(two)
    assert len(set(one)) > 10  # it is a curve
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) < SAME
