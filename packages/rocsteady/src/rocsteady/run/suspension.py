"""Continues a run that somebody stopped with a signal and forgot; a second stop is meant."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from rocsteady.hangs.values import Snapshot
from rocsteady.run.announcer import Announcer
from rocsteady.run.options import RunOptions
from rocsteady.run.processes import AttemptProcesses
from rocsteady.system import procfs
from rocsteady.wording import duration


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
    """Tell whether a process has a terminal, whose ^Z could have stopped it."""
    try:
        return procfs.stat(pid).terminal != 0
    except (OSError, ValueError, IndexError):
        return True
