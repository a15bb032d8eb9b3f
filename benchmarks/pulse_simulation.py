"""False hangs, recall and delay of the verdict, over a million simulated steps and more.

Runs of many lengths with lognormal and Pareto step times, and pauses for validation, checkpoints,
recompiles and stalled data; each ends in a hang:

    python benchmarks/pulse_simulation.py

The exit code says whether there was no false hang. A second part, which does not count for that,
lets the heavy tails be waits for a GPU: the one thing whose budget is a multiple of what was seen.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the simulator is shared with the tests

from tests.hangs.verdicts.heavy_tails import Tally, run

LENGTHS = (500, 5_000, 20_000, 74_500)


def told(title: str, tally: Tally) -> None:
    """Print what came of it."""
    print(f"{title}: {tally.steps:,} steps, {tally.pauses:,} pauses, {tally.seconds / 3600:.0f} h")
    print(f"  longest healthy step {tally.longest:.0f} s; false hangs {len(tally.false)}")
    for line in tally.false:
        print(f"    {line}")
    found = sum(len(delays) for delays in tally.delays.values())
    print(f"  recall {found}/{found + tally.missed} within 30 minutes; delay from the last step:")
    for name, delays in sorted(tally.delays.items()):
        spread = f"least {min(delays):5.1f} s   most {max(delays):5.1f} s"
        print(f"    {name:<24} median {statistics.median(delays):5.1f} s   {spread}")


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="of 100,000 steps each")
    arguments = parser.parse_args()
    start = time.perf_counter()
    work, devices = Tally(), Tally()
    for seed in range(arguments.rounds * len(LENGTHS)):
        length = LENGTHS[seed // 2 % len(LENGTHS)]
        run(seed, length, work)
        run(seed, length // 5, devices, devices=True)
    told("long steps are work", work)
    told("long steps are waits for a GPU", devices)
    print(f"{time.perf_counter() - start:.0f} s")
    sys.exit(1 if work.false else 0)


if __name__ == "__main__":
    main()
