"""A job on hosts made of network namespaces: faults one after the other, and what each costs.

    python benchmarks/two_hosts.py TORCH_PYTHON FOLDER 5 kill deadlock cut late
    python benchmarks/two_hosts.py --hosts 4 TORCH_PYTHON FOLDER 5 kill

TORCH_PYTHON has torch and rocsteady-train. Prints the seconds from each fault to the next step (of
a link, a slow host and a validation: from their end; of a late store: from the start of its host),
how many restarts it cost, and what was said of each hang.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "victims"))
from host_faults import Job, Setting, network, without_ptrace

CUT, LONG_CUT = 30.0, 180.0  # seconds
SLOW = 20.0  # seconds that a host stands still; c10d takes it for dead after 15
LATE_BY = 60.0  # seconds that the host of the store starts later
WITHIN = 400.0  # seconds
NO_PTRACE = "no-ptrace"
MANY = 100_000  # steps


def kill(job: Job) -> float:
    """Kill the last rank."""
    os.kill(job.pid(job.ranks - 1), signal.SIGKILL)
    return time.time()


def deadlock(job: Job) -> float:
    """Have a rank of the first host take a lock twice; the last host may have no ptrace."""
    (job.shared / "fault-0").write_text("lock", encoding="utf-8")
    return time.time()


def deadlock_there(job: Job) -> float:
    """Have the last rank take a lock twice."""
    (job.shared / f"fault-{job.ranks - 1}").write_text("lock", encoding="utf-8")
    return time.time()


def lose(job: Job) -> float:
    """Lose a host that does not have the store; it is started again, as a scheduler would."""
    host = 1 if job.setting.meet_at != 1 else job.net.hosts[-1]
    began = time.time()
    job.kill(host)
    job.start(host)
    return began


def cut(job: Job) -> float:
    """Cut a link for so long that nothing may come of it."""
    job.net.cut(2)
    time.sleep(CUT)
    job.net.join(2)
    return time.time()


def cut_long(job: Job) -> float:
    """Cut a link for minutes; the host that ends is started again."""
    job.net.cut(2)
    time.sleep(LONG_CUT)
    job.net.join(2)
    began = time.time()
    job.until(lambda: job.agents[2].poll() is not None, WITHIN)
    print(f"{'':10} host 2 ended with {job.agents[2].poll()}", flush=True)
    job.start(2)
    return began


def slow(job: Job) -> float:
    """Have a host stand still."""
    job.signal(job.net.hosts[-1], signal.SIGSTOP)
    time.sleep(SLOW)
    job.signal(job.net.hosts[-1], signal.SIGCONT)
    return time.time()


def validate(job: Job) -> float:
    """Have the last rank validate for a minute."""
    before = len(job.told("validated"))
    (job.shared / f"fault-{job.ranks - 1}").write_text("validate", encoding="utf-8")
    job.until(lambda: len(job.told("validated")) > before or ended(job), WITHIN)
    return time.time()


FAULTS: dict[str, tuple[Callable[[Job], float], int]] = {  # and how many restarts each costs
    "kill": (kill, 1),
    "deadlock": (deadlock_there, 1),
    "lost": (lose, 1),
    "leader": (lose, 1),
    "cut": (cut, 0),
    "cut-long": (cut_long, 1),
    "slow": (slow, 0),
    "validate": (validate, 0),
    NO_PTRACE: (deadlock, 1),
}


def ended(job: Job) -> bool:
    """Return whether a host has ended by itself."""
    return any(agent.poll() is not None for agent in job.agents.values())


def one_job(python: str, folder: Path, kind: str, hosts: int, repeats: int) -> list[float]:
    """Bring one kind of fault about so many times in one job; return the seconds of each."""
    (fault, costs), seconds = FAULTS[kind], []
    variables = {hosts: without_ptrace(folder)} if kind == NO_PTRACE else None
    setting = Setting(MANY, meet_at=2 if kind == "leader" else 1, variables=variables)
    with network(hosts) as net:
        job = Job(python, net, folder / "job", setting)
        try:
            for _ in range(repeats):
                saves = len(job.told("saved"))
                check(job.until(lambda n=saves: len(job.told("saved")) > n + 1), job)  # type: ignore[misc]
                before = job.generations()
                began = fault(job)
                saves = len(job.told("saved"))

                def goes_on(saves: int = saves, before: int = before) -> bool:
                    done = job.generations() > before if costs else len(job.told("saved")) > saves
                    return done or ended(job)

                check(job.until(goes_on, WITHIN) and not ended(job), job)
                took, restarts = time.time() - began, job.generations() - before
                wrong = "" if restarts == costs else f" (NOT {costs})"
                print(f"{kind:10} {took:6.1f} s, restarts {restarts}{wrong}", flush=True)
                seconds.append(took)
            print(*re.findall(r"rocsteady: (?:hung|host) .*", job.said(1)), sep="\n", flush=True)
        finally:
            job.close()
    return seconds


def check(is_well: object, job: Job) -> None:
    """End with all that was said, if something did not happen."""
    if not is_well:
        raise SystemExit(job.all_said())


class LateStore(Job):
    """A job whose first host, which has the store, is started a minute later than the others."""

    late_from = 0.0

    def start(self, host: int) -> None:
        """Start the host; the first one last."""
        if host != 1:
            super().start(host)
        if host == self.net.hosts[-1]:
            time.sleep(LATE_BY)
            super().start(1)
            self.late_from = time.time()


def late(python: str, folder: Path, hosts: int) -> float:
    """Start a job whose store comes late; return the seconds from then to its first step."""
    with network(hosts) as net:
        job = LateStore(python, net, folder, Setting(40))
        try:
            check(job.until(lambda: job.generations() > 0, WITHIN), job)
            took = time.time() - job.late_from
            print(f"{'late':10} {took:6.1f} s, codes {job.codes()}", flush=True)
            return took
        finally:
            job.close()


def spare(python: str, folder: Path, hosts: int) -> float:
    """Start a host too many, and kill a rank; return the seconds to the end of all hosts."""
    with network(hosts + 1) as net:
        job, began = Job(python, net, folder, Setting(100, spares=1)), time.time()
        try:
            check(job.until(lambda: bool(job.told("saved")), WITHIN), job)
            kill(job)
            codes = job.codes(WITHIN)
            took = time.time() - began
            told = f"{took:6.1f} s, codes {codes}, restarts {job.generations() - 1}"
            print(f"{'spare':10} {told}", flush=True)
            return took
        finally:
            job.close()


def main() -> None:
    """Go through all faults so many times."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no host is left
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("python")
    parser.add_argument("folder", type=Path)
    parser.add_argument("repeats", type=int)
    parser.add_argument("kinds", nargs="+", choices=[*FAULTS, "late", "spare"])
    given = parser.parse_args()
    alone = {"late": late, "spare": spare}
    for kind in given.kinds:
        folder, numbers = given.folder / kind, range(given.repeats)
        if kind in alone:
            each = [alone[kind](given.python, folder / f"{n}", given.hosts) for n in numbers]
        else:
            each = one_job(given.python, folder, kind, given.hosts, given.repeats)
        spread = f"median {statistics.median(each):.1f} s, {min(each):.1f} to {max(each):.1f}"
        print(f"{kind:10} {given.hosts} hosts, {len(each)} times, {spread}", flush=True)


if __name__ == "__main__":
    main()
