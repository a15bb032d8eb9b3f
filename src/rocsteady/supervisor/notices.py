"""What people are told of one run who do not look at it: incidents, a deadline, the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from rocsteady.attempts.announcer import Announcer
from rocsteady.attempts.stopwatch import Since
from rocsteady.job.notify import NotifyEvent
from rocsteady.journal.values import Run
from rocsteady.model import Failure
from rocsteady.report.notice import Notice
from rocsteady.supervisor.recovery import Decision, Next
from rocsteady.supervisor.restart_preparation import UNCHANGED
from rocsteady.supervisor.run_end import DONE, STOPPED
from rocsteady.wording import duration


class NoticeSender(Protocol):
    """Sends notices without making anybody wait."""

    def send(self, notice: Notice, report: Callable[[str], None], /) -> None:
        """Send a notice, unless one with its cause was sent."""

    def close(self) -> None:
        """Let what is waiting be sent, for a bounded time."""


class RunNotices:
    """Makes the notices of one run. Without a sender there are none."""

    def __init__(self, run: Run, announcer: Announcer, sender: NoticeSender | None) -> None:
        self._run, self._announcer, self._sender = run, announcer, sender
        self._since = Since()
        self._why = ""  # the last decision

    def failed(self, failure: Failure | None, decision: Decision, ranks: str = "") -> None:
        """Tell of an incident, once for each kind; the one that ends the run is told with it.

        ``ranks`` is a clause about the ranks that hold up the others.
        """
        lines = failure.traceback.strip().splitlines() if failure else []
        self._why = ". ".join([decision.why.rstrip("."), *lines[-1:]])
        if failure is None or decision.next is Next.END:
            return
        change = "" if decision.remedy in UNCHANGED else f" with {decision.remedy}"
        self._send(
            NotifyEvent.INCIDENT,
            failure.kind,
            f"{self._run.name}: {failure.title}",
            f"{ranks[:1].upper()}{ranks[1:]}{'. ' * bool(ranks)}rocsteady restarts the run{change}."
            f" {decision.why}",
        )

    def will_be_late(self, text: str) -> None:
        """Tell that the deadline will be missed."""
        self._send(NotifyEvent.DEADLINE, "", f"{self._run.name} will miss its deadline", text)

    def ended(self, outcome: str) -> None:
        """Tell of the end, unless the user brought it about, and wait until that is sent."""
        if outcome == STOPPED:
            return
        took = duration(self._since.seconds)
        if outcome == DONE:
            self._send(NotifyEvent.END, "", f"{self._run.name} is done", f"Finished in {took}.")
        else:
            why = f": {self._why}" if self._why else ""
            text = f"Ended after {took}{why}. To see more: rocsteady report {self._run.name}"
            self._send(NotifyEvent.END, "", f"{self._run.name}: {outcome}", text)
        if self._sender is not None:
            self._sender.close()

    def _send(self, event: NotifyEvent, cause: str, title: str, text: str) -> None:
        if self._sender is None:
            return
        notice = Notice(
            event=event,
            cause=f"{event.value} {cause}".rstrip(),
            run=self._run.name,
            title=f"rocsteady: {title}",
            text=" ".join(text.split()),
            at=time.time(),
        )
        self._sender.send(notice, self._announcer.say)
