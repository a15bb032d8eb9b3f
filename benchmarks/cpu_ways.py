"""The CPU as well as it can be made: settings of ours, against what people do by hand.

    python benchmarks/cpu_ways.py --python PATH-OF-A-PYTHON-WITH-TORCH

Four scripts that know nothing of it: a perceptron, a transformer, a convolution net, an actor and
critic with an LSTM. Theirs: plain python, OMP_NUM_THREADS = cores, PyTorch's own launcher for
Xeons (one instance), bf16 written into the script, torch.compile written into the script. Ours: the
script as it is, under a strategy. All in turn, each in a process of its own, the whole round again
and again. A rate is that of the quicker quarter of the steps after the warm-up: in the others
somebody else may have had the machine. A ratio is taken within a round. The exit code says whether
the best of ours is as fast as the best of theirs on each model.

With --busy it can be run on a machine that others use: one thread for all, and the time that a
process had a core in place of the time that passed. Ways that differ by threads are left out.
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
from typing import Any, NamedTuple

from rocsteady.evidence.pages import read_applied
from rocsteady.supervisor.injection import lay_out, runtime_folder
from rocsteady.supervisor.strategy import environment
from rocsteady.vocabulary import Strategy

SCRIPT = Path(__file__).parent / "cpu_ways_script.py"
MODELS = ("perceptron", "transformer", "convolution", "actor-critic")
BUSY = "busy"
WANTED = 0.98  # of the best of theirs: what the rounds here can tell from 1
BY_THREADS = ("OMP_NUM_THREADS", "xeon.run_cpu", "one thread", "bound", "passive")
KEEP = {  # glibc: freed memory is kept, and not given back to the system to be cleared again
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


class Way(NamedTuple):
    """One way to run a script."""

    written: tuple[str, ...] = ()  # into the script: bf16, compile
    variables: dict[str, str] = {}  # noqa: RUF012 - never changed
    launcher: tuple[str, ...] = ()
    settings: dict[str, Any] | None = None  # of a strategy; None: not ours


def ways(cores: int) -> dict[str, Way]:
    """Return all of them, theirs first."""
    all_cores = {"OMP_NUM_THREADS": str(cores)}
    xeon = ("-m", "torch.backends.xeon.run_cpu", "--ninstances", "1", "--disable-numactl")
    return {
        "plain python": Way(),
        "OMP_NUM_THREADS": Way(variables=all_cores),
        "xeon.run_cpu": Way(launcher=xeon),
        "bf16 written": Way(written=("bf16",)),
        "compile written": Way(written=("compile",)),
        "as the script says": Way(settings={}),
        "one thread": Way(settings={}, variables={"OMP_NUM_THREADS": "1"}),
        "bound": Way(settings={}, variables={**all_cores, "OMP_PROC_BIND": "true"}),
        "passive": Way(settings={}, variables={"OMP_WAIT_POLICY": "passive"}),
        "memory kept": Way(settings={}, variables=KEEP),
        "autocast": Way(settings={"autocast": "bf16"}),
        "compiled": Way(settings={"compile": True}),
        "autocast, kept": Way(settings={"autocast": "bf16"}, variables=KEEP),
        "compiled, kept": Way(settings={"compile": True}, variables=KEEP),
        "both": Way(settings={"autocast": "bf16", "compile": True}),
        "both, kept": Way(settings={"autocast": "bf16", "compile": True}, variables=KEEP),
    }


class Bench:
    """Runs scripts, with the injection or without."""

    def __init__(self, python: str, options: tuple[str, ...], folder: Path, cache: str) -> None:
        self._python = python
        self._options = options  # seconds, and perhaps "busy"
        self._injection = lay_out(folder)
        mine = ("PYTHON", "OMP_", "MALLOC_", "LD_PRELOAD", "TORCH")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
        self._bare = {**kept, "TORCHINDUCTOR_CACHE_DIR": cache}
        if BUSY in options:
            self._bare |= {"OMP_NUM_THREADS": "1"}

    def run(self, kind: str, way: Way) -> dict[str, float]:
        """Run one script in one way, and see that what was asked for was done."""
        added = dict(way.variables)
        if way.settings is not None:
            added |= self._injection.environment({}, run_id="b", supervisor=os.getpid())
            added |= environment(Strategy(**way.settings), {})[0]
        script = (str(SCRIPT), kind, *self._options, *way.written)
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


def tell(kind: str, rates: dict[str, list[float]], theirs: list[str]) -> bool:
    """Print one model; true if the best of ours is as fast as the best of theirs."""
    middle = {name: statistics.median(values) for name, values in rates.items()}
    best = max(theirs, key=lambda name: middle[name])
    mine = max((name for name in rates if name not in theirs), key=lambda name: middle[name])
    for name, values in rates.items():
        ratio = statistics.median(a / b for a, b in zip(values, rates[best], strict=True))
        whose = "theirs" if name in theirs else "ours"
        mark = " <- the best" if name in {best, mine} else ""
        print(f"  {whose:<7}{name:<20}{middle[name]:8.2f} steps/s", end="")
        print(f"{min(values):9.2f} to{max(values):8.2f}{ratio:8.2f}{mark}")
    ratios = sorted(a / b for a, b in zip(rates[mine], rates[best], strict=True))
    ratio = statistics.median(ratios)
    print(f"  {kind}: the best of ours is {ratio:.2f} times as fast as the best of theirs", end="")
    print(f" ({ratios[0]:.2f} to {ratios[-1]:.2f} over the rounds); at least {WANTED} is wanted")
    return ratio >= WANTED


def compare(bench: Bench, kinds: list[str], repeats: int, every: dict[str, Way]) -> bool:
    """Measure all ways of all models in turn; true if all is as wanted."""
    theirs = [name for name, way in every.items() if way.settings is None]
    good = True
    for kind in kinds:
        rates: dict[str, list[float]] = {name: [] for name in every}
        first: dict[str, float] = {}
        parameters = 0.0
        for _ in range(repeats):
            for name, way in every.items():
                told = bench.run(kind, way)
                rates[name].append(told["rate"])
                first.setdefault(name, told["first"])
                parameters = told["parameters"]
        print(f"\n{kind}, {parameters / 1e6:.1f} M parameters, {repeats} rounds")
        good = tell(kind, rates, theirs) and good
        longest = max(first, key=lambda name: first[name])
        print(f"  the warm-up took {min(first.values()):.1f} s to", end=" ")
        print(f"{first[longest]:.1f} s ({longest})", flush=True)
    return good


def main() -> None:
    """Measure, print, and say whether it is as wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--python", required=True, help="an interpreter that has torch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run, after the warm-up")
    parser.add_argument("--busy", action="store_true", help="others use the machine meanwhile")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    arguments = parser.parse_args()
    folder = runtime_folder(f"benchmark-{os.getpid()}", os.environ)
    try:
        with tempfile.TemporaryDirectory() as cache:
            busy = (BUSY,) if arguments.busy else ()
            bench = Bench(arguments.python, (str(arguments.seconds), *busy), folder, cache)
            every = ways(1 if busy else len(os.sched_getaffinity(0)))
            if busy:
                every = {name: way for name, way in every.items() if name not in BY_THREADS}
            good = compare(bench, list(arguments.models), arguments.repeats, every)
    finally:
        shutil.rmtree(folder)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
