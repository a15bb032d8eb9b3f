"""Processes that outlived both their supervisor and their keeper, found again by their variable."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from rocsteady.system import keeper

GUARD = str(Path(__file__).with_name("guard.py"))
REPLACE_AFTER = 0.2  # seconds after which a guard that was killed is replaced
MAX_GUARDS = 100  # if they cannot live here, no more are tried
FIND_WITHIN = 2.0  # seconds; a process that is stuck in the kernel may not let us read about it


class Leftovers:
    """The processes of every attempt that one supervisor made at a run, and their descendants."""

    def __init__(self, name: str, supervisor: int, born: int) -> None:
        self._run_id = f"{name}-{supervisor}-"
        self._supervisor, self._born = supervisor, born

    def members(self) -> dict[int, keeper.ProcessSnapshot]:
        """Look once, with a deadline: what cannot be read in time is not ours to judge."""
        found: dict[int, keeper.ProcessSnapshot] = {}
        looking = threading.Thread(target=self._look, args=(found,), daemon=True)
        looking.start()
        looking.join(FIND_WITHIN)
        return dict(found)

    def _look(self, found: dict[int, keeper.ProcessSnapshot]) -> None:
        everyone, carriers = keeper.all_processes(), keeper.Carriers(self._run_id)
        namesake = everyone.get(self._supervisor)  # a later process that has its number
        before = namesake.start if namesake else None
        marked = [
            pid
            for pid, seen in everyone.items()
            if pid != os.getpid()
            and seen.start >= self._born
            and (before is None or seen.start < before)
            and carriers.include(pid, seen)
        ]
        chosen = set(marked).union(*(keeper.descendants(pid, everyone) for pid in marked))
        for pid in sorted(chosen - {os.getpid()}):
            if pid in everyone and keeper.is_alive(pid, everyone[pid]):
                found[pid] = everyone[pid]


def end_leftovers(name: str, supervisor: int, born: int) -> tuple[dict[int, str], dict[int, str]]:
    """End what a dead supervisor left of a run. Returns what was found and what is left, by name.

    ``born`` is when the supervisor was started, in ticks since boot: whatever is older is not its.
    """
    family = Leftovers(name, supervisor, born)
    names = {pid: keeper.name_of(pid) for pid in family.members()}
    if names:
        keeper.end(family)
    left = {pid: names.get(pid) or keeper.name_of(pid) for pid in family.members()}
    return names, left


@contextlib.contextmanager
def guarded(name: str, supervisor: int, born: int) -> Iterator[None]:
    """Have a guard beside us that ends the run's processes if we and the keeper are killed.

    We replace one that is killed itself, so that the run never depends on a single process.
    """
    reader, writer = os.pipe()  # the writer is not inherited: it ends with us
    words = (str(reader), name, str(supervisor), str(born))
    over = threading.Event()
    first = _start_guard(reader, words)
    keeping = threading.Thread(
        target=_replace_guard,
        args=(first, reader, words, over),
        name="rocsteady-guard",
        daemon=True,
    )
    keeping.start()
    try:
        yield
        os.write(writer, b".")  # every tree has ended
    finally:
        over.set()
        os.close(writer)
        keeping.join(FIND_WITHIN)
        os.close(reader)


def _start_guard(reader: int, words: tuple[str, ...]) -> subprocess.Popen[bytes] | None:
    """Start one; None if that is not possible: a run is then as safe as its keeper."""
    with contextlib.suppress(OSError):
        return subprocess.Popen(
            [sys.executable, "-I", "-S", GUARD, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            pass_fds=(reader,),
            start_new_session=True,
        )
    return None


def _replace_guard(
    started: subprocess.Popen[bytes] | None,
    reader: int,
    words: tuple[str, ...],
    over: threading.Event,
) -> None:
    for _ in range(MAX_GUARDS):
        if started is None:
            return
        started.wait()
        if over.wait(REPLACE_AFTER):
            return
        started = _start_guard(reader, words)


def wait_for(pid: int) -> int | None:
    """Return how a child of ours ended, as Python says it; None if that is not known."""
    deadline = time.monotonic() + FIND_WITHIN
    try:
        while time.monotonic() < deadline:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            time.sleep(keeper.LOOK_EVERY)
    except ChildProcessError:
        return None
    return None
