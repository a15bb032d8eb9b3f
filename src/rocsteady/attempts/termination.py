"""Ends a tree mildly; at once, if the user says so meanwhile. Continues one that was stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

from rocsteady.attempts.engines.processes import AttemptProcesses
from rocsteady.attempts.stop_requests import StopRequests
from rocsteady.evidence import procfs
from rocsteady.host.child import Stopping, StopResult

POLL_EVERY = 0.05  # seconds


def end_tree(  # noqa: PLR0913 - how, each by name
    child: AttemptProcesses,
    stopping: Stopping,
    first: signal.Signals | None,
    wishes: StopRequests,
    *,
    patience: int = 1,
    futile: Callable[[], bool] | None = None,
) -> StopResult:
    """Stop the child from the ``first`` signal on; more than ``patience`` interrupts kill it.

    ``futile`` tells that nobody reacts to the last signal.
    """
    if wishes.stop is not None:
        wishes.reacted()
    if first is None or _at_once(child, wishes, len(child.interrupts)):
        return child.stop(stopping, first=None)
    before = len(child.interrupts)
    with ThreadPoolExecutor(1, thread_name_prefix="rocsteady-ending") as pool:
        ending = pool.submit(child.stop, stopping, first=first, futile=futile)
        while not wait([ending], timeout=POLL_EVERY).done:
            if wishes.stop is not None:
                wishes.reacted()
            if _at_once(child, wishes, before + patience):
                child.stop(stopping, first=None)  # beside the mild one, which then finds it ended
                break
        return ending.result()


def interrupted_twice(child: AttemptProcesses) -> bool:
    """Tell whether two interrupts ask for the end, and not for a prompt that shows by now."""
    if not child.interrupts.ask_for_the_end(time.monotonic()):
        return False
    if child.at_prompt():
        child.interrupts.answered()
        return False
    return True


def continue_tree(child: AttemptProcesses) -> None:
    """Continue every process that was stopped by a signal."""
    if sys.platform != "win32":
        for pid in child.tree():
            with contextlib.suppress(OSError):  # gone, or not ours
                os.kill(pid, signal.SIGCONT)


def has_terminal(pid: int) -> bool:
    """Tell whether a process has a terminal, whose ^Z could have stopped it."""
    try:
        return procfs.stat(pid).terminal != 0
    except (OSError, ValueError, IndexError):
        return True


def _at_once(child: AttemptProcesses, wishes: StopRequests, interrupts: int) -> bool:
    """Tell whether the user will not wait: asked to end it again, or typed too many interrupts."""
    return wishes.at_once or len(child.interrupts) > interrupts
