"""What the supervisor costs while it watches: processor and memory, its keeper included.

    python benchmarks/supervisor_cost.py [--processes 8] [--seconds 60] [--tasks]

A command without torch starts 8 processes that write heartbeat pages by hand and step at 50 Hz;
one of them prints a line a second. Aim: at most 1 % of a core and 80 MB. With --tasks, each is
started by a rocsteady of its own, as mpirun does: at most 1.5 % of a core in all.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROCSTEADY = (sys.executable, "-m", "rocsteady")
MOST_SHARE, MOST_BYTES = 0.01, 80e6
MOST_OF_TASKS = 0.015
STEPS_PER_SECOND = 50
WARM_UP = 5.0  # seconds that are not counted: imports, the first snapshots
STEPS = """
import mmap, os, pathlib, struct, sys, time
from _rocsteady_inside import wire
count, seconds = int(sys.argv[1]), float(sys.argv[2])
for rank in range(1, count):
    if os.fork() == 0:
        break
else:
    rank = 0
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", rank))
count = int(os.environ.get("OMPI_COMM_WORLD_SIZE", count))
pid, ms = os.getpid(), time.monotonic_ns
path = pathlib.Path(os.environ[wire.PAGES], f"{pid}{wire.SUFFIX}")
path.write_bytes(bytes(wire.SIZE))
with path.open("r+b") as stream:
    words = memoryview(mmap.mmap(stream.fileno(), wire.SIZE)).cast("Q")
told = {wire.W_MAGIC: wire.MAGIC, wire.W_VERSION: wire.VERSION, wire.W_PID: pid,
        wire.W_MADE: ms(), wire.W_RANK: rank + 1, wire.W_WORLD: count, wire.W_THREAD: pid}
for word, value in told.items():
    words[word] = value
end, step = time.monotonic() + seconds, 0
while time.monotonic() < end:
    step += 1
    for phase in (wire.DATA, wire.COMPUTE, wire.BACKWARD, wire.OPTIMIZER):
        words[wire.W_PHASE], words[wire.W_SINCE] = phase, ms()
        words[wire.W_BEATS] += 1
        words[wire.W_TIME + phase] += 5_000_000
        words[wire.W_COUNT + phase] += 1
        words[wire.W_LONGEST + phase] = 6_000_000
        words[wire.W_HISTOGRAM + wire.BUCKETS * phase + 23] += 1
    words[wire.W_STEP], words[wire.W_LAST_STEP] = step, ms()
    if rank == 0 and step % RATE == 0:
        print(f"step {step} loss 0.5", flush=True)
    time.sleep(1 / RATE)
words[wire.W_END] = wire.FINISHING
if rank == 0:
    for _ in range(int(sys.argv[1]) - 1):
        os.wait()
os._exit(0)
"""


def processor(pid: int) -> float:
    """Return the seconds of processor that a process used, and its children that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def peak(pid: int) -> int:
    """Return the most memory that a process ever had, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def task_of(rank: int, tasks: int) -> dict[str, str]:
    """Return the variables that mpirun gives to a task, if there are several."""
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    told = zip(names, (rank, tasks, rank, tasks), strict=True)
    return {f"OMPI_COMM_WORLD_{name}": str(number) for name, number in told if tasks > 1}


def keeper_of(pid: int) -> int:
    """Find the keeper below a supervisor."""
    while True:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                words = (stat.parent / "cmdline").read_bytes()
                parent = int(stat.read_text().rpartition(") ")[2].split()[1])
                if parent == pid and b"keeper.py" in words:
                    return int(stat.parent.name)
        time.sleep(0.05)


def main() -> None:
    """Measure, print, and fail if it costs too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tasks", action="store_true")
    given = parser.parse_args()
    tasks = given.processes if given.tasks else 1
    with tempfile.TemporaryDirectory() as made:
        script = Path(made) / "steps.py"
        script.write_text(STEPS.replace("RATE", str(STEPS_PER_SECOND)))
        lasts = str(given.seconds + WARM_UP * tasks + 5)
        forks = str(given.processes // tasks)
        rocsteadies = [
            subprocess.Popen(
                [*ROCSTEADY, "run", "--", sys.executable, str(script), forks, lasts],
                cwd=made,
                env={**os.environ, "HOME": made, **task_of(rank, tasks)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            for rank in range(tasks)
        ]
        first, *others = (each.pid for each in rocsteadies)
        both = (first, keeper_of(first), *others)
        time.sleep(WARM_UP * tasks)
        began, used = time.monotonic(), [processor(pid) for pid in both]
        time.sleep(given.seconds)
        passed = time.monotonic() - began
        shares = [
            (processor(pid) - before) / passed for pid, before in zip(both, used, strict=True)
        ]
        memory = [peak(pid) for pid in both]
        for each in rocsteadies:
            each.wait()
    names = ("supervisor", "keeper", *["task"] * len(others))
    for name, share, size in zip(names, shares, memory, strict=True):
        print(f"{name:<12}{share:8.2%} of a core, {size / 1e6:5.1f} MB at most")
    share, size = sum(shares), sum(memory)
    most_share = MOST_OF_TASKS if given.tasks else MOST_SHARE
    most_bytes = MOST_BYTES if not given.tasks else float("inf")
    print(
        f"{given.processes} processes for {passed:.0f} s: {share:.2%} of a core (at most"
        f" {most_share:.1%} wanted), {size / 1e6:.1f} MB (at most {most_bytes / 1e6:.0f})"
    )
    sys.exit(0 if share <= most_share and size <= most_bytes else 1)


if __name__ == "__main__":
    main()
