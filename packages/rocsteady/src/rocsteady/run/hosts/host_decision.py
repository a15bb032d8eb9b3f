"""One decision for all hosts of a job: each host proposes one, and the leader chooses.

Every watcher makes its proposal with the same code and the same history. The one that is chosen
replaces the history of all, so that any host can lead the next time. What another host names is
done only if this host's own knowledge, options and policy allow it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.errors import LauncherError, RocsteadyError
from rocsteady.exit_codes import RETRY
from rocsteady.failures.named_workarounds import workarounds_in
from rocsteady.failures.remedy import load_remedies
from rocsteady.failures.situation import Refused
from rocsteady.model import (
    Decision,
    FailedAttempt,
    FailureKind,
    Fingerprint,
    Next,
    Outcome,
    Strategy,
)
from rocsteady.run.hosts.messages import (
    MAX_TRIED,
    HostProposal,
    Tried,
    Weight,
    Workarounds,
    as_text,
)
from rocsteady.run.options import RunOptions
from rocsteady.run.recovery.decision import what_failed
from rocsteady.run.recovery.history import History
from rocsteady.typed_values import decode
from rocsteady.wording import inside_a_sentence

if TYPE_CHECKING:
    from rocsteady.run.checkpoints.checkpoints import Checkpoints
    from rocsteady.run.recovery.machine import RunMachine
    from rocsteady.run.telling.announcer import Announcer

# What ranks report that only lost another one.
CASCADES = (
    FailureKind.PEER_DIED,
    FailureKind.COLLECTIVE_ERROR,
    FailureKind.COLLECTIVE_TIMEOUT,
    FailureKind.RENDEZVOUS_FAILED,
)
# What may also be a rank that waits for others, as those of another host; the surest first.
VAGUE = (FailureKind.HANG_IN_BACKWARD, FailureKind.UNKNOWN, FailureKind.HANG_IN_COLLECTIVE)


def choose(proposals: Sequence[HostProposal]) -> HostProposal:
    """Choose what all hosts do: what the host proposes that knows most of the cause."""
    chosen = min(
        proposals,
        key=lambda each: (
            -each.weight,
            VAGUE.index(each.kind) if each.kind in VAGUE else -1,
            not each.end if each.weight else each.end > 0,
            -len(each.tried),
            each.host,
        ),
    )
    keeping = [each for each in proposals if each.keeps]
    return keeping[0] if keeping and not chosen.end else chosen


Chooses = Callable[[HostProposal, Sequence[msgspec.Raw]], HostProposal]


class Agreeing(Protocol):
    """The way to the other hosts."""

    def agree(self, mine: HostProposal, choose: Chooses) -> msgspec.Raw | None:
        """Return what was chosen of the proposals of all hosts; None: torchrun has ended."""

    def tell(self, *, accepted: bool) -> None:
        """Say that this host does it."""


class HostAgreement:
    """Has each decision made for all hosts, before it is recorded and carried out."""

    def __init__(
        self,
        hosts: Agreeing | None,
        options: RunOptions,
        machine: RunMachine,
        checkpoints: Checkpoints,
        announcer: Announcer,
    ) -> None:
        self._hosts, self._options, self._machine = hosts, options, machine
        self._checkpoints, self._announcer = checkpoints, announcer

    def start(self, own: Decision, history: History) -> Decision:
        """Agree on what the first attempt of this supervisor runs with."""
        return self._agreed(own, _proposal(own, history)) or own

    def agree(self, own: Decision, history: History) -> Decision:
        """Return what is done by all in place of what this host would do."""
        restarts = not own.ends or (own.needs_resume and not self._options.first_host)
        if self._hosts is None and self._options.several_hosts and restarts:
            why = "its ranks on other hosts can only be restarted by the scheduler"
            return msgspec.structs.replace(
                own, next=Next.END, why=why, code=RETRY, needs_resume=False
            )
        if self._hosts is None or (own.ends and own.code == 0):
            return own
        weight = _weight(history)
        keeps = own.ends and not own.exhausted and history.result.wrote_checkpoint
        mine = _proposal(
            own,
            history,
            weight=max(weight, Weight.PERHAPS) if keeps else weight,  # so that it is heard
            keeps=keeps,
            kind=history.failure.kind if history.failure else "",
            failed=as_text(_what_failed(history)) if weight else "",
        )
        decision = self._agreed(own, mine)
        if decision is None and not own.ends:
            raise LauncherError("torchrun has ended and will not restart its ranks")
        return decision or own

    def _agreed(self, own: Decision, mine: HostProposal) -> Decision | None:
        """Return the decision for all; None: there is nobody to agree with."""
        if self._hosts is None:
            return None

        def chosen(mine: HostProposal, others: Sequence[msgspec.Raw]) -> HostProposal:
            proposals = [mine]
            for each in others:
                try:
                    proposal = _read(each)
                    self._adopted(proposal, own)
                except RocsteadyError as error:
                    self._announcer.say(f"a proposal of another host is left out: {error}.")
                else:
                    proposals.append(proposal)
            return choose(proposals)

        answer = self._hosts.agree(mine, chosen)
        if answer is None:
            return None
        try:
            theirs = _read(answer)
        except RocsteadyError as error:
            raise RocsteadyError(f"what the hosts decided cannot be done: {error}") from None
        if not theirs.end and (mine.keeps or (own.ends and self._options.observe)):
            why = "only observes" if self._options.observe else "would lose its checkpoints"
            raise RocsteadyError(f"host {theirs.host} restarts the job, and this host {why}")
        same = _essence(theirs) == _essence(mine)
        decision = own if same else self._adopted(theirs, own)
        self._hosts.tell(accepted=True)
        if theirs.failed and theirs.failed != mine.failed:
            self._announcer.say(f"host {theirs.host}: {theirs.failed}.")
        return decision

    def _adopted(self, theirs: HostProposal, own: Decision) -> Decision:
        """Return what another host decides, as this one does it; raise an error if it may not."""
        by = f"host {theirs.host}"
        strategy = self._strategy(theirs.workarounds, by)
        crashed = theirs.workarounds and strategy in self._machine.deadly
        if crashed and not self._options.retry_crashed:
            raise RocsteadyError(f"{by} names settings that crashed this machine")
        tried = tuple(self._attempt(each, by) for each in theirs.tried)
        again = Next.AGAIN if own.ends else own.next
        return Decision(
            next=Next.END if theirs.end else again,
            why=f"decided by {by} for all hosts: {theirs.why or 'start'}",
            code=theirs.end,
            strategy=strategy,
            remedy=theirs.remedy if theirs.remedy in load_remedies() else "",
            avoid=self._avoided(theirs, own, by),
            kind=theirs.kind if theirs.end and theirs.kind in load_failures().kinds else "",
            gpu_failed=own.gpu_failed,
            host=theirs.host,
            tried=tried,
        )

    def _strategy(self, workarounds: Workarounds, by: str) -> Strategy:
        found = self._machine.named(workarounds, self._options)
        if isinstance(found, Refused):
            raise RocsteadyError(f"{by} names {found.why}")
        return found

    def _attempt(self, tried: Tried, by: str) -> FailedAttempt:
        """Return what was tried: what helped may be gone back to, so it must be allowed, too."""
        failure = Fingerprint(
            kind=tried.kind, place=tried.place, step=tried.step, start=tried.start
        )
        return FailedAttempt(
            strategy=self._strategy(tried.workarounds, by),
            failure=failure,
            remedy=tried.remedy,
            clears=tried.clears,
            progressed=tried.progressed,
            steps=tried.steps,
        )

    def _avoided(
        self, theirs: HostProposal, own: Decision, by: str
    ) -> tuple[tuple[str, float], ...]:
        """Return which of this host's own checkpoints are passed over, never all of them."""
        new = {*theirs.avoid} - {*own.avoid}
        if not new:
            return own.avoid
        left = {(str(each.path), each.written) for each in self._checkpoints.whole()}
        left -= {*own.avoid}
        if left and left <= new:
            raise RocsteadyError(f"{by} passes over every checkpoint of this host")
        return (*own.avoid, *sorted(left & new))


