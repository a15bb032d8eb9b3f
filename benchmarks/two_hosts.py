"""A job on two hosts made of network namespaces: faults one after the other, and what each costs.

    python benchmarks/two_hosts.py TORCH_PYTHON FOLDER 5 kill deadlock cut late

TORCH_PYTHON has torch and rocsteady-train. Prints the seconds from each fault to the next step (of
a cut link: from the moment it is back; of a late store: from the start of its host), and what was
said of each hang.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "victims"))
from host_faults import Job, Setting, network

CUT_FOR = 30.0  # seconds
LATE_BY = 60.0  # seconds that the host of the store starts later
LATE = "late"
WITHIN = 240.0  # seconds


class LateStore(Job):
    """A job whose first host, which has the store, is started a minute later than the other."""

    def start(self, host: int) -> None:
        """Start the host, or wait a minute before the first."""
        if host == 1 and not self.agents:
            super().start(2)
            time.sleep(LATE_BY)
            super().start(1)
            self.late_from = time.time()
        elif host not in self.agents:
            super().start(host)


def once(job: Job, kind: str) -> tuple[float, int]:
    """Bring a fault about; return the seconds to the next step, and how many restarts it cost."""
    before, began, rank = job.generations(), time.time(), job.ranks - 1
    if kind == "kill":
        os.kill(job.pid(rank), signal.SIGKILL)
    elif kind == "deadlock":
        (job.shared / f"fault-{rank}").write_text("lock", encoding="utf-8")
    else:
        job.net.cut(2)
        time.sleep(CUT_FOR)
        job.net.join(2)
        began = time.time()
    saves = len(job.told("saved"))

    def goes_on() -> bool:
        is_new = job.generations() > before if kind != "cut" else len(job.told("saved")) > saves
        return is_new or any(agent.poll() is not None for agent in job.agents.values())

    went_on = job.until(goes_on, WITHIN)
    if not went_on or any(agent.poll() is not None for agent in job.agents.values()):
        raise SystemExit(f"{kind}: {job.all_said()}")
    return time.time() - began, job.generations() - before


def one_job(python: str, folder: Path, kinds: list[str]) -> Iterator[tuple[str, float]]:
    """Bring faults about in one job, one after the other."""
    with network(2) as net:
        job = Job(python, net, folder, Setting(100_000))
        try:
            job.until(lambda: len(job.told("saved")) > 1)
            for kind in kinds:
                took, restarts = once(job, kind)
                print(f"{kind:10} {took:6.1f} s, restarts {restarts}", flush=True)
                yield kind, took
                time.sleep(3.0)
            print(*re.findall(r"rocsteady: hung .*", job.said(1)), sep="\n", flush=True)
        finally:
            job.close()


def late_store(python: str, folder: Path) -> float:
    """Start a job whose store comes late; return the seconds from then to its first step."""
    with network(2) as net:
        late = LateStore(python, net, folder, Setting(40))
        try:
            late.until(lambda: late.generations() > 0)
            took = time.time() - late.late_from
            print(f"{LATE:10} {took:6.1f} s, codes {late.codes()}", flush=True)
            return took
        finally:
            late.close()


def main() -> None:
    """Go through all faults so many times."""
    python, folder, repeats, kinds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    seconds: dict[str, list[float]] = defaultdict(list)
    in_one = [kind for kind in kinds if kind != LATE] * repeats
    for kind, took in one_job(python, folder / "job", in_one) if in_one else ():
        seconds[kind].append(took)
    for number in range(repeats if LATE in kinds else 0):
        seconds[LATE].append(late_store(python, folder / f"late-{number}"))
    for kind, each in seconds.items():
        spread = f"median {statistics.median(each):.1f} s, {min(each):.1f} to {max(each):.1f}"
        print(f"{kind:10} {len(each)} times, {spread}")


if __name__ == "__main__":
    main()
