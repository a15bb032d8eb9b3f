"""Ends process trees, continues suspended ones, and cleans up after killed runs."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from pathlib import Path

from rocsteady.errors import RocsteadyError
from rocsteady.hangs.values import Snapshot
from rocsteady.run.context import Services
from rocsteady.run.engines.plain_command import AttemptProcesses
from rocsteady.run.options import RunOptions
from rocsteady.run.stop_requests import StopRequests
from rocsteady.run.telling.announcer import Announcer
from rocsteady.store.identity import Identity
from rocsteady.store.values import RunLine
from rocsteady.system import procfs
from rocsteady.system.child_end import Stopping, StopResult
from rocsteady.system.leftovers import end_leftovers, guarded
from rocsteady.wording import duration, plural

POLL_EVERY = 0.05  # seconds


def end_tree(
    child: AttemptProcesses,
    stopping: Stopping,
    first: signal.Signals,
    services: Services,
    *,
    patience: int,
) -> StopResult:
    """Stop the child from the ``first`` signal on; more than ``patience`` interrupts kill it."""
    stop_requests = services.stop_requests
    if stop_requests.stop is not None:
        stop_requests.reacted()
    before = len(child.interrupts)
    if _at_once(child, stop_requests, before):
        ended = child.stop(stopping, first=None)
    else:
        with ThreadPoolExecutor(1, thread_name_prefix="rocsteady-ending") as pool:
            ending = pool.submit(child.stop, stopping, first=first)
            while not wait([ending], timeout=POLL_EVERY).done:
                if stop_requests.stop is not None:
                    stop_requests.reacted()
                if _at_once(child, stop_requests, before + patience):
                    child.stop(stopping, first=None)  # beside the mild one, which finds it ended
                    break
            ended = ending.result()
    if ended.unkillable:
        services.announcer.say(
            f"{plural(len(ended.unkillable), 'process', 'processes')} stuck in the kernel"
            " cannot be killed. The machine may need a reboot."
        )
    return ended


def interrupted_twice(child: AttemptProcesses) -> bool:
    """Return whether two interrupts ask for the end, and not for a prompt that shows by now."""
    if not child.interrupts.ask_for_the_end(time.monotonic()):
        return False
    if child.at_prompt():
        child.interrupts.answered()
        return False
    return True


def _at_once(child: AttemptProcesses, stop_requests: StopRequests, interrupts: int) -> bool:
    """Return whether the user asked to end it again, or typed too many interrupts."""
    return stop_requests.at_once or len(child.interrupts) > interrupts


class Suspension:
    """Whether an attempt is stopped, since when, and whether it was continued."""

    def __init__(self, options: RunOptions, announcer: Announcer) -> None:
        self._options, self._announcer = options, announcer
        self._continued = False
        self._since: float | None = None

    def over(self) -> None:
        """Take note that the attempt is not stopped."""
        self._since = None

    def seen(self, child: AttemptProcesses, snapshot: Snapshot | None) -> None:
        """Continue a stopped attempt once, when it has waited long enough."""
        now, timing = time.monotonic(), self._options.timing
        if self._since is None:
            self._since = now
        waited = now - self._since
        stopped = _stopped_by_signal(snapshot)
        by_user = any(map(_has_terminal, stopped))  # ^Z: it may have been meant
        after = timing.continue_after if by_user else timing.continue_unattended_after
        due = waited >= after.total_seconds()
        if self._continued or self._options.observe or not due or not stopped:
            return
        self._continued = True
        self._announcer.say(
            f"the run was suspended for {duration(waited)}; rocsteady continued it. If suspended"
            " again, the run stays suspended."
        )
        for pid in child.tree():
            with contextlib.suppress(OSError):  # gone, or not ours
                os.kill(pid, signal.SIGCONT)


def _stopped_by_signal(snapshot: Snapshot | None) -> list[int]:
    """Return processes that a signal has stopped, not a debugger."""
    processes = snapshot.processes if snapshot else ()
    return [p.pid for p in processes if any(thread.state == "T" for thread in p.threads)]


def _has_terminal(pid: int) -> bool:
    """Return whether a process has a terminal, whose ^Z could have stopped it."""
    try:
        return procfs.stat(pid).terminal != 0
    except (OSError, ValueError, IndexError):
        return True


# Before a run starts: end what is left of earlier ones whose supervisor was killed.
#
# The keeper ends the tree when the supervisor is killed, the supervisor when the keeper is, and a
# guard when both are. Should all three be gone, a second training must not start beside the first.

MAX_NAMED = 5
OF_TORCHRUN = "ranks-of-torchrun"  # a file among the records of a run: its processes are not ours


def end_what_was_left(lines: Iterable[RunLine], here: Identity, say: Callable[[str], None]) -> None:
    """End it, or raise an error that names what cannot be ended.

    Ranks of somebody's torchrun go on without a watcher, and are left alone.
    """
    for line in lines:
        run = line.run
        if run.ended is not None or line.alive is not False or run.boot_id != here.boot_id:
            continue
        if (Path(run.folder) / OF_TORCHRUN).exists():
            continue
        found, left = end_leftovers(run.name, *_number_and_birth(run.process))
        if left:
            raise RocsteadyError(
                f"processes of run {run.name} are still running and cannot be terminated:"
                f" {named(left)}. Terminate them, or reboot, before you start a run here"
            )
        if found:
            say(
                f"the supervisor of run {run.name} was killed; terminated the processes it left:"
                f" {named(found)}."
            )


def guard(name: str, here: Identity) -> AbstractContextManager[None]:
    """Have the processes of our own run ended even if we and the keeper are killed."""
    return guarded(name, *_number_and_birth(here.process))


def _number_and_birth(process: str) -> tuple[int, int]:
    _, number, born = process.split(":")
    return int(number), int(born or 0)


def named(processes: Mapping[int, str]) -> str:
    """Spell processes for a person, by pid and program."""
    named = [f"{pid} ({name})" for pid, name in processes.items()][:MAX_NAMED]
    more = len(processes) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