def _read(content: msgspec.Raw) -> HostProposal:
    try:
        return decode(content, type=HostProposal)
    except msgspec.MsgspecError as error:
        raise RocsteadyError(f"it is no message of this version ({error})") from None


def _proposal(own: Decision, history: History, **known: Any) -> HostProposal:  # noqa: ANN401 - fields, by name
    return HostProposal(
        end=min(max(own.code, 1), 255) if own.ends else 0,
        why=as_text(own.why),
        workarounds=workarounds_in(own.strategy),
        remedy=own.remedy,
        avoid=tuple((path.encode(errors="replace").decode(), at) for path, at in own.avoid)[
            -MAX_TRIED:
        ],
        tried=tuple(map(Tried.of, history.tried[-MAX_TRIED:])),
        **known,
    )


def _essence(proposal: HostProposal) -> tuple[object, ...]:
    """Return what hosts must agree in."""
    what = proposal.end, proposal.workarounds, proposal.remedy
    return *what, proposal.avoid, proposal.tried


def _what_failed(history: History) -> str:
    """Return what failed on this host, and where, in a line."""
    failure = history.failure
    if failure is None:
        return ""
    on = "" if failure.rank is None else f" on rank {failure.rank}"
    at = f" at {failure.line}" if failure.line else ""
    return f"{inside_a_sentence(what_failed(history, failure))}{on}{at}"


def _weight(history: History) -> Weight:
    """Return how much this host knows of the cause."""
    failure, outcome = history.failure, history.last.outcome if history.last else Outcome.NONE
    if outcome in (Outcome.STOPPED, Outcome.UNKILLABLE, Outcome.AT_EXIT, Outcome.STARTED_OVER):
        return Weight.CAUSE
    if failure is None or failure.kind in CASCADES:
        return Weight.NOTHING
    return Weight.PERHAPS if failure.kind in VAGUE else Weight.CAUSE
