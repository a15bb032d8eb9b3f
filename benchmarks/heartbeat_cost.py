"""What the heartbeat costs a training step, counted directly and by comparison.

    python benchmarks/heartbeat_cost.py --python PATH-OF-A-PYTHON-WITH-TORCH

Directly: real training steps of about 2 and 20 ms, each hook timed in place (with the caches as the
step left them) and hot (called again and again); the clock's own cost is measured in place too and
taken off. By comparison: whole processes with and without the injection, in turn, with the spread
of the bare ones among themselves. The exit code says whether the direct figures are as wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from rocsteady.run.attempt.injection import lay_out, private_folder, runtime_folders

STEP_HOOK = {2: 0.5, 20: 0.1}  # most per cent of a step of so many ms, for the step hook alone
ALL_PHASES = {2: 1.0, 20: 0.3}
SAME_AT = 2.0  # per cent
PAYLOAD = Path(__file__).parent / "heartbeat_payload.py"


def train(python: str, added: dict[str, str], *arguments: str) -> Any:  # noqa: ANN401 - JSON
    """Run the payload in a process of its own, and give what it measured."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [python, str(PAYLOAD), *arguments],
        env={**bare, **added},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def account(python: str, added: dict[str, str]) -> bool:
    """Print the direct figures; true if all are as wanted."""
    good = True
    for wanted, step_limit in STEP_HOOK.items():
        seen = train(python, added, "account", str(wanted))
        step = seen["step_ns"]
        print(f"\na step of {step / 1e6:.2f} ms, {seen['steps']} steps, nanoseconds a step:")
        print(f"{'':<12}{'hot':>8}{'in place: median':>18}{'mean':>8}")
        for name, cost in seen["hooks"].items():
            hot, median, mean = cost["hot"], cost["median"], cost["mean"]
            print(f"{name:<12}{hot:>8.0f}{median:>18.0f}{mean:>8.0f}")
        optimizer = seen["hooks"]["optimizer"]["mean"]
        everything = sum(cost["mean"] for cost in seen["hooks"].values())
        for name, cost, limit in (
            ("the step hook alone", optimizer, step_limit),
            ("all phases", everything, ALL_PHASES[wanted]),
        ):
            share = 100 * cost / step
            good = good and share <= limit
            print(f"{name:<20} {share:6.3f} % of the step; at most {limit} % is wanted")
    return good


def compare(python: str, added: dict[str, str], pairs: int) -> None:
    """Print how processes with and without the injection differ, and the bare ones themselves."""
    for wanted in STEP_HOOK:
        bare: list[float] = []
        ours: list[float] = []
        for _ in range(pairs):
            bare.append(train(python, {}, "time", str(wanted))["step_ns"])
            ours.append(train(python, added, "time", str(wanted))["step_ns"])
        middle = statistics.median(bare)
        ratios = [100 * (b / a - 1) for a, b in zip(bare, ours, strict=True)]
        spread = [100 * (value / middle - 1) for value in bare]
        print(f"\n{pairs} pairs at {middle / 1e6:.2f} ms a step:")
        print(f"  with against without: median {statistics.median(ratios):+.2f} %")
        print(f"  the pairs: {' '.join(f'{value:+.1f}' for value in sorted(ratios))}")
        print(f"  without, against their own median: {min(spread):+.1f} to {max(spread):+.1f} %")
        resolved = 2 * 1.25 * statistics.stdev(ratios) / len(ratios) ** 0.5  # of a median
        apart = statistics.median(ratios) - resolved > SAME_AT
        print(f"  so many pairs resolve {resolved:.1f} %", end="; ")
        print(f"to be told apart at {SAME_AT} %: {'yes' if apart else 'no'}")


def main() -> None:
    """Measure both ways."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--python", required=True, help="an interpreter that has torch")
    parser.add_argument("--pairs", type=int, default=10)
    arguments = parser.parse_args()
    folder = private_folder(runtime_folders(f"benchmark-{os.getpid()}", os.environ)[0])
    try:
        injection = lay_out(folder)
        added = injection.environment({}, run_id="benchmark", supervisor=os.getpid())
        good = account(arguments.python, added)
        compare(arguments.python, added, arguments.pairs)
    finally:
        shutil.rmtree(folder)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
