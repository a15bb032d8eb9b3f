"""How good forecasts are: a trial of a minute at most, then the whole job, and both compared.

    python benchmarks/forecast.py --python PYTHON [--jobs mlp,lstm] [--seconds 240] [--at-once 2]

PYTHON is an interpreter with torch. Each of the jobs of forecast_jobs.py is cut to a number of
steps that takes about --seconds, by a timing of its own; tried as ``rocsteady plan`` does, under
the first of the settings that it has for a CPU; and then carried out by ``rocsteady run --plan 1``
in a fresh folder. Each has a processor of its own, for the trial as for the run. Nothing is known
to the forecast but the trial: one job crashes and one hangs half-way, after the trial. Two crash
again and again: each is carried out once before, and what its journal has counts, as in a plan.
With --check the exit code says whether all is as wanted: the real end inside the 90 % interval in
10 of 12, a median error of at most 10 %, and restarts within a factor of 2. Use a quiet machine;
all take about 45 minutes on two processors.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import msgspec

from rocsteady import __version__
from rocsteady.model import Strategy, Value
from rocsteady.plan import saved_plan
from rocsteady.plan.circumstances import histories
from rocsteady.plan.pace import FailureCost, FailureHistory, finish
from rocsteady.plan.trials import Bounds, Trials, together
from rocsteady.plan.values import Basis, Finish, Option, Pace, Plan
from rocsteady.run.job import FILE
from rocsteady.run.job.job_file import read_job
from rocsteady.store.location import find_place
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import RunRecord

TITLE, STRATEGY = "CPU", Strategy()

SCRIPT = Path(__file__).with_name("forecast_jobs.py")
JOBS = (
    "mlp",
    "language",
    "convolution",
    "lstm",
    "actor-critic",
    "contrastive",
    "hangs-once",  # the longest: not last, when the other processor would have nothing to do
    "two-workers",
    "slow-loading",
    "validation",
    "large-checkpoints",
    "crashes-once",
    "crashes-again",
    "crashes-at-random",
)
OFTEN = ("crashes-again", "crashes-at-random")
SAVES = 20  # checkpoints in the whole of a job, as the script has it
TRIAL = 55.0  # seconds at most; with the end of the process it is a minute
TIMED = 8.0  # seconds, for the number of steps
LEAST_INSIDE, MOST_ERROR, MOST_FACTOR = 10 / 12, 0.10, 2.0
JOB = """
command = {command}
total = {{ steps = {steps} }}

[resume]
arguments = ["--resume", "{{checkpoint}}"]
checkpoints = ["checkpoints/*.pt"]

[done_when]
files = [{{ path = "model.pt", kind = "model" }}]
"""


class Result(Value, frozen=True, kw_only=True):
    """What was forecast of a job, and what came true. Seconds."""

    job: str
    steps: int
    trial: float  # that it took in all
    pace: Pace
    forecast: Finish
    real: float
    code: int  # of the run
    restarts: int  # in it

    @property
    def error(self) -> float:
        """By which share the real end was later than forecast."""
        return self.real / self.forecast.seconds - 1

    @property
    def inside(self) -> bool:
        """Tell whether it was done, and within the interval."""
        return self.code == 0 and self.forecast.early <= self.real <= self.forecast.late

    @property
    def counted(self) -> bool:
        """Tell whether the restarts were as many as forecast, within a factor."""
        ahead = self.forecast.failures
        near = ahead / MOST_FACTOR <= self.restarts <= ahead * MOST_FACTOR
        return near or self.job not in OFTEN


def count_steps(python: str, name: str, seconds: float, folder: Path) -> int:
    """Return how many steps take about so long."""
    timed = min(TIMED, seconds / 4)
    words = [python, str(SCRIPT), name, "--time", str(timed)]
    told = subprocess.run(words, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return max(SAVES, round(float(told.stdout.split()[-1]) * seconds))


def lay_out(folder: Path, python: str, name: str, steps: int) -> Path:
    """Make the folder of a job as a user has it."""
    folder.mkdir()
    shutil.copy(SCRIPT, folder / "train.py")
    command = json.dumps([python, "train.py", name, "--steps", str(steps)])
    (folder / FILE).write_text(JOB.format(command=command, steps=steps))
    return folder


def try_out(folder: Path, wanted: float) -> tuple[Pace, float]:
    """Make a trial of so many seconds of steps; return the pace, and the seconds that it took."""
    memory = Memory(find_place(folder))
    try:
        with Trials(folder, memory, partial(print, file=sys.stderr)) as trials:
            job = read_job(folder / FILE).job
            tried = trials.run(job, STRATEGY, Bounds(wanted=wanted, within=TRIAL))
            if not tried or tried[-1].pace is None:
                raise SystemExit(f"the trial showed no pace: {tried}")
            return tried[-1].pace, trials.seconds
    finally:
        memory.close()


def look_back(folder: Path) -> RunRecord:
    """Return what the journal of a folder has of its run."""
    words = [sys.executable, "-m", "rocsteady", "report", "--json"]
    told = subprocess.run(words, cwd=folder, check=True, stdout=subprocess.PIPE).stdout
    return msgspec.json.decode(told, type=RunRecord)


def foresee(pace: Pace, steps: int, history: FailureHistory) -> Finish:
    """Forecast the end of the whole job from its trial, and from what was seen before."""
    interval = steps / SAVES / pace.rate
    loss = FailureCost(again=history.seen_and_ended + pace.starting, interval=interval)
    return finish(pace, steps, history=history, loss=loss, due=None)


def carry_out(folder: Path, steps: int) -> tuple[float, int]:
    """Run the job from start to end; return the seconds, and the exit code."""
    option = Option(number=1, id="cpu", title=TITLE, basis=Basis.TRIAL, strategy=STRATEGY)
    plan = Plan(
        rocsteady=__version__,
        made=time.time(),
        command=read_job(folder / FILE).job.command,
        folder=str(folder),
        software="",
        total=steps,
        left=steps,
        options=(option,),
    )
    if why := saved_plan.save_plan(plan, folder):
        raise SystemExit(why)
    began = time.monotonic()
    with (folder.parent / "log").open("wb") as log:
        words = [sys.executable, "-m", "rocsteady", "run", "--plan", "1", "--yes"]
        code = subprocess.run(words, cwd=folder, check=False, stdout=log, stderr=log).returncode
    return time.monotonic() - began, code


def compare(python: str, name: str, seconds: float, wanted: float, root: Path) -> Result:
    """Try a job, run it, and put the two side by side."""
    steps = count_steps(python, name, seconds, root)
    history = FailureHistory()
    if name in OFTEN:
        carry_out(before := lay_out(root / "before", python, name, steps), steps)
        for _, seen in histories((look_back(before),)):
            history = together(history, seen)
        wanted = min(wanted, seconds / 2 / max(1, history.failures))  # it sees none
    pace, trial = try_out(lay_out(root / "tried", python, name, steps), wanted)
    forecast = foresee(pace, steps, history)
    real, code = carry_out(folder := lay_out(root / "run", python, name, steps), steps)
    if code:
        print(f"{name}: exit code {code}\n{(root / 'log').read_text()[-2000:]}", file=sys.stderr)
    return Result(
        job=name,
        steps=steps,
        trial=trial,
        pace=pace,
        forecast=forecast,
        real=real,
        code=code,
        restarts=len(look_back(folder).attempts) - 1,
    )


def compare_apart(given: argparse.Namespace, name: str, core: int) -> Result | None:
    """Do the same in a process that has one processor, and a home of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        words = [sys.executable, __file__, "--python", given.python, "--jobs", name]
        words += ["--seconds", str(given.seconds), "--trial", str(given.trial)]
        environment = {**os.environ, "HOME": made}
        for unwanted in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
            environment.pop(unwanted, None)
        told = subprocess.run(
            [*words, "--alone-on", str(core)],
            cwd=made,
            env=environment,
            check=False,
            stdout=subprocess.PIPE,
        )
    return msgspec.json.decode(told.stdout, type=Result) if told.returncode == 0 else None


