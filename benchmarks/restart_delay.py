"""How long from a crash to the restarted command's first instruction, against a bare shell loop.

    python benchmarks/restart_delay.py [--pairs 10]

A command writes down when it begins and when it crashes. The loop starts it again at once; so does
``rocsteady run``, which first has to see to the old tree, the log, the journal and the checkpoint.
Pairs are interleaved. Aim: at most 0.3 s over the loop, without a GPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

MOST = 0.3  # seconds over the loop
CRASHES = """
import os, sys, time
begun = time.clock_gettime(time.CLOCK_MONOTONIC)
with open("times", "a") as stream:
    stream.write(f"{begun} ")
    print("step 1/2", flush=True)
    stream.write(f"{time.clock_gettime(time.CLOCK_MONOTONIC)}\\n")
    stream.flush()
os._exit(3)
"""
JOB = """
command = ["{python}", "-S", "-E", "crashes.py"]
[resume]
arguments = ["{{checkpoint}}"]
checkpoints = ["*.none"]
"""


def delay(folder: Path, carry_out: Callable[[Path], None]) -> float:
    """Carry it out twice over, and return the seconds from the crash to the new beginning."""
    (folder / "times").unlink(missing_ok=True)
    carry_out(folder)
    (_, crashed), (begun, _) = (
        map(float, line.split()) for line in (folder / "times").read_text().splitlines()
    )
    return begun - crashed


def by_loop(folder: Path) -> None:
    """Start it twice, as a shell does."""
    loop = f"for i in 1 2; do {sys.executable} -S -E crashes.py; done"
    subprocess.run(["/bin/sh", "-c", loop], cwd=folder, check=False, stdout=subprocess.DEVNULL)


def by_rocsteady(folder: Path) -> None:
    """Let rocsteady start it twice."""
    command = [sys.executable, "-m", "rocsteady", "run", "--yes", "--max-attempts", "2"]
    subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def main() -> None:
    """Measure, print, and fail if it takes too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    pairs = parser.parse_args().pairs
    loops, ours = [], []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "crashes.py").write_text(CRASHES)
        (folder / "rocsteady.toml").write_text(JOB.format(python=sys.executable))
        for _ in range(pairs):
            loops.append(delay(folder, by_loop))
            ours.append(delay(folder, by_rocsteady))
            time.sleep(0.1)
    for name, delays in (("shell loop", loops), ("rocsteady run", ours)):
        low, middle, high = min(delays), statistics.median(delays), max(delays)
        print(f"{name:<15} median {middle * 1e3:6.0f} ms, {low * 1e3:.0f} to {high * 1e3:.0f}")
    over = statistics.median(ours) - statistics.median(loops)
    print(f"over the loop: {over * 1e3:.0f} ms, of {pairs} pairs; at most {MOST * 1e3:.0f} wanted")
    sys.exit(0 if over <= MOST else 1)


if __name__ == "__main__":
    main()
