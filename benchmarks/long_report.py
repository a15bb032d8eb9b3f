"""How large the journal of a long run is, and how long its report takes.

    python benchmarks/long_report.py

The journal is written by the real code, with another clock: 10 days, 5 million steps, 40 hangs,
8 GPUs. Then ``rocsteady report`` makes its page, and ``rocsteady watch`` follows it for a minute.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from rocsteady.model import Outcome, RunState, Strategy
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.progress import DAY
from rocsteady.store.values import AttemptRecord, DecisionRecord, Incident, MessageRecord, Sample

DAYS, STEPS, HANGS, GPUS = 10, 5_000_000, 40, 8
LOOK_EVERY = 20  # seconds
WATCHED = 60.0  # seconds
PHASES = ("data", "compute", "backward", "optimizer", "checkpoint")
AIMS = {"journal": "50 MB", "page": "3 MB", "report": "3 s", "watch": "5 %"}


def write(project: Path) -> None:
    """Write the journal of such a run, which has just ended."""
    begin, length = time.time() - DAYS * DAY, DAYS * DAY
    now = begin
    journal = Journal(find_place(project), clock=lambda: now)
    run = journal.begin_run(("python", "train.py"), job={}, strategy=Strategy()).id
    number, started = 1, begin
    for past in range(0, length, LOOK_EVERY):
        now = begin + past
        if past and past % (length // (HANGS + 1)) < LOOK_EVERY and number <= HANGS:
            step = STEPS * past // length
            hang(journal, run, number, now, step)
            journal.record(
                AttemptRecord(
                    run=run,
                    number=number,
                    strategy=Strategy(),
                    boot_id="b",
                    started=started,
                    ended=now,
                    signal=9,
                    outcome=Outcome.HUNG,
                    first_step=1,
                    last_step=step,
                )
            )
            number, started = number + 1, now
        journal.progressed(run, number, sample(now, past, length))
    journal.flush(timedelta(seconds=60))
    journal.close()


def hang(journal: Journal, run: int, number: int, at: float, step: int) -> None:
    """Write what one hang and one restart leave behind."""
    why, place = "no step for 9 s (at most 0.9 s in this phase so far)", "dataset.py:88 __getitem__"
    journal.record(
        Incident(
            run=run,
            attempt=number,
            number=number,
            verdict=RunState.HUNG,
            quiet=9.3,
            why=why,
            at=at,
            place=place,
            evidence="",
        )
    )
    journal.record(MessageRecord(run=run, text=f"hung: {why}. Location: {place}.", at=at))
    journal.record(DecisionRecord(run=run, attempt=number, what="retry", why="chance", at=at))
    journal.record(MessageRecord(run=run, text=f"attempt {number + 1}, from step {step:,}", at=at))


def sample(now: float, past: int, length: int) -> Sample:
    """Make up what is seen at one moment."""
    wave = 1 + 0.1 * math.sin(past / 5000)
    gpus = {
        f"GPU {gpu} {name}": value * wave
        for gpu in range(GPUS)
        for name, value in (("memory", 2e10), ("busy", 90.0), ("temperature", 70.0),
                            ("power", 250.0), ("clock", 2.1e9))
    }  # fmt: skip
    return Sample(
        at=now, step=STEPS * past // length, verdict=RunState.HEALTHY, quiet=0.1, total=STEPS,
        seconds_in=dict.fromkeys(PHASES, past / len(PHASES)),
        measured={"loss": 3 * math.exp(-past / length), "host memory": 3e9 * wave, **gpus},
    )  # fmt: skip


def processor_seconds(command: list[str], folder: Path) -> float:
    """Run a command, and return the processor time of it and its children."""
    before = os.times()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )


def main() -> None:
    """Write, measure and print."""
    with tempfile.TemporaryDirectory() as made:
        project = Path(made)
        write(project)
        size = sum(path.stat().st_size for path in project.glob(".rocsteady/store.db*"))
        rocsteady = [sys.executable, "-m", "rocsteady"]
        page = project / "page.html"
        report = processor_seconds([*rocsteady, "report", "-o", str(page)], project)
        watching = ["timeout", "-s", "INT", str(WATCHED), *rocsteady, "watch"]
        before = os.times()
        subprocess.run(
            ["script", "-qec", " ".join(watching), "/dev/null"],  # noqa: S607 - where it is installed
            cwd=project, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        after = os.times()
        watch = after.children_user + after.children_system
        watch -= before.children_user + before.children_system
        found = {
            "journal": f"{size / 1e6:.1f} MB",
            "page": f"{page.stat().st_size / 1e6:.1f} MB",
            "report": f"{report:.1f} s of processor",
            "watch": f"{100 * watch / WATCHED:.1f} % of a core, its start included",
        }
        print(f"{DAYS} days, {STEPS:,} steps, {HANGS} hangs, {GPUS} GPUs")
        for name, value in found.items():
            print(f"{name:<8} {value:<40} aim: at most {AIMS[name]}")


if __name__ == "__main__":
    main()
