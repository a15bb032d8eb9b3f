"""Injects faults at random moments into ranks of a real torchrun, and counts what comes of each.

    python tests/victims/rank_faults.py TORCH_PYTHON FOLDER 40 [SEED]

TORCH_PYTHON has torch and rocsteady-train. Prints a line a fault, then the counts.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

SCRIPT = Path(__file__).with_name("rank_training.py")
RANKS = 2
DEADLOCKS = ("backward", "allreduce", "loader", "lock")
KINDS = ("kill", "kill", *DEADLOCKS, "agent", "watcher", "stop")
WITHIN = 300.0  # seconds, on a machine that has other things to do
A_WHILE = 4.0  # seconds after a first step, in which a fault may come


class Fault(NamedTuple):
    """What was done to a rank, and what came of it."""

    kind: str
    rank: int
    seconds: float  # to the first step after it; infinite: it was not reached in time
    restarts: int

    @property
    def recovered(self) -> bool:
        """Tell whether it cost one restart, or none if a stopped rank was only continued."""
        return self.seconds < math.inf and self.restarts == (self.kind != "stop")


class Reports:
    """What ranks have written to a folder that they share, one JSON object a line."""

    reports: Path
    ranks = RANKS  # of all hosts

    def told(self, what: str = "") -> list[dict[str, Any]]:
        try:
            lines = (self.reports / "told").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        all_of_it = [json.loads(line) for line in lines if line.endswith("}")]
        return [each for each in all_of_it if what in ("", each["what"])]

    def generations(self) -> int:
        """Return how many generations made a first step on every rank."""
        return len(self.told("first step")) // self.ranks

    def pid(self, rank: int) -> int:
        """Return the process of a rank, of the newest generation."""
        return next(int(t["pid"]) for t in self.told("first step")[::-1] if t["rank"] == rank)


class Torchrun(Reports):
    """A torchrun of two ranks, or of others with a script of their own, with one variable set."""

    restarts = 1000
    script: tuple[object, ...] = ()  # with its arguments, in place of the usual one

    def __init__(self, python: str, folder: Path, steps: int, **variables: str) -> None:
        self.folder = self.reports = folder
        folder.mkdir(parents=True, exist_ok=True)
        command = f"{sys.executable} -m rocsteady"
        chosen = {"PET_RDZV_BACKEND": "rocsteady", "ROCSTEADY_COMMAND": command, **variables}
        program = str(Path(python).parent)
        launch = ("-m", "torch.distributed.run", "--nproc-per-node", str(self.ranks))
        options = ("--max-restarts", str(self.restarts), "--log-dir", "logs")
        self.log = (folder / "log").open("wb")
        self._command = [python, *launch, *options, *map(str, self.script or (SCRIPT, steps))]
        self._environment = {**os.environ, **chosen, "PATH": f"{program}:{os.environ['PATH']}"}
        self.start()

    def start(self) -> None:
        """Start it; once more, as a scheduler would."""
        self.process = subprocess.Popen(
            self._command,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def watcher(self) -> int:
        """Return the process that watches; 0 if there is none."""
        command = ["pgrep", "-P", str(self.process.pid), "-f", "rocsteady run"]
        told = subprocess.run(command, check=False, capture_output=True, text=True)
        return next((pid for pid in map(int, told.stdout.split()) if is_alive(pid)), 0)

    def until(self, reached: Callable[[], bool], within: float = WITHIN) -> bool:
        """Wait for something; False if torchrun ended before, or the time is over."""
        deadline = time.monotonic() + within
        while not reached():
            if time.monotonic() > deadline or self.process.poll() is not None:
                return reached()
            time.sleep(0.05)
        return True

    def said(self) -> str:
        """Return what torchrun, its ranks and rocsteady have printed."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.log.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def kill_agent(torchrun: Torchrun) -> bool:
    """Kill torchrun, and start it again once nothing of it is left; False if something stays."""
    left = [*(torchrun.pid(rank) for rank in range(torchrun.ranks)), torchrun.watcher()]
    torchrun.process.kill()
    torchrun.process.wait()
    deadline = time.monotonic() + WITHIN
    while any(map(is_alive, left)) and time.monotonic() < deadline:
        time.sleep(0.05)
    torchrun.start()
    return not any(map(is_alive, left))


def inject(torchrun: Torchrun, kind: str, rank: int, within: float = WITHIN) -> Fault:
    """Bring a fault about, and see what comes of it."""
    before, began = torchrun.generations(), time.time()
    saves = len(torchrun.told("saved"))
    if kind in DEADLOCKS:
        (torchrun.folder / f"fault-{rank}").write_text(kind, encoding="utf-8")
    elif kind == "agent":
        if not kill_agent(torchrun):
            return Fault(kind, rank, math.inf, 0)
    else:
        if kind == "watcher":  # and a rank with it: the next generation has another watcher
            os.kill(torchrun.watcher(), signal.SIGKILL)
        os.kill(torchrun.pid(rank), signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
        if kind == "stop":  # the run is continued, or it was not noticed
            time.sleep(2.0)
            saves = len(torchrun.told("saved"))

    def goes_on() -> bool:
        if kind == "stop":
            return len(torchrun.told("saved")) > saves
        return torchrun.generations() > before

    went_on = torchrun.until(goes_on, within)
    if kind == "watcher":
        went_on = torchrun.until(lambda: bool(torchrun.watcher()), within) and went_on
    seconds = time.time() - began if went_on else math.inf
    return Fault(kind, rank, seconds, torchrun.generations() - before)


def faults(python: str, folder: Path, number: int, seed: int) -> Iterator[Fault]:
    """Inject so many faults into one run after the other, each until it has made its steps."""
    draw = random.Random(seed)
    for place in range(number):
        torchrun, stopped_in = Torchrun(python, folder / f"run-{place}", steps=10_000), 0
        try:
            for _ in range(number):
                if not torchrun.until(lambda t=torchrun: t.generations() > 0):  # type: ignore[misc]
                    break
                time.sleep(draw.uniform(0.0, A_WHILE))
                number -= 1
                kinds = KINDS if stopped_in != torchrun.generations() else KINDS[:-1]
                fault = inject(torchrun, draw.choice(kinds), draw.randrange(RANKS))
                if fault.kind == "stop":  # a second one would be meant, and left alone
                    stopped_in = torchrun.generations()
                yield fault
                if not fault.recovered or number <= 0:
                    break
        finally:
            torchrun.close()
        if number <= 0:
            return


def main() -> None:
    python, folder, number, *seed = sys.argv[1:]
    counts: Counter[tuple[str, bool]] = Counter()
    chosen = int(seed[0]) if seed else random.randrange(10**6)
    print(f"seed {chosen}", flush=True)
    for fault in faults(python, Path(folder), int(number), chosen):
        counts[fault.kind, fault.recovered] += 1
        how = "recovered" if fault.recovered else "NOT recovered"
        told = f"{fault.seconds:6.1f} s, restarts {fault.restarts}"
        print(f"{fault.kind:10} rank {fault.rank}: {how}, {told}", flush=True)
    for kind in sorted({kind for kind, _ in counts}):
        recovered, not_recovered = counts[kind, True], counts[kind, False]
        print(f"{kind:10} {recovered} of {recovered + not_recovered} recovered")
    sys.exit(any(not recovered for _, recovered in counts))


if __name__ == "__main__":
    main()
