"""Deadlocks ranks of a job over two hosts, one after the other, and counts which are named rightly.

    python tests/victims/host_hangs.py TORCH_PYTHON FOLDER 10 [SEED]

TORCH_PYTHON is an interpreter with torch and rocsteady. Prints a line a hang, then the count.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path

from host_faults import RANKS, Job, Setting, network
from rank_faults import DEADLOCKS

HOSTS = 2


def hang(job: Job, kind: str, rank: int) -> None:
    """Deadlock a rank that trains, and wait until the job has started again."""
    saves = len(job.told("saved"))
    if not job.until(lambda: len(job.told("saved")) > saves + 1):
        raise SystemExit(job.all_said())
    before = job.generations()
    (job.shared / f"fault-{rank}").write_text(kind, encoding="utf-8")
    if not job.until(lambda: job.generations() > before):
        raise SystemExit(job.all_said())


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no host is left
    python, folder, number, *seed = sys.argv[1:]
    chosen = int(seed[0]) if seed else random.randrange(10**6)
    draw, right = random.Random(chosen), 0
    print(f"seed {chosen}", flush=True)
    with network(HOSTS) as net:
        job = Job(python, net, Path(folder), Setting(100_000))
        try:
            for place in range(int(number)):
                kind, rank = draw.choice(DEADLOCKS), draw.randrange(RANKS * HOSTS)
                began = time.monotonic()
                hang(job, kind, rank)
                found = job.recorded(1)  # its ranks are the first: it leads
                blame = found[-1]["blame"] or {"ranks": ()}
                named = [(it["rank"], it["host"]) for it in blame["ranks"]]
                is_right = len(found) == place + 1 and named == [(rank, str(rank // RANKS))]
                right += is_right
                how = "named" if is_right else f"NOT named: {named}"
                took = time.monotonic() - began
                print(f"{kind:10} rank {rank}: {how}, {took:.1f} s", flush=True)
        finally:
            job.close()
    print(f"{right} of {number} named rightly")


if __name__ == "__main__":
    main()
