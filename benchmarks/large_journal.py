"""How long commands take on a large journal: one run of 3,000 attempts, then 300 runs.

    python benchmarks/large_journal.py

Times are of the processor, medians of 5, beside those of an interpreter that does nothing.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from rocsteady.model import Decision, Next, Outcome, RunOutcome, RunState, Strategy
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.values import AttemptRecord, DecisionRecord, Sample

ATTEMPTS, RUNS, REPEATS = 3_000, 300, 5
LENGTH = 60  # seconds of an attempt
AIMS = {"report": 0.5, "runs": 0.25, "--version": 0.04}

AGAIN = Decision(next=Next.AGAIN, why="chance", remedy="retry")


def write(project: Path, runs: int, attempts: int) -> None:
    """Write runs with so many attempts each, a sample every 10 s."""
    now = time.time() - runs * attempts * LENGTH
    journal = Journal(find_place(project), clock=lambda: now)
    for _ in range(runs):
        run = journal.begin_run(("python", "train.py"), job={}, strategy=Strategy()).id
        for number in range(1, attempts + 1):
            started = now
            for second in range(0, LENGTH, 10):
                now = started + second
                step = number * 100 + second
                seen = Sample(at=now, step=step, verdict=RunState.HEALTHY, quiet=0.1, total=10**6)
                journal.progressed(run, number, seen)
            now = started + LENGTH
            journal.record(
                AttemptRecord(
                    run=run,
                    number=number,
                    strategy=Strategy(),
                    boot_id="b",
                    started=started,
                    ended=now,
                    exit_code=1,
                    outcome=Outcome.BY_ITSELF,
                    first_step=number * 100,
                    last_step=number * 100 + LENGTH,
                )
            )
            journal.record(DecisionRecord(run=run, attempt=number, decision=AGAIN, at=now))
        journal.end_run(journal.runs()[0].run, RunOutcome.DONE)
        journal.flush(timedelta(seconds=60))
    journal.close()


def seconds(words: list[str], folder: Path) -> float:
    """Return the median processor time of a command."""
    taken = []
    for _ in range(REPEATS):
        before = os.times()
        subprocess.run(
            [sys.executable, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )  # fmt: skip
        after = os.times()
        used = after.children_user + after.children_system
        taken.append(used - before.children_user - before.children_system)
    return statistics.median(taken)


def main() -> None:
    """Write, measure and print."""
    with tempfile.TemporaryDirectory() as made:
        one, many = Path(made, "one"), Path(made, "many")
        for project, runs, attempts in ((one, 1, ATTEMPTS), (many, RUNS, 3)):
            project.mkdir()
            write(project, runs, attempts)
        print(f"{'an interpreter':<34} {seconds(['-c', ''], one):.3f} s")
        for name, folder, what in (
            ("report", one, f"report, {ATTEMPTS:,} attempts"),
            ("runs", many, f"runs, {RUNS} runs"),
            ("--version", one, "--version"),
        ):
            took = seconds(["-m", "rocsteady", name], folder)
            print(f"{what:<34} {took:.3f} s   aim: at most {AIMS[name]} s")


if __name__ == "__main__":
    main()
