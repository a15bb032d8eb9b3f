"""What a standby that waits costs a training: steps per second with and without one, side by side.

    python benchmarks/standby_cost.py --python A-PYTHON-WITH-TORCH [--pairs 6] [--seconds 30]

The script makes AdamW steps of a small net, as fast as one thread can. Two run at the same time,
each on a processor of its own, one of them with ``--standby``; the next pair swaps the processors.
So what slows the machine for a while slows both. Steps are counted in each second of the same
stretch, once the standby waits, and the median second counts. Aim: at most 1 % fewer steps while
one waits. Needs two idle processors. Where the same script differs more than that between two
processors, as on a virtual machine, what the standby itself used in the stretch tells more.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOST = 0.01
TRAIN = """
import glob, json, os, statistics, sys, time
import torch
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer, inputs = torch.optim.AdamW(net.parameters()), torch.rand(64, 256)
torch.set_num_threads(1)
def rate(seconds):
    count, begin = 0, time.monotonic()
    while (passed := time.monotonic() - begin) < seconds:
        for _ in range(20):
            optimizer.zero_grad()
            net(inputs).mean().backward()
            optimizer.step()
        count += 20
    return count / passed
run, _, number = os.path.dirname(os.environ["ROCSTEADY_PAGES"]).rpartition("-")
ready = f"{run}-{int(number) + 1}/pages/*.ready"
def used():
    ticks = switches = 0
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as stream:
                if f"{run}-{int(number) + 1}/".encode() not in stream.read(): continue
            with open(path.replace("environ", "stat")) as stream:
                ticks += sum(map(int, stream.read().rpartition(")")[2].split()[11:13]))
            with open(path.replace("environ", "status")) as stream:
                switches += sum(int(line.split()[1]) for line in stream if "ctxt_sw" in line)
        except OSError:
            pass
    return ticks / os.sysconf("SC_CLK_TCK"), switches
rate(WARM_UP)
was, before = len(glob.glob(ready)), used()
assert bool(was) == (before[0] > 1), "a standby has imported torch by now"
steps = statistics.median(rate(1) for _ in range(int(sys.argv[1])))
print(json.dumps([steps, was, *(now - then for now, then in zip(used(), before))]))
"""
WARM_UP = 25.0  # seconds: 3 until the pace is known, then the imports of the standby


@contextmanager
def training(
    python: str, seconds: int, processor: int, *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the script below rocsteady, all of it on one processor."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(TRAIN.replace("WARM_UP", str(WARM_UP)), encoding="utf-8")
        words = (
            "taskset",
            "-c",
            str(processor),
            sys.executable,
            "-m",
            "rocsteady",
            "run",
            *options,
        )
        with subprocess.Popen(
            (*words, "--", python, script, str(seconds)),
            cwd=folder,
            env={**os.environ, "HOME": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as started:
            yield started


def pair(python: str, seconds: int, processors: tuple[int, int]) -> tuple[float, float, str]:
    """Return the steps per second without and with a standby, and what that one used."""
    first, second = processors
    with (
        training(python, seconds, first) as without,
        training(python, seconds, second, "--standby") as beside,
    ):
        told = [json.loads(it.communicate()[0]) for it in (without, beside)]
    after, waits, processor, switches = told[1]
    if not waits:
        sys.exit("there was no standby")
    return told[0][0], after, f"it used {processor:.2f} s and woke up {switches} times"


def main() -> int:
    """Measure, print, and return 1 if it costs too much."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--pairs", type=int, default=6, help="an even number")
    parser.add_argument("--seconds", type=int, default=30)
    given = parser.parse_args()
    one, two = sorted(os.sched_getaffinity(0))[:2]
    fewer = []
    for number in range(given.pairs):
        order = (two, one) if number % 2 else (one, two)
        before, after, used = pair(given.python, given.seconds, order)
        fewer.append(1 - after / before)
        print(
            f"without {before:.1f}, with {after:.1f} steps/s: {fewer[-1]:+.2%}; {used}", flush=True
        )
    mean = statistics.fmean(fewer)
    print(f"mean {mean:+.2%} fewer steps while one waits ({min(fewer):+.2%} to {max(fewer):+.2%})")
    return int(mean > MOST)


if __name__ == "__main__":
    sys.exit(main())
