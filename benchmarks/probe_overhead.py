"""What it costs to run each probe in a process of its own.

    python benchmarks/probe_overhead.py --python PATH-OF-A-PYTHON-WITH-TORCH

The same payloads with the same number of tries: one after another in one interpreter (bare), and
each in its own, which is compared with the sum of the bare ones and one import each. Both in turn,
so that a machine that is busy is busy for both. Then the whole levels.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rocsteady.probe.catalog import FRESH_START, LEVELS, PROBES, Probe
from rocsteady.probe.guard import Guard
from rocsteady.probe.payload_site import lay_out
from rocsteady.probe.runner import ProbeRunner
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.machine_history import Memory

WANTED = 1.3  # times the bare payloads
TRIES = {  # for about half a second each
    "copies pageable": 20,
    "matmul-gradient fp32": 100,
    "matmul-gradient bf16": 100,
    "convolution-gradient": 150,
    "attention-backward math": 150,
    "attention-backward flash": 150,
    "loader 0 workers": 800,
    "loader 2 workers, fork": 600,
    "ranks gloo": 300,
}
LIMITS = {1: 25.0, 2: 100.0}
LONG = 600.0  # seconds, which no payload here takes
BARE = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
began = time.monotonic()
import torch
print(json.dumps(["import", time.monotonic() - began]))
from _rocsteady_inside.payloads import experiment
for request in json.loads(sys.argv[2]):
    began = time.monotonic()
    experiment.run_one(request)
    print(json.dumps([request["title"], time.monotonic() - began]))
"""


def chosen(titles: dict[str, int]) -> list[Probe]:
    """Return the probes with these titles."""
    return [probe for probe in PROBES if probe.title in titles]


def bare(python: str, probes: Sequence[Probe], tries: dict[str, int]) -> dict[str, float]:
    """Time the payloads one after another in one interpreter."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        requests = []
        for number, probe in enumerate(probes):
            mine = folder / str(number)
            mine.mkdir()
            requests.append(
                {
                    "title": probe.title,
                    "payload": probe.payload,
                    "arguments": probe.arguments,
                    "tries": tries[probe.title],
                    "seconds": LONG,
                    "folder": str(mine),
                }
            )
        command = [python, "-c", BARE, str(lay_out(folder)), json.dumps(requests)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(line) for line in done.stdout.splitlines())


@contextlib.contextmanager
def runner(python: str) -> Iterator[ProbeRunner]:
    """Give a runner with a journal of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place = find_place(folder, state=folder / "state")
        guard = Guard(Journal(place), Memory(place))
        made = ProbeRunner(python, folder=folder, guard=guard, environment=dict(os.environ))
        try:
            yield made
        finally:
            guard.journal.close()
            guard.memory.close()


def isolated(made: ProbeRunner, probes: Sequence[Probe], tries: dict[str, int]) -> float:
    """Time the same, each in a process of its own."""
    began = time.monotonic()
    for probe in probes:
        seen = made.run(probe, tries=tries[probe.title], seconds=LONG)
        if seen.bad:
            sys.exit(f"{probe.title}: {seen.outcome.value}: {seen.why}")
    return time.monotonic() - began


def compare(python: str, made: ProbeRunner, titles: dict[str, int], repeat: int) -> list[float]:
    """Return how many times longer it took, for each repetition."""
    probes = chosen(titles)
    ratios = []
    for _ in range(repeat):
        plain = bare(python, probes, titles)
        imports = plain.pop("import") * len(probes)
        ratios.append(isolated(made, probes, titles) / (sum(plain.values()) + imports))
    return ratios


def at_level(level: int) -> list[Probe]:
    return [probe for probe in PROBES if probe.level <= level and probe.gpus == 0]


def estimate(level: int) -> float:
    column = LEVELS.index(level)
    return sum(FRESH_START + probe.seconds[column] for probe in at_level(level))


def whole(python: str, level: int) -> tuple[float, int]:
    """Time a level on a machine without a GPU, from nothing."""
    began = time.monotonic()
    bad = 0
    with runner(python) as made:
        for probe in at_level(level):
            column = level - 1
            seen = made.run(probe, tries=probe.tries[column], seconds=probe.seconds[column])
            bad += seen.bad
    return time.monotonic() - began, bad


def main() -> None:
    """Compare, and say whether it is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--levels", type=int, nargs="*", default=[1, 2])
    options = parser.parse_args()
    if options.repeat:
        with runner(options.python) as made:
            ratios = compare(options.python, made, TRIES, options.repeat)
            middle = statistics.median(ratios)
            print(
                f"{middle:.2f} times the bare payloads"
                f" ({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} times),"
                f" {'as wanted' if middle <= WANTED else f'MORE THAN {WANTED}'}"
            )
    for level in options.levels:
        seconds, bad = whole(options.python, level)
        wanted = LIMITS.get(level, estimate(level))
        print(
            f"level {level}: {seconds:.1f} s, {bad} bad; {wanted:.0f} s wanted,"
            f" estimate {estimate(level):.1f} s; load {os.getloadavg()[0]:.1f}"
        )


if __name__ == "__main__":
    main()
