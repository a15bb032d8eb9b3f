"""This host's part in finding out that a job hangs on all of its hosts.

A verdict of this host is conditional: its ranks are stuck if those of the others are. It is told
to the leader. When all hosts have told it, each proves it once more. What was stuck both before
and after the moment at which the last one told it was stuck at that moment, on every host; so no
clocks are compared, and nobody is left who could end a wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rocsteady.hangs.values import Heartbeat
from rocsteady.hangs.verdict import (
    HostSummary,
    Patience,
    Verdict,
    alone,
    job_blame,
    job_hangs,
    summarise,
)
from rocsteady.model import Blame, RunState
from rocsteady.run.announcer import Announcer
from rocsteady.run.torchrun import AgentLink
from rocsteady.wording import duration

KINDS = ("confirm", "hosts", "hangs", "lost")  # of messages
SAY_AFTER = 60.0  # seconds that this host is stuck and others are not known to be


class JobHang:
    """Whether this host's verdict is one for the whole job; with one host, it is."""

    def __init__(self, hosts: AgentLink | None, announcer: Announcer, patience: Patience) -> None:
        self._hosts, self._announcer, self._patience = hosts, announcer, patience
        self._stuck_for: float | None = None  # seconds without progress, when that was told
        self._said = False
        self.blame: Blame | None = None  # of all ranks of the job, where this host decides
        self.settled = False  # all hosts have proven it twice: nothing can move any more

    def seen(self, heartbeats: tuple[Heartbeat, ...]) -> tuple[Heartbeat, ...]:
        """Return the heartbeats by which this host is judged."""
        return heartbeats if self._hosts is None else alone(heartbeats)

    def is_proven(
        self, verdict: Verdict, heartbeats: tuple[Heartbeat, ...], confirmed: Callable[[], bool]
    ) -> bool:
        """Return whether the job hangs; ``confirmed`` proves once more that this host does."""
        hung = verdict.condition is RunState.HUNG
        if self._hosts is None:
            return hung
        if not hung:
            self._withdraw()
            return False
        if self._stuck_for is None:
            self._stuck_for = verdict.quiet
            self._hosts.tell(waits=msgspec.to_builtins(summarise(heartbeats, verdict)))
        for message in self._taken(*KINDS):
            if "lost" in message:
                return self._lost(message["lost"])
            if "hangs" in message or self._decides(message.get("hosts", [])):
                self.settled = True
                return True
            if "confirm" in message:
                if not confirmed():
                    self._withdraw()
                    return False
                self._hosts.tell(confirmed=message["confirm"])
        return self._is_over(verdict)

    def judged(self, verdict: Verdict) -> Verdict:
        """Return a verdict with what all ranks of the job tell, where this host knows it."""
        if self.blame is None:
            return verdict
        return msgspec.structs.replace(verdict, blame=self.blame, apart=False)

    def _decides(self, summaries: list[dict[str, Any]]) -> bool:
        """Decide for all hosts, where this one leads and all have told of their ranks."""
        hosts = [msgspec.convert(each, HostSummary) for each in summaries]
        hangs = job_hangs(hosts)
        if hangs:
            self.blame = job_blame(hosts)
        if hangs and self._hosts is not None:
            self._hosts.tell(hangs=True)
        return hangs

    def _lost(self, hosts: list[int]) -> bool:
        """Give up on hosts that give no sign of life, and for which the ranks here wait."""
        names = ", ".join(map(str, hosts))
        self._announcer.say(
            f"{'host' if len(hosts) == 1 else 'hosts'} {names} did not respond for minutes, and"
            " ranks on this host are waiting for ranks there. Restarting."
        )
        return True

    def _is_over(self, verdict: Verdict) -> bool:
        """Return whether this host has waited for the others as long as anything may last."""
        waited = verdict.quiet - (self._stuck_for or 0.0)
        if not self._said and waited >= SAY_AFTER:
            self._said = True
            self._announcer.say(
                f"the ranks of this host have waited for other hosts for {duration(waited)}. Those"
                " hosts have not reported that they are stuck too, so rocsteady only observes."
            )
        longest = self._patience.hang_after or self._patience.works_after
        return verdict.quiet >= longest.total_seconds()

    def _withdraw(self) -> None:
        if self._stuck_for is not None and self._hosts is not None:
            self._stuck_for, self._said = None, False
            self._hosts.tell(waits=None)
            self._taken(*KINDS)

    def _taken(self, *kinds: str) -> list[dict[str, Any]]:
        """Take messages of these kinds from those that nobody has taken."""
        if self._hosts is None:
            return []
        found = [each for each in self._hosts.messages if any(kind in each for kind in kinds)]
        for each in found:
            self._hosts.messages.remove(each)
        return found
