"""Whoever takes a run over decides what the one before would have decided, to the field."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from rocsteady.model import Decision
from rocsteady.run.checkpoints.resume import Checkpoint
from rocsteady.run.hosts.host_decision import Chooses, HostAgreement
from rocsteady.run.hosts.messages import HostProposal
from rocsteady.run.recovery.decision import Here, decide
from rocsteady.run.recovery.history import history_of
from rocsteady.run.telling.announcer import Announcer
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.values import DecisionRecord, Event
from tests.run.decisions.driver import Driven
from tests.run.decisions.histories import COUNT, Case, case

if TYPE_CHECKING:
    from rocsteady.run.checkpoints.checkpoints import Checkpoints
    from tests.conftest import Recorded

HOSTS_EVERY = 3  # every so many histories, another host has a say


class Link:
    """The way to one other host, which has proposed what it would do."""

    def __init__(self, other: HostProposal | None = None) -> None:
        self.mine: HostProposal | None = None
        self._others = [msgspec.Raw(msgspec.json.encode(other))] if other else []

    def agree(self, mine: HostProposal, choose: Chooses) -> msgspec.Raw:
        self.mine = mine
        return msgspec.Raw(msgspec.json.encode(choose(mine, self._others)))

    def tell(self, *, accepted: bool) -> None:
        assert accepted


class Unsaved:
    """The checkpoints of a host that sees none."""

    def whole(self) -> list[Checkpoint]:
        return []


def agreement_of(driven: Driven, link: Link | None) -> HostAgreement:
    announcer = Announcer()
    announcer.quiet = True
    saved = cast("Checkpoints", Unsaved())
    return HostAgreement(link, driven.case.options, driven.machine, saved, announcer)


class OtherHost:
    """A host of the same job, whose ranks end in other ways."""

    def __init__(self, history: Case, recorded: Recorded) -> None:
        beside = replace(case(history.number + 1), options=history.options)
        self._driven = Driven(beside, recorded.machine(beside.machine), recorded.knowledge)
        self._driven.first()

    def proposal(self, number: int) -> HostProposal | None:
        """Return what it would do after an attempt; None: nothing, as its part is over."""
        driven = self._driven
        if number > len(driven.case.endings):
            return None
        driven.attempt(number)
        decision, link = decide(driven.history, driven.case.options, driven.here(number)), Link()
        agreement_of(driven, link).agree(decision, driven.history)
        driven.decided(number, decision)
        return msgspec.structs.replace(link.mine, host=1) if link.mine else None


class Moment(NamedTuple):
    """What was known, and true, when it was decided."""

    events: tuple[Event, ...]
    here: Here
    decision: Decision


def moments(
    history: Case, recorded: Recorded, dice: Random | None = None
) -> tuple[list[Moment], Driven]:
    """Return each decision of a run; with ``dice``, the supervisor is killed now and then."""
    driven = Driven(history, recorded.machine(history.machine), recorded.knowledge)
    other = OtherHost(history, recorded) if history.number % HOSTS_EVERY == 0 else None
    found: list[Moment] = []

    def killed() -> None:
        if dice and dice.random() < 0.5:
            driven.history = history_of(driven.events, history.options.strategy)

    with driven.clock.instead():
        if driven.first().ends:
            return found, driven
        for number in range(1, len(history.endings) + 1):
            driven.attempt(number)
            killed()
            here, events = driven.here(number), tuple(driven.events)
            agreement = agreement_of(driven, Link(other.proposal(number)) if other else None)
            decision = decide(driven.history, history.options, here)
            agreed = agreement.agree(decision, driven.history)
            killed()
            if dice:  # what was not recorded is decided and agreed on again
                assert decide(driven.history, history.options, here) == decision
                assert agreement.agree(decision, driven.history) == agreed
            driven.decided(number, agreed)
            killed()
            found.append(Moment(events, here, decision))
            decision = agreed
            if decision.ends:
                break
            driven.clock.now += decision.wait
    return found, driven


def test_who_reads_the_journal_decides_the_same(recorded: Recorded, tmp_path: Path) -> None:
    journal = Journal(find_place(tmp_path, state=tmp_path / "state"))
    chosen: list[tuple[str, Case, Moment]] = []
    for number in range(COUNT):
        history, dice = case(number), Random(number)  # noqa: S311 - nothing is secret
        found, _ = moments(history, recorded)
        if not found:
            continue
        moment = dice.choice(found) if number % HOSTS_EVERY else found[-1]
        run = journal.begin_run(("python",), job={}, name=f"run-{number}")
        for event in moment.events:
            journal.record(msgspec.structs.replace(event, run=run.id))
        chosen.append((run.name, history, moment))
    journal.flush()

    for name, history, moment in chosen:
        read = history_of(journal.story(name).events, history.options.strategy)
        assert decide(read, history.options, moment.here) == moment.decision, name
    journal.close()
    assert len(chosen) > COUNT * 0.9
    adopted = [
        event
        for _, _, moment in chosen
        for event in moment.events
        if isinstance(event, DecisionRecord) and event.decision.host is not None
    ]
    assert len(adopted) > COUNT * 0.02, "hosts had a say"


def test_a_kill_between_deciding_recording_and_acting_changes_nothing(recorded: Recorded) -> None:
    for number in range(COUNT):
        history = case(number)
        lived, first = moments(history, recorded)
        killed, second = moments(history, recorded, Random(number))  # noqa: S311 - the same

        assert [each.decision for each in killed] == [each.decision for each in lived], number
        assert second.history.strategy == first.history.strategy
        assert second.history.avoid == first.history.avoid
        assert second.helped == first.helped
