"""With a real torch, started by whatever people start it with: the same, and its steps are seen."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from beside_torch import python_with
from side_by_side import Ended, SideBySide, not_aborted

pytestmark = pytest.mark.slow
EXTRAS = Path(__file__).parents[2] / ".ci" / "extras-venv"
EXTRAS_PYTHON = "ROCSTEADY_TEST_EXTRAS_PYTHON"  # one that has all of them, instead
WANTED = ("accelerate", "nbconvert", "ipykernel", "uv")
TRAIN = """
    import os, sys, torch
    from torch import nn
    torch.set_num_threads(1); torch.manual_seed(0)

    def train(net, steps=5):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(steps):
            loss = net(torch.ones(2, 8)).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            if os.environ.get("RANK", "0") == "0": print(step, loss.item(), flush=True)
"""
ALONE = TRAIN + "    train(nn.Linear(8, 1)); print(sys.argv[1:], __name__)"
RANKS = """
    import torch.distributed as dist
    def rank(*_):
        dist.init_process_group("gloo")
        train(nn.parallel.DistributedDataParallel(nn.Linear(8, 1)))
        dist.destroy_process_group()
"""
# What torch's launcher and gloo say has addresses, times and pids in it.
VARIES = re.compile(rb"0x[0-9a-f]+|\d+")


@pytest.fixture
def extras_python(torch_python: str) -> str:
    """Return an interpreter with torch and launchers: the one named, or one made here once."""
    named = os.environ.get(EXTRAS_PYTHON)
    if named:
        return named
    return python_with(WANTED, EXTRAS, torch_python)


@pytest.fixture
def runs(tmp_path: Path) -> SideBySide:
    return SideBySide(tmp_path)


def alike(ended: Ended) -> tuple[int, bytes, list[bytes]]:
    """Give what must be the same where the launcher's own lines hold times and pids."""
    return ended.code, ended.out, [VARIES.sub(b"", line) for line in ended.err.splitlines()]


def seen(runs: SideBySide) -> int:
    """Return the steps that the journal has of the last run."""
    return int(runs.story()["step"])


@pytest.mark.ci
def test_a_script_alone(runs: SideBySide, torch_python: str) -> None:
    runs.both(torch_python, runs.script(ALONE), "--lr", "0.1")

    assert seen(runs) == 5


@pytest.mark.ci
def test_torchrun_with_two_ranks(runs: SideBySide, torch_python: str) -> None:
    script = runs.script(TRAIN + RANKS + "    rank()")
    launcher = str(Path(torch_python).with_name("torchrun"))
    command = (launcher, "--standalone", "--nproc-per-node=2", script)

    bare = not_aborted(lambda: runs.bare(*command))
    watched = not_aborted(lambda: runs.watched(*command))

    assert alike(watched) == alike(bare)
    assert (watched.code, seen(runs)) == (0, 5)


def test_torchrun_with_a_rank_that_fails(runs: SideBySide, torch_python: str) -> None:
    script = runs.script("import os, sys; sys.exit(7 if os.environ['RANK'] == '1' else 0)")
    command = (torch_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")

    bare, watched = runs.bare(*command, script), runs.watched(*command, script)

    assert (watched.code, watched.out) == (bare.code, bare.out) == (1, b"")
    assert b"exitcode  : 7" in watched.err


def test_ranks_of_mp_spawn(runs: SideBySide, torch_python: str) -> None:
    script = runs.script(
        TRAIN
        + """
    def rank(rank, store):
        os.environ["RANK"] = str(rank)
        torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
        train(nn.parallel.DistributedDataParallel(nn.Linear(8, 1)))
        torch.distributed.destroy_process_group()
    if __name__ == "__main__":
        torch.multiprocessing.spawn(rank, (os.path.abspath(sys.argv[1]),), nprocs=2)
    """
    )

    store = itertools.count()  # each try has one of its own

    bare = not_aborted(lambda: runs.bare(torch_python, script, f"store-{next(store)}"))
    watched = not_aborted(lambda: runs.watched(torch_python, script, f"store-{next(store)}"))

    assert alike(watched) == alike(bare)
    assert (watched.code, seen(runs)) == (0, 5)


def test_accelerate_launch(runs: SideBySide, extras_python: str) -> None:
    script = runs.script(
        TRAIN
        + """
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    net = nn.Linear(8, 1); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer = accelerator.prepare(net, optimizer)
    for step in range(5):
        loss = net(torch.ones(2, 8)).square().mean()
        optimizer.zero_grad(); accelerator.backward(loss); optimizer.step()
        accelerator.print(step, loss.item())
    """
    )
    launcher = str(Path(extras_python).with_name("accelerate"))
    alone = ("--cpu", "--num_processes=1", "--num_machines=1")
    command = (launcher, "launch", *alone, "--mixed_precision=no", "--dynamo_backend=no", script)

    bare, watched = runs.bare(*command), runs.watched(*command)

    assert alike(watched) == alike(bare)
    assert (watched.code, seen(runs)) == (0, 5)


def test_a_notebook_by_nbconvert(runs: SideBySide, extras_python: str) -> None:
    lines = [line[4:] for line in ALONE.splitlines()]
    cell: dict[str, object] = {
        "id": "a",
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": "\n".join(lines).replace("sys.argv[1:]", "0"),
    }
    kernel = {"name": "python3", "display_name": "x", "language": "python"}
    notebook = {
        "cells": [cell],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (runs.folder / "train.ipynb").write_text(json.dumps(notebook))
    command = (extras_python, "-m", "nbconvert", "--to", "markdown", "--execute", "--stdout")

    bare, watched = runs.bare(*command, "train.ipynb"), runs.watched(*command, "train.ipynb")

    assert alike(watched) == alike(bare)
    assert (watched.code, seen(runs)) == (0, 5)
    assert b"4 0." in watched.out


def test_uv_run(runs: SideBySide, extras_python: str) -> None:
    uv = str(Path(extras_python).with_name("uv"))
    command = (uv, "run", "--no-project", "--offline", "--python", extras_python)

    ended = runs.both(*command, runs.script(ALONE), "a b", "--")

    assert (ended.code, seen(runs)) == (0, 5)


def test_conda_run(runs: SideBySide) -> None:
    conda = os.environ.get("CONDA_EXE") or shutil.which("conda")
    if not conda:
        pytest.skip("NOT CONFIRMED: there is no conda on this machine")
    text = "import os, sys; print(sys.argv, 'ROCSTEADY_PAGES' in os.environ); sys.exit(3)"

    ended = runs.watched(conda, "run", "--no-capture-output", "python", "-c", text, "a")

    assert (ended.code, ended.out) == (3, b"['-c', 'a'] True\n")
