"""The pace of a job that runs out of memory about every 40 steps, against what restarts allow.

    python benchmarks/pace.py --python PYTHON-WITH-TORCH [--steps 400] [--only plain loop]

Each process trains until its memory is fragmented: after 37 to 43 steps it raises torch's own
error, again and again (field note D). ``plain`` is an unmodified script that saves every 10 steps;
``loop`` uses rocsteady_train.Loop. The limit is steps times the time of a step, plus restarts times
what a restart takes without rocsteady: from the start of a process to its first step, from a
checkpoint, before and after the run. Two limits: with the restarts that were made, and with the
fewest that this script could have had. Aim: at least 0.90 of the pace of the first.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

FAILS_AFTER = (37, 41, 39, 43, 38, 42, 40)  # steps of a process
SECONDS = 0.25  # a step
SAVES_EVERY = 10
AIM = 0.90
MEMORY = """
import json, os, sys, time
with open("starts.txt", "a") as starts:
    starts.write(f"{time.monotonic()}\\n")
NUMBER = len(open("starts.txt").readlines()) - 1
import torch

FAILS_AFTER = int(os.environ.get("FAILS", "0")) or FAILS[NUMBER % len(FAILS)]
made = 0

def allocate():
    global made
    made += 1
    if made == FAILS_AFTER:
        raise torch.OutOfMemoryError(
            "HIP out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 19.98"
            " GiB of which 214.00 MiB is free. Of the allocated memory 9.31 GiB is allocated by"
            " PyTorch, and 9.87 GiB is reserved by PyTorch but unallocated. If reserved but"
            " unallocated memory is large try setting PYTORCH_HIP_ALLOC_CONF=expandable_segments:"
            "True to avoid fragmentation."
        )
    time.sleep(SECONDS)

def stepped(step):
    with open("steps.txt", "a") as log:
        log.write(f"{NUMBER} {step} {time.monotonic()}\\n")
"""
PLAIN = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--resume")
args = parser.parse_args()
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
done = 0
if args.resume:
    state = torch.load(args.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    done = state["step"]
os.makedirs("checkpoints", exist_ok=True)
for step in range(done + 1, STEPS + 1):
    allocate()
    optimizer.zero_grad()
    model(torch.randn(8, 64)).pow(2).mean().backward()
    optimizer.step()
    stepped(step)
    if step % 10 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, f"checkpoints/step{step}.pt")
        print(f"step {step}/{STEPS}", flush=True)
"""
LOOP = """
import rocsteady_train
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
loader = torch.utils.data.DataLoader(torch.randn(8 * STEPS, 64), batch_size=8)
loop = rocsteady_train.Loop(model=model, optimizer=optimizer, loader=loader, epochs=1)
for batch in loop:
    allocate()
    loop.step(batch, lambda part: model(part).pow(2).mean())
    stepped(loop.steps)
"""
SCRIPTS = {"plain": PLAIN, "loop": LOOP}


def carry_out(kind: str, python: str, steps: int) -> dict[str, Any]:
    """Run the job to its end, then start its script plainly a few times."""
    with tempfile.TemporaryDirectory(prefix="pace-") as made:
        folder = Path(made) / "project"
        folder.mkdir()
        head = f"STEPS, SECONDS, FAILS = {steps}, {SECONDS}, {FAILS_AFTER}\n"
        (folder / "train.py").write_text(head + MEMORY + SCRIPTS[kind])
        source = Path(__file__).parents[1] / "packages/rocsteady_train/src"
        environment = {
            **os.environ,
            "HOME": made,
            "XDG_RUNTIME_DIR": made,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(source),
        }
        before = [plain_restart(folder, python, environment) for _ in range(2)]
        for name in ("starts.txt", "steps.txt"):
            (folder / name).unlink()
        shutil.rmtree(folder / "checkpoints")
        began = time.monotonic()
        ended = subprocess.run(
            [sys.executable, "-m", "rocsteady", "run", "--yes", "--", python, "train.py"],
            cwd=folder, env=environment, check=False, capture_output=True, text=True,
        )  # fmt: skip
        seconds = time.monotonic() - began
        rows = [line.split() for line in (folder / "steps.txt").read_text().splitlines()]
        starts = len((folder / "starts.txt").read_text().splitlines())
        saved = (folder / "checkpoints").glob("step*")
        newest = max(saved, key=lambda path: path.stat().st_mtime)
        plain = [plain_restart(folder, python, environment, newest) for _ in range(3)]
    restart = statistics.median([*before, *plain])
    step = median_step(rows)
    fewest = fewest_restarts(steps, SAVES_EVERY if kind == "plain" else 1)
    limit = steps * step + starts * restart  # the first start counts as well
    lowest = steps * step + (fewest + 1) * restart
    return {
        "script": kind, "code": ended.returncode, "steps": len({row[1] for row in rows}),
        "repeated": len(rows) - len({row[1] for row in rows}), "starts": starts,
        "fewest_starts": fewest + 1, "step_seconds": round(step, 3),
        "restart_seconds": round(restart, 2),
        "seconds": round(seconds, 1), "pace": round(limit / seconds, 3),
        "pace_with_fewest_restarts": round(lowest / seconds, 3),
        "lines": [line for line in ended.stderr.splitlines() if line.startswith("rocsteady:")],
    }  # fmt: skip


def plain_restart(
    folder: Path, python: str, environment: dict[str, str], newest: Path | None = None
) -> float:
    """Return the seconds from the start of the script to its first step."""
    words = [python, "train.py"]
    if newest is not None and newest.suffix == ".pt":
        saved = sorted(newest.parent.glob("*.pt"), key=lambda path: path.stat().st_mtime)
        words += ["--resume", str(saved[-2])]  # so that there is a step left
    elif newest is not None and newest.exists():
        shutil.rmtree(newest)
    begun = time.monotonic()
    subprocess.run(
        words, cwd=folder, env={**environment, "FAILS": "2"}, check=False, capture_output=True
    )
    last = (folder / "steps.txt").read_text().splitlines()[-1].split()
    return float(last[2]) - begun - SECONDS


def median_step(rows: list[list[str]]) -> float:
    """Return the seconds from one step to the next in one process, saves included."""
    pairs = pairwise(rows)
    gaps = [float(after[2]) - float(before[2]) for before, after in pairs if before[0] == after[0]]
    return statistics.mean(gaps)


def fewest_restarts(steps: int, saves_every: int) -> int:
    """Return how often a script is restarted that is ended right after its last save."""
    done, starts = 0, 0
    while True:
        able = FAILS_AFTER[starts % len(FAILS_AFTER)] - 1
        if done + able >= steps:
            return starts
        done += able // saves_every * saves_every
        starts += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="with torch")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--only", nargs="*", choices=sorted(SCRIPTS), default=list(SCRIPTS))
    options = parser.parse_args()
    results = [carry_out(kind, options.python, options.steps) for kind in options.only]
    for result in results:
        print(json.dumps(result))
    return int(any(result["code"] or result["pace"] < AIM for result in results))


if __name__ == "__main__":
    sys.exit(main())
