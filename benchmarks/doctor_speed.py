"""How long the doctor takes, against torch's own report on its environment.

Both are whole commands, started in turn, so that whatever else the machine does hits both alike:

    python benchmarks/doctor_speed.py --python PATH-OF-A-PYTHON-WITH-TORCH

The ratio of medians must be at most 1/8; the exit code says whether it is.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

LIMIT = 1 / 8
ROUNDS = 15


def seconds(command: list[str]) -> float:
    """Time one run of a command from start to exit."""
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False, env=environment)
    elapsed = time.perf_counter() - start
    if done.returncode not in (0, 1):
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stderr.decode()}")
    return elapsed


def told(name: str, times: list[float]) -> float:
    """Print the spread and return the median."""
    low, *_, high = sorted(times)
    median = statistics.median(times)
    spread = f"least {low * 1000:6.0f}   most {high * 1000:6.0f}"
    print(f"{name:<34} median {median * 1000:6.0f} ms   {spread}")
    return median


def main() -> None:
    """Run both in turn and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="an interpreter that has torch")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    doctor = [sys.executable, "-m", "rocsteady", "doctor", "--python", arguments.python]
    collect = [arguments.python, "-m", "torch.utils.collect_env"]
    for command in (doctor, collect):
        seconds(command)  # once for the page cache
    pairs = [(seconds(doctor), seconds(collect)) for _ in range(arguments.rounds)]
    ours = told("rocsteady doctor", [pair[0] for pair in pairs])
    theirs = told("python -m torch.utils.collect_env", [pair[1] for pair in pairs])
    ratio = ours / theirs
    print(f"ratio {ratio:.3f} over {arguments.rounds} rounds; at most {LIMIT:.3f} is wanted")
    sys.exit(0 if ratio <= LIMIT else 1)


if __name__ == "__main__":
    main()
