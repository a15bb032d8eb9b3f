"""The CPU as a plan makes it, against what people do by hand.

    python benchmarks/cpu_ways.py --python PATH-OF-A-PYTHON-WITH-TORCH

Four scripts that know nothing of it: a perceptron, a transformer, a convolution net, an actor and
critic with an LSTM. Theirs: plain python, OMP_NUM_THREADS = cores, PyTorch's own launcher for
Xeons (one instance), bf16 written into the script, torch.compile written into the script. Ours: the
script as it is, under what ``rocsteady plan`` settled on for it by trials of its own: one row with
the same numbers and, if that is faster, one with bf16. All in turn, each in a process of its own,
the whole round again and again. A rate is that of the median step after the warm-up; a ratio is
taken within a round. The exit code says whether each row is as fast as the best of those of theirs
that it can be compared with: bf16 with all, the same numbers with those that have them too. Use a
quiet machine; all four take about 40 minutes on two processors.
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
from pathlib import Path
from typing import NamedTuple

import msgspec

from rocsteady.attempts.injection import lay_out, runtime_folder
from rocsteady.attempts.strategy_environment import environment
from rocsteady.evidence.heartbeat_pages import read_applied
from rocsteady.model import Strategy
from rocsteady.plan import Plan

SCRIPT = Path(__file__).parent / "cpu_ways_script.py"
MODELS = ("perceptron", "transformer", "convolution", "actor-critic")
WANTED = 0.98  # of the best of theirs: what the rounds here can tell from 1
BF16 = "bf16"
LONG = "3600"  # seconds, which no trial waits for


class Way(NamedTuple):
    """One way to run a script."""

    written: tuple[str, ...] = ()  # into the script: bf16, compile
    variables: dict[str, str] = {}  # noqa: RUF012 - never changed
    launcher: tuple[str, ...] = ()
    strategy: Strategy | None = None  # None: not ours

    @property
    def has_other_numbers(self) -> bool:
        """Tell whether it computes in half precision."""
        return BF16 in self.written or (self.strategy is not None and bool(self.strategy.autocast))


def by_hand(cores: int) -> dict[str, Way]:
    """Return what people do."""
    xeon = ("-m", "torch.backends.xeon.run_cpu", "--ninstances", "1", "--disable-numactl")
    return {
        "plain python": Way(),
        "OMP_NUM_THREADS": Way(variables={"OMP_NUM_THREADS": str(cores)}),
        "xeon.run_cpu": Way(launcher=xeon),
        "bf16 written": Way(written=(BF16,)),
        "compile written": Way(written=("compile",)),
    }


class Bench:
    """Runs scripts, with the injection or without."""

    def __init__(self, python: str, seconds: float, folder: Path, scratch: Path) -> None:
        self._python = python
        self._seconds = str(seconds)
        self._scratch = scratch
        self._injection = lay_out(folder)
        mine = ("PYTHON", "OMP_", "MALLOC_", "LD_PRELOAD", "TORCH", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
        self._bare = {**kept, "TORCHINDUCTOR_CACHE_DIR": str(scratch / "compiled")}

    def plan(self, kind: str) -> dict[str, Way]:
        """Have a plan made of a script, and return the fastest row of each kind of numbers."""
        folder = self._scratch / kind
        folder.mkdir()
        shutil.copy(SCRIPT, folder / "train.py")
        words = ("-m", "rocsteady", "plan", "--json", "--yes", "--trial", "15s", "--within", "8m")
        done = subprocess.run(
            [sys.executable, *words, "--", self._python, "train.py", kind, LONG],
            cwd=folder,
            env={**self._bare, "HOME": str(self._scratch)},
            stdout=subprocess.PIPE,
            check=True,
        )
        rows = [way for way in msgspec.json.decode(done.stdout, type=Plan).options if way.pace]
        for row in rows:
            print(f"  {row.title}: {'; '.join(row.rests_on)}", flush=True)
        rows.sort(key=lambda row: row.pace.rate if row.pace else 0.0)  # a faster one replaces
        found = {bool(row.strategy.autocast): row for row in rows if row.id.startswith("cpu")}
        return {row.title: Way(strategy=row.strategy) for _, row in sorted(found.items())}

    def run(self, kind: str, way: Way) -> dict[str, float]:
        """Run one script in one way, and see that what was asked for was done."""
        added = dict(way.variables)
        if way.strategy is not None:
            added |= self._injection.environment({}, run_id="b", supervisor=os.getpid())
            added |= environment(way.strategy, {})[0]
        script = (str(SCRIPT), kind, self._seconds, *way.written)
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                [self._python, *way.launcher, *script],
                env={**self._bare, **added},
                stdout=subprocess.PIPE,
                stderr=said,
                check=False,
            )
            said.seek(0)
            if not done.stdout:  # the launcher does not tell of an error
                sys.exit(f"{kind}: {said.read()}")
        for one in read_applied(self._injection.pages):
            if one.outcome != "applied":
                print(f"  {kind}: {one.setting} {one.outcome}: {one.why[:200]}", flush=True)
        for path in self._injection.pages.iterdir():
            path.unlink()
        told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return told


def is_as_fast(mine: str, rates: dict[str, list[float]], ways: dict[str, Way]) -> bool:
    """Hold one row of the plan against the best of theirs, print it, and tell whether it is."""
    theirs = [
        name
        for name, way in ways.items()
        if way.strategy is None and way.has_other_numbers <= ways[mine].has_other_numbers
    ]
    best = max(theirs, key=lambda name: statistics.median(rates[name]))
    ratios = sorted(a / b for a, b in zip(rates[mine], rates[best], strict=True))
    ratio = statistics.median(ratios)
    print(f"  {mine}: {ratio:.2f} times as fast as {best}, the best of {len(theirs)}", end="")
    print(f" ({ratios[0]:.2f} to {ratios[-1]:.2f} over the rounds); at least {WANTED} is wanted")
    return ratio >= WANTED


def compare(bench: Bench, kind: str, repeats: int, theirs: dict[str, Way]) -> bool:
    """Measure all ways of a model in turn; true if all is as wanted."""
    print(f"\n{kind}", flush=True)
    ours = bench.plan(kind)
    ways = {**theirs, **ours}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    first: dict[str, float] = {}
    for _ in range(repeats):
        for name, way in ways.items():
            told = bench.run(kind, way)
            rates[name].append(told["rate"])
            first.setdefault(name, told["first"])
    for name, values in rates.items():
        print(f"  {'ours' if name in ours else 'theirs':<7}{name:<44}", end="")
        print(f"{statistics.median(values):8.2f} steps/s", end="")
        print(f"{min(values):9.2f} to{max(values):8.2f}, {first[name]:.1f} s of warm-up")
    good = [is_as_fast(name, rates, ways) for name in ours]
    sys.stdout.flush()
    return all(good)


def main() -> None:
    """Measure, print, and say whether it is as wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--python", required=True, help="an interpreter that has torch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run, after the warm-up")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    arguments = parser.parse_args()
    folder = runtime_folder(f"benchmark-{os.getpid()}", os.environ)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            bench = Bench(arguments.python, arguments.seconds, folder, Path(scratch))
            theirs = by_hand(len(os.sched_getaffinity(0)))
            good = [
                compare(bench, kind, arguments.repeats, theirs)
                for kind in dict.fromkeys(arguments.models)
            ]
    finally:
        shutil.rmtree(folder)
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
