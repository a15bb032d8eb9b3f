"""This host's part in finding out that a job hangs on all of its hosts.

A verdict of this host is conditional: its ranks are stuck if those of the others are. It is told
to the leader as this host's part. When all hosts have told one, the leader asks each to prove it
once more. What was stuck both before and after the question was stuck at that moment, on every
host; so no clocks are compared, and nobody is left who could end a wait. A host that cannot repeat
its proof because nothing could be read tries again at once; only one whose ranks moved takes its
part back. ``hangs.verdict.job_verdict`` judges the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from rocsteady.hangs.judgment.verdict import Patience, Verdict
from rocsteady.hangs.values import Heartbeat
from rocsteady.model import Blame, RunState
from rocsteady.run.engines.torchrun import AgentLink
from rocsteady.run.hosts.blamed_nodes import node_name
from rocsteady.run.hosts.job_verdict import HostPart, Part, alone, host_part, job_blame, job_verdict
from rocsteady.run.hosts.messages import AgentMessage
from rocsteady.run.telling.announcer import Announcer
from rocsteady.typed_values import decode
from rocsteady.wording import duration

SAY_AFTER = 60.0  # seconds that this host is stuck and others are not known to be
MAX_NAMED = 8  # hosts


class JobHang:
    """Whether this host's verdict is one for the whole job; with one host, it is."""

    def __init__(
        self,
        hosts: AgentLink | None,
        announcer: Announcer,
        patience: Patience,
        *,
        several_hosts: bool = False,
    ) -> None:
        self._hosts, self._announcer, self._patience = hosts, announcer, patience
        self._unheard = several_hosts and hosts is None  # other hosts, and no way to them
        self._part: Part | None = None  # that was told
        self._told_at = 0.0  # seconds without progress, when that was
        self._asked: int | None = None  # the question to which the proof is to be repeated
        self._said = False
        self.blame: Blame | None = None  # of all ranks of the job, where this host decides
        self.settled = False  # it was proven on all hosts: nothing can move any more

    def seen(self, heartbeats: tuple[Heartbeat, ...]) -> tuple[Heartbeat, ...]:
        """Return the heartbeats by which this host is judged."""
        return alone(heartbeats) if self._hosts is not None or self._unheard else heartbeats

    def is_proven(
        self,
        verdict: Verdict,
        heartbeats: tuple[Heartbeat, ...],
        confirmed: Callable[[], bool | None],
    ) -> bool:
        """Return whether the job hangs.

        ``confirmed`` proves once more that this host does; None: nothing could be read.
        """
        mine = host_part(heartbeats, verdict)
        if self._hosts is None:
            holds_up_all = not self._unheard or mine is None or bool(mine.never)
            is_proof = verdict.waits is not None and verdict.waits.closed
            return verdict.condition is RunState.HUNG and (holds_up_all or not is_proof)
        if mine is None:
            self._withdraw()
            return False
        named = msgspec.structs.replace(mine, node=node_name())
        if self._part is not mine.part:
            self._part, self._told_at = mine.part, verdict.quiet
            self._hosts.tell(part=named)
        for message in self._taken():
            if message.lost and self._part is not Part.ABSTAINS:
                return self._lost(message.lost)
            if message.hangs or (message.parts is not None and self._decides(message)):
                self.settled = True
                return True
            if message.confirm is not None:
                self._asked = message.confirm
        if self._asked is not None and self._part is Part.PROVEN:
            self._answer(mine, self._asked, confirmed())
        return self._is_over(verdict)

    def _answer(self, mine: HostPart, asked: int, confirmed: bool | None) -> None:  # noqa: FBT001 - None: not read
        """Repeat the proof, or take this host's part back; what was not read is tried again."""
        if confirmed and self._hosts is not None:
            self._hosts.tell(part=mine)  # by now more may have been read
            self._hosts.tell(confirmed=asked)
            self._asked = None
        elif confirmed is False:
            self._withdraw()

    def judged(self, verdict: Verdict) -> Verdict:
        """Return a verdict with what all ranks of the job tell, where this host knows it."""
        if self.blame is None:
            return verdict
        return msgspec.structs.replace(verdict, blame=self.blame, apart=False)

    def _decides(self, message: AgentMessage) -> bool:
        """Decide for all hosts, where this one leads and all have told their parts."""
        parts = []
        for each in message.parts or ():
            with suppress(msgspec.MsgspecError):  # of a host that then counts as one that moves
                parts.append(decode(each, type=HostPart))
        judged = job_verdict(parts, hosts=message.of, asked=message.asked, still=message.still)
        if judged.hangs:
            self.blame = job_blame(parts)
            self._name(judged.abstained)
        if judged.hangs and self._hosts is not None:
            self._hosts.tell(hangs=True)
            if advice := self._hosts.blamed_nodes.count(parts, job_blame(parts)):
                self._announcer.say(f"{advice}.")
        return judged.hangs

    def _name(self, abstained: tuple[HostPart, ...]) -> None:
        """Name the hosts that could not prove their part."""
        late = "did not repeat its proof in time"
        named = [f"host {each.host} ({each.why or late})" for each in abstained[:MAX_NAMED]]
        more = len(abstained) - MAX_NAMED
        if named:
            rest = f" and {more} more" if more > 0 else ""
            self._announcer.say(
                f"{', '.join(named)}{rest} could not prove that their ranks are stuck. None of"
                " their ranks moves, and the proof of the other hosts is enough."
            )

    def _lost(self, hosts: tuple[int, ...]) -> bool:
        """Give up on hosts that give no sign of life, and for which the ranks here wait."""
        names = ", ".join(map(str, hosts))
        self._announcer.say(
            f"{'host' if len(hosts) == 1 else 'hosts'} {names} did not respond for minutes, and"
            " ranks on this host are waiting for ranks there. Restarting."
        )
        self.settled = self._part is Part.UNREACHABLE  # which no snapshot can prove
        return True

    def _is_over(self, verdict: Verdict) -> bool:
        """Return whether this host has waited for the others as long as anything may last."""
        if self._part is None:
            return False
        waited = verdict.quiet - self._told_at
        if not self._said and waited >= SAY_AFTER:
            self._said = True
            self._announcer.say(
                f"ranks here have been waiting for other hosts for {duration(waited)}. Not"
                " stopping: those hosts have not reported a hang."
            )
        longest = self._patience.hang_after or self._patience.works_after
        return self._part is Part.PROVEN and verdict.quiet >= longest.total_seconds()

    def _withdraw(self) -> None:
        if self._part is not None and self._hosts is not None:
            self._part, self._asked, self._said = None, None, False
            self._hosts.tell(part=None)
            self._taken()

    def _taken(self) -> list[AgentMessage]:
        """Take the messages of hangs from those that nobody has taken."""
        if self._hosts is None:
            return []
        found = [each for each in self._hosts.messages if each.is_of_hang]
        for each in found:
            self._hosts.messages.remove(each)
        return found
