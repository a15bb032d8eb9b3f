"""What a standby that waits costs a training: steps per second with and without one, interleaved.

    python benchmarks/standby_cost.py --python A-PYTHON-WITH-TORCH [--pairs 3] [--seconds 30]

The script makes AdamW steps of a small net, as fast as one thread can. They are counted over the
same stretch of time without ``--standby`` and with it, once the standby waits; those made while it
imports are shown beside. Aim: at most 1 % fewer steps while one waits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 0.01
TRAIN = """
import glob, json, os, sys, time
import torch
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer, inputs = torch.optim.AdamW(net.parameters()), torch.rand(64, 256)
torch.set_num_threads(1)
def steps(seconds, enough=lambda: False):
    count, begin = 0, time.monotonic()
    while time.monotonic() < begin + seconds and not enough():
        for _ in range(20):
            optimizer.zero_grad()
            net(inputs).mean().backward()
            optimizer.step()
        count += 20
    return count / (time.monotonic() - begin)
run, _, number = os.path.dirname(os.environ["ROCSTEADY_PAGES"]).rpartition("-")
ready = f"{run}-{int(number) + 1}/pages/*.ready"
meanwhile = steps(WARM_UP)
print(json.dumps([meanwhile, steps(float(sys.argv[1])), len(glob.glob(ready))]))
"""
WARM_UP = 15.0  # seconds: 3 until the pace is known, then the imports of the standby


def rates(python: str, seconds: float, *options: str) -> tuple[float, float, bool]:
    """Return the steps per second while a standby imports and while it waits; whether it did."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(TRAIN.replace("WARM_UP", str(WARM_UP)), encoding="utf-8")
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "rocsteady",
                "run",
                *options,
                "--",
                python,
                script,
                str(seconds),
            ],
            cwd=folder,
            env={**os.environ, "HOME": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    meanwhile, waiting, ready = json.loads(done.stdout)
    return meanwhile, waiting, bool(ready)


def main() -> int:
    """Measure, print, and return 1 if it costs too much."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args()
    importing, waiting = [], []
    for _ in range(given.pairs):
        before = rates(given.python, given.seconds)
        after = rates(given.python, given.seconds, "--standby")
        if not after[2]:
            sys.exit("there was no standby")
        importing.append(1 - after[0] / before[0])
        waiting.append(1 - after[1] / before[1])
        print(f"without {before[1]:.1f}, with {after[1]:.1f} steps/s: {waiting[-1]:+.2%};", end=" ")
        print(f"first {WARM_UP:.0f} s: {importing[-1]:+.2%}", flush=True)
    print(f"median {statistics.median(waiting):+.2%} fewer steps while one waits")
    return int(statistics.median(waiting) > MOST)


if __name__ == "__main__":
    sys.exit(main())
