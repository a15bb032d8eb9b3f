"""How large the journal of a long run is, and how long its report takes.

    python benchmarks/long_report.py

The journal is written by the real code, with another clock: 10 days, 5 million steps, 40 hangs,
8 GPUs. Then ``rocsteady report`` makes its page, and ``rocsteady watch`` follows it for a minute
on a screen of 120x40, counted from the moment when that is complete.
"""

from __future__ import annotations

import fcntl
import math
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from datetime import timedelta
from pathlib import Path

from rocsteady.model import Decision, Next, Outcome, RunState, Strategy
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.progress import DAY
from rocsteady.store.values import AttemptRecord, DecisionRecord, Incident, MessageRecord, Sample

DAYS, STEPS, HANGS, GPUS = 10, 5_000_000, 40, 8
LOOK_EVERY = 20  # seconds
WATCHED = 60.0  # seconds
PHASES = ("data", "compute", "backward", "optimizer", "checkpoint")
AIMS = {"journal": "50 MB", "page": "3 MB", "report": "3 s", "start": "1 s", "watch": "3 %"}
COMPLETE = (b"loss", b"events", b"quit")  # what is on a screen that is
TICKS = os.sysconf("SC_CLK_TCK")

AGAIN = Decision(next=Next.AGAIN, why="chance", remedy="retry")


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
    journal.record(DecisionRecord(run=run, attempt=number, decision=AGAIN, at=at))
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


def follow(command: list[str], folder: Path) -> tuple[float, float, float]:
    """Return the seconds, and those of processor, until a screen is complete, and those after."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["TERM"] = "xterm-256color"
        os.execvp(command[0], command)  # noqa: S606 - no shell is needed
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    began, seen = time.monotonic(), b""
    while not all(word in seen for word in COMPLETE):
        seen += os.read(terminal, 65536)
    took, spent = time.monotonic() - began, spent_by(pid)
    until = time.monotonic() + WATCHED
    while (left := until - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            os.read(terminal, 65536)
    after = spent_by(pid) - spent
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return took, spent, after


def spent_by(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def main() -> None:
    """Write, measure and print."""
    with tempfile.TemporaryDirectory() as made:
        project = Path(made)
        write(project)
        size = sum(path.stat().st_size for path in project.glob(".rocsteady/journal.db*"))
        rocsteady = [sys.executable, "-m", "rocsteady"]
        page = project / "page.html"
        report = processor_seconds([*rocsteady, "report", "-o", str(page)], project)
        took, spent, after = follow([*rocsteady, "watch"], project)
        found = {
            "journal": f"{size / 1e6:.1f} MB",
            "page": f"{page.stat().st_size / 1e6:.1f} MB",
            "report": f"{report:.1f} s of processor",
            "start": f"{took:.1f} s, {spent:.1f} s of processor",
            "watch": f"{100 * after / WATCHED:.1f} % of a core",
        }
        load = f"load {os.getloadavg()[0]:.1f}"
        print(f"{DAYS} days, {STEPS:,} steps, {HANGS} hangs, {GPUS} GPUs; {load}")
        for name, value in found.items():
            print(f"{name:<8} {value:<40} aim: at most {AIMS[name]}")


if __name__ == "__main__":
    main()
