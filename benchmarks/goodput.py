"""How much of the time is training, on one schedule of faults, under each of several tools.

    python benchmarks/goodput.py --python PYTHON-WITH-TORCH [--nvrx PYTHON] [--repeats 3] [--quick]

4,000 steps of 22 ms, 3 crashes, 2 deadlocks, a checkpoint every 200 steps. A second schedule has
one healthy pause of 12 s, which nothing may take for a hang. A third, run once, has 10 faults in 10
minutes. Each tool has its turn in each repeat. The result is the share of the undisturbed time: 1
means that the faults cost nothing.

PYTHON of ``--nvrx`` has nvidia-resiliency-ext; install torch first, then that with ``--no-deps``,
then defusedxml, packaging, psutil, pynvml and pyyaml.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

SCRIPT = Path(__file__).with_name("goodput_script.py")
STEPS, SECONDS = 4000, 0.022
FAULTS = {700: "crash", 1300: "deadlock", 1900: "crash", 2500: "deadlock", 3100: "crash"}
LONG_STEPS = 27_000  # 10 minutes
LONG = {2450 * n: ("crash", "deadlock")[n % 2] for n in range(1, 11)}
PAUSES = {1500: "pause"}
SCHEDULES = {"faults": (STEPS, FAULTS), "pause": (STEPS, PAUSES), "long": (LONG_STEPS, LONG)}
QUICK = 4  # times fewer steps
STUCK = 60.0  # seconds without a new checkpoint or start, after which a tool is given up
RESTARTS = "20"
AIMS = {"rocsteady run, job file": 0.72, "rocsteady_train.Loop, defaults": 0.77}
JOB = """
command = {command}
total = {{ steps = {steps} }}
[resume]
arguments = ["--resume", "{{checkpoint}}"]
checkpoints = ["checkpoints/*.pt"]
[done_when]
files = [{{ path = "model.pt", kind = "model" }}]
"""


class Result(NamedTuple):
    """What came of one run."""

    seconds: float | None  # None: it never finished
    starts: int


class Course(NamedTuple):
    """One schedule."""

    steps: int
    faults: Mapping[int, str]

    def script(self, python: str, kind: str, *more: str) -> list[str]:
        """Return the command of the training."""
        schedule = json.dumps({str(step): kind for step, kind in self.faults.items()})
        return [python, str(SCRIPT), kind, str(self.steps), str(SECONDS), schedule, *more]


def commands(course: Course, python: str, nvrx: str | None) -> dict[str, list[str]]:
    """Return what is typed for each tool."""
    resuming = course.script(python, "plain", "--resume", "latest")
    quoted = " ".join(f"'{word}'" for word in resuming)
    module = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    rocsteady = [sys.executable, "-m", "rocsteady", "run", "--yes"]
    found = {
        "undisturbed": Course(course.steps, {}).script(python, "plain"),
        "python": resuming,
        "shell loop": ["sh", "-c", f"until {quoted}; do :; done"],
        "torchrun": [*module, f"--max-restarts={RESTARTS}", *resuming[1:]],
        "rocsteady run, job file": rocsteady,
        "rocsteady run, no job file": [*rocsteady, "--", *resuming],
        "rocsteady_train.Loop, defaults": [*rocsteady, "--", *course.script(python, "loop")],
    }
    if nvrx is not None:
        found["nvidia-resiliency-ext"] = [
            str(Path(nvrx).with_name("ft_launcher")),
            "--standalone",
            "--nproc-per-node=1",
            f"--max-restarts={RESTARTS}",
            *course.script(nvrx, "nvrx", "--resume", "latest")[1:],
        ]
    return found


def carry_out(command: list[str], course: Course, python: str) -> Result:
    """Run one tool in a new folder, to its end or until nothing has happened for long."""
    with tempfile.TemporaryDirectory(prefix="goodput-") as made:
        folder = Path(made)
        toml = JOB.format(command=json.dumps(course.script(python, "plain")), steps=course.steps)
        if command[-1] == "--yes":
            (folder / "rocsteady.toml").write_text(toml)
        environment = {**os.environ, "HOME": made, "OMP_NUM_THREADS": "1"}
        if "loop" in command:
            environment["PYTHONPATH"] = str(SCRIPT.parents[1] / "packages/rocsteady_train/src")
        log = folder / "log"
        began = time.monotonic()
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        seconds = wait_for(process, folder, began)
        if seconds is not None and not (folder / "model.pt").exists():
            seconds = None
        starts = folder / "starts"
        count = len(starts.read_text().splitlines()) if starts.exists() else 0
        if seconds is None and os.environ.get("GOODPUT_LOGS"):
            sys.stderr.write(log.read_text(errors="replace")[-3000:])
        return Result(seconds, count)


def wait_for(process: subprocess.Popen[bytes], folder: Path, began: float) -> float | None:
    """Return how long it took; None, and end it, if it is stuck."""
    places = (folder, folder / "checkpoints", folder / "starts")
    while process.poll() is None:
        time.sleep(0.05)
        newest = max((path.stat().st_mtime for path in places if path.exists()), default=0.0)
        if time.time() - newest > STUCK:
            end_session(process.pid, folder)
            process.wait()
            return None
    return time.monotonic() - began


def end_session(leader: int, folder: Path) -> None:
    """Kill a tool, and the trainings that it started in sessions of their own in this folder."""
    os.killpg(leader, signal.SIGKILL)
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # gone, or not ours
            if entry.name.isdecimal() and (entry / "cwd").readlink() == folder:
                os.kill(int(entry.name), signal.SIGKILL)


def measure(course: Course, options: argparse.Namespace, repeats: int) -> dict[str, list[Result]]:
    """Give each tool its turn, as often as asked for."""
    results: dict[str, list[Result]] = {}
    for _ in range(repeats):
        for name, command in commands(course, options.python, options.nvrx).items():
            wanted = any(word in name for word in options.only.split(","))
            if name != "undisturbed" and not wanted:
                continue
            result = carry_out(command, course, options.python)
            results.setdefault(name, []).append(result)
            ended = "did not finish" if result.seconds is None else f"{result.seconds:.1f} s"
            print(f"  {name}: {ended}, {result.starts} starts", flush=True)
    return results


def show(results: Mapping[str, list[Result]], faults: int) -> None:
    """Print the shares, with their spread and what was aimed for."""
    base = statistics.median(r.seconds for r in results["undisturbed"] if r.seconds is not None)
    print(f"{'tool':<28} {'share':>6}  {'spread':<14} {'aim':>5}  restarts without a fault")
    for name, runs in results.items():
        shares = [base / run.seconds for run in runs if run.seconds is not None]
        extra = sum(max(0, run.starts - 1 - faults) for run in runs)
        aim = f"{AIMS[name]:.2f}" if name in AIMS else "-"
        if len(shares) < len(runs):
            print(f"{name:<28} {'-':>6}  did not finish {len(runs) - len(shares)} of {len(runs)}")
        else:
            middle, spread = statistics.median(shares), f"{min(shares):.2f} to {max(shares):.2f}"
            print(f"{name:<28} {middle:>6.2f}  {spread:<14} {aim:>5}  {extra}")


def chart(results: Mapping[str, list[Result]]) -> str:
    """Return the shares as bars, as an SVG file that reads on a light and on a dark page."""
    base = statistics.median(r.seconds for r in results["undisturbed"] if r.seconds is not None)
    rows = []
    for place, (name, runs) in enumerate(list(results.items())[1:]):
        at = 52 + 30 * place
        shares = [base / run.seconds for run in runs if run.seconds is not None]
        color = "#0a7d43" if name.startswith("rocsteady") else "#6b7280"
        rows.append(f'<text x="236" y="{at + 14}" text-anchor="end">{name}</text>')
        if len(shares) < len(runs):
            rows.append(f'<text x="246" y="{at + 14}" fill="#b42318">never finishes</text>')
            continue
        low, middle, high = min(shares), statistics.median(shares), max(shares)
        rows += [
            f'<rect x="246" y="{at}" width="{440 * middle:.0f}" height="20" fill="{color}"/>',
            f'<path d="M{246 + 440 * low:.0f} {at + 10}H{246 + 440 * high:.0f}"/>',
            f'<text x="{256 + 440 * high:.0f}" y="{at + 14}">{middle:.2f}</text>',
        ]
    height = 60 + 30 * len(results)
    title = "Share of the undisturbed time: 3 crashes and 2 deadlocks (1 is best)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" role="img"'
        f' font-family="system-ui, sans-serif" font-size="14"><title>{title}</title>'
        f'<rect width="760" height="{height}" fill="#fff"/><g fill="#1f2328" stroke-width="2">'
        f'<text x="20" y="30" font-size="16" font-weight="600">{title}</text>'
        + "".join(rows).replace("<path", '<path stroke="#1f2328"')
        + "</g></svg>\n"
    )


def main() -> None:
    """Measure both schedules and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    parser.add_argument("--nvrx", help="an interpreter with nvidia-resiliency-ext")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a quarter of the steps")
    parser.add_argument(
        "--only", default="", help="only tools with one of these in their name: A,B"
    )
    parser.add_argument("--chart", type=Path, help="an SVG file of the first schedule")
    parser.add_argument("--schedule", choices=(*SCHEDULES, "all"), default="all")
    options = parser.parse_args()
    for name, (steps, planned) in SCHEDULES.items():
        if options.schedule in (name, "all"):
            shorter = QUICK if options.quick else 1
            course = Course(steps // shorter, {at // shorter: kind for at, kind in planned.items()})
            print(f"{name}: {course.steps} steps of {SECONDS * 1e3:.0f} ms, {course.faults}")
            repeats = 1 if name == "long" else options.repeats
            results = measure(course, options, repeats)
            show(results, sum(kind != "pause" for kind in planned.values()))
            if options.chart and name == "faults":
                options.chart.write_text(chart(results))


if __name__ == "__main__":
    main()
