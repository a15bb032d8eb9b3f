"""Do several things at once and be done at the deadline, whatever becomes of them.

A thread that is stuck in the kernel cannot be ended, so it is left behind; it is a daemon, so that
it does not keep the program from ending.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sized
from datetime import timedelta
from typing import Generic, TypeVar

Key = TypeVar("Key")
Result = TypeVar("Result")

LATE = "did not answer in time"


class Outcomes(Generic[Key, Result]):
    """What came back in time, and why the rest did not."""

    def __init__(self, results: dict[Key, Result], missing: dict[Key, str]) -> None:
        self.results = results
        self.missing = missing


def run_all(
    jobs: Mapping[Key, Callable[[], Result]],
    *,
    within: timedelta,
    at_once: int = 8,
    done: Sized = (),
) -> Outcomes[Key, Result]:
    """Run every job, some at once, and return at the deadline at the latest.

    It is put off for as long as ``done`` grows, to which the jobs add.
    """
    deadline, before = time.monotonic() + within.total_seconds(), -1
    waiting = deque(jobs.items())
    results: dict[Key, Result] = {}
    missing: dict[Key, str] = {}

    def work() -> None:
        while time.monotonic() < deadline:
            try:
                key, job = waiting.popleft()
            except IndexError:
                return
            try:
                results[key] = job()
            except Exception as error:  # noqa: BLE001 - one that fails must not cost the others
                missing[key] = f"{type(error).__name__}: {error}"

    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(at_once, len(jobs)))]
    for worker in workers:
        worker.start()
    while len(done) > before and any(worker.is_alive() for worker in workers):
        before, deadline = len(done), time.monotonic() + within.total_seconds()
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
    kept, failed = dict(results), dict(missing)  # a late one may still write to the others
    for key in jobs.keys() - kept.keys() - failed.keys():
        failed[key] = LATE
    return Outcomes(kept, failed)


def in_time(job: Callable[[], Result], otherwise: Result, *, within: timedelta) -> Result:
    """Return what a job returns, or something else if it fails or does not answer in time."""
    return run_all({"job": job}, within=within).results.get("job", otherwise)
