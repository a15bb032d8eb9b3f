"""What carrying a script's output costs, against script(1) for the same bytes.

A program prints 200 MB; we carry it, and script(1) does, in turn, each on a terminal that is read
as fast as it goes, and each into a pipe:

    python benchmarks/output_cost.py [--megabytes 200] [--rounds 5]

CPU is that of everything but the printing program: the "share". The ratio of its medians must be at
most 1.5 and the memory of the supervisor at most 80 MB; the exit code says whether they are.
The whole, with the printing program, is shown beside it and decides nothing: on a terminal, output
processing is paid by the printer under script(1) and by us under rocsteady.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

CPU_LIMIT = 1.5
MEMORY_LIMIT = 80 * 1024  # KiB

PRINTER = """
import os, resource, sys
block = b"".join(b"epoch 1 step %07d loss 0.123456 lr 1.0e-04 tokens/s 12345.6 mem 12.3 GB\\n" % n
                 for n in range(800))
left = int(sys.argv[1]) * 1000 * 1000
while left > 0:
    left -= os.write(1, block)
used = resource.getrusage(resource.RUSAGE_SELF)
open(sys.argv[2], "w").write(str(used.ru_utime + used.ru_stime))
"""

CARRIER = """
import json, os, resource, sys
from pathlib import Path
from rocsteady.system.child import Start, start_child
child = start_child(Start(command=json.loads(sys.argv[1]), environment=os.environ,
                          folder=Path.cwd(), run_id="output-cost", log=Path(sys.argv[2])))
child.wait()
child.close()
facts = [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, child.missed_bytes]
open(sys.argv[3], "w").write(json.dumps(facts))
"""


def carried(command: list[str], *, terminal: bool) -> float:
    """Run a command, read what it shows to the end, and give the CPU of all it started."""
    ours, theirs = os.openpty() if terminal else os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.dup2(theirs if terminal else os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(theirs, 1)
        os.dup2(theirs, 2)
        os.closerange(3, 64)
        os.execv(command[0], command)  # noqa: S606 - a benchmark starts what it compares
    os.close(theirs)
    try:
        while os.read(ours, 1 << 16):
            pass
    except OSError:  # the end of a terminal
        pass
    os.close(ours)
    _, status, used = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"{command[0]} ended with {status}")
    return used.ru_utime + used.ru_stime


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What carrying the bytes once took."""

    whole: float  # seconds of CPU
    share: float  # the same without the printing program
    memory: int = 0  # KiB, at most
    missed: int = 0  # bytes that were not shown


def cost_of_ours(folder: Path, megabytes: int, *, terminal: bool) -> Cost:
    """Let rocsteady carry them."""
    printer, itself, facts = printing(folder, megabytes), folder / "itself", folder / "facts"
    command = [sys.executable, "-c", CARRIER, json.dumps(printer), str(folder / "log"), str(facts)]
    whole = carried(command, terminal=terminal)
    memory, missed = json.loads(facts.read_text())
    share = whole - float(itself.read_text())
    return Cost(whole=whole, share=share, memory=memory, missed=missed)


def cost_of_script(folder: Path, megabytes: int, *, terminal: bool) -> Cost:
    """Let script(1) carry them."""
    script = shutil.which("script") or sys.exit("script(1) is not installed")
    printer = shlex.join(printing(folder, megabytes))
    whole = carried([script, "-q", "-c", printer, str(folder / "log")], terminal=terminal)
    return Cost(whole=whole, share=whole - float((folder / "itself").read_text()))


def printing(folder: Path, megabytes: int) -> list[str]:
    """Give the command that prints."""
    return [sys.executable, "-I", "-S", "-c", PRINTER, str(megabytes), str(folder / "itself")]


def compare(megabytes: int, rounds: int, *, terminal: bool) -> bool:
    """Run both in turn, print the figures, and tell whether they are within the limits."""
    us, them = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            us.append(cost_of_ours(Path(folder), megabytes, terminal=terminal))
        with tempfile.TemporaryDirectory() as folder:
            them.append(cost_of_script(Path(folder), megabytes, terminal=terminal))
    print("on a terminal" if terminal else "into a pipe")
    for what in ("whole", "share"):
        ours = [getattr(cost, what) for cost in us]
        theirs = [getattr(cost, what) for cost in them]
        print(
            f"  CPU, {what}: rocsteady {median(ours):5.2f} s ({min(ours):.2f} to {max(ours):.2f})"
            f"   script {median(theirs):5.2f} s ({min(theirs):.2f} to {max(theirs):.2f})"
            f"   ratio {median(ours) / median(theirs):.2f}"
        )
    memory = max(cost.memory for cost in us)
    missed = max(cost.missed for cost in us)
    print(f"  rocsteady's peak memory {memory / 1024:.0f} MiB, not shown {missed} bytes")
    ratio = median(cost.share for cost in us) / median(cost.share for cost in them)
    return ratio <= CPU_LIMIT and memory <= MEMORY_LIMIT


def main() -> None:
    """Compare on a terminal and into a pipe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    good = [
        compare(arguments.megabytes, arguments.rounds, terminal=terminal)
        for terminal in (True, False)
    ]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