def compare_all(given: argparse.Namespace, names: list[str]) -> list[Result]:
    """Take the jobs one after the other, on as many processors as are wanted."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)
    results: list[Result] = []

    def take(core: int) -> None:
        while True:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            result = compare_apart(given, name, core)
            print(line(result) if result else f"{name:<18} could not be compared", flush=True)
            results.extend([result] if result else [])

    cores = sorted(os.sched_getaffinity(0))[: given.at_once]
    lanes = [threading.Thread(target=take, args=(core,)) for core in cores]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    return results


def line(result: Result) -> str:
    """Lay out one job."""
    seen = result.forecast
    ahead = f"{seen.early:6.0f} - {seen.seconds:4.0f} - {seen.late:4.0f} s"
    inside = "inside" if result.inside else "OUTSIDE" if not result.code else "FAILED"
    return f"{result.job:<18}{ahead}{result.real:7.0f} s{result.error:+8.1%}  {inside:<8}" + (
        f"restarts: {seen.failures:.1f}, {result.restarts}" if result.job in OFTEN else ""
    )


def conclude(results: list[Result], count: int) -> bool:
    """Print the figures of all; tell whether they are as wanted."""
    if not results:
        print("nothing could be compared")
        return False
    inside = sum(result.inside for result in results)
    error = statistics.median(abs(result.error) for result in results)
    print(f"inside: {inside} of {count}; median error: {error:.1%}")
    logs = [math.log(result.real / result.forecast.seconds) for result in results]
    off = math.sqrt(statistics.fmean(log**2 for log in logs))
    real = [result.real for result in results]
    print(f"log of real by forecast: mean {statistics.fmean(logs):+.3f}, rms {off:.3f}")
    print(f"runs of {min(real):.0f} to {max(real):.0f} s; ", end="")
    print(f"trials of {max(result.trial for result in results):.0f} s at most")
    counted = all(result.counted for result in results)
    return inside >= LEAST_INSIDE * count and error <= MOST_ERROR and counted


def main() -> None:
    """Compare, print, and fail if forecasts are not good enough and that was asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="an interpreter with torch")
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--seconds", type=float, default=240.0, help="that a job takes, about")
    parser.add_argument("--trial", type=float, default=TRIAL, help="seconds of steps in it")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--json", type=Path, help="a file for all figures")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--alone-on", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.jobs.split(",")
    if unknown := set(names) - set(JOBS):
        parser.error(f"no such job: {', '.join(sorted(unknown))}")
    if given.alone_on is not None:
        os.sched_setaffinity(0, {given.alone_on})
        result = compare(given.python, names[0], given.seconds, given.trial, Path.cwd())
        sys.stdout.buffer.write(msgspec.json.encode(result))
        return
    print(f"{'job':<18}{'forecast, 90 %':>23}{'real':>9}{'error':>8}")
    results = compare_all(given, names)
    good = conclude(results, len(names))
    if given.json:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    sys.exit(1 if given.check and not good else 0)


if __name__ == "__main__":
    main()
