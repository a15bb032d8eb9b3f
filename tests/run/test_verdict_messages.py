"""What a verdict becomes on the screen: each change once."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from rocsteady.hangs.judgment.blame import blame
from rocsteady.hangs.judgment.verdict import Verdict
from rocsteady.hangs.proof.wait_set import Activity, Member, WaitSet
from rocsteady.hangs.values import ProcessSeen, ThreadSeen, Wait
from rocsteady.model import Blame, RankRecord, RunEvent, RunState, Sign, WaitsFor
from rocsteady.run.attempt.verdict_messages import VerdictMessages
from rocsteady.run.context import HangPlace
from rocsteady.run.telling.announcer import Announcer
from rocsteady.run.telling.events import Event, Moving, Quiet
from rocsteady.screens.run_lines import line_of


class Heard:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.said: list[str] = []
        self.kept: list[Event] = []
        self.pauses: set[str] = set()

    def keep(self, event: Event) -> None:
        self.kept.append(event)

    def show(self, event: Event) -> None:
        self.events.append(event)

    def say(self, text: str) -> None:
        self.said.append(text)

    def note(self, text: str) -> None:
        del text


def told(*verdicts: Verdict, observe: bool = False) -> list[Event]:
    heard = Heard()
    teller = VerdictMessages(cast("Announcer", heard), observe=observe)
    for verdict in verdicts:
        teller.tell(verdict, 7, inspected=verdict.quiet > 0)
    return heard.events


def slow(limit: float | None) -> Verdict:
    why = "no step for 30 s; the training thread is waiting for a lock"
    return Verdict(condition=RunState.SLOW, why=why, quiet=30.0, limit=limit)


MOVES = Verdict(condition=RunState.HEALTHY, why="", quiet=0.0)


def test_slow_is_shown_once_and_that_it_moves_again() -> None:
    shown = told(slow(1800.0), slow(1800.0), MOVES, MOVES)

    assert shown == [Quiet(verdict=slow(1800.0), step=7), Moving(step=7, after=30.0)]


def test_each_slow_place_is_shown_once_in_a_run() -> None:
    heard, shown = Heard(), []
    validation, upload = (
        msgspec.structs.replace(slow(1800.0), place=place)
        for place in ("train.py:40 validate", "train.py:50 upload")
    )
    for pause in (validation, validation, upload, validation):
        teller = VerdictMessages(cast("Announcer", heard))  # one for each attempt
        teller.tell(pause, 7, inspected=True)
        teller.tell(MOVES, 7, inspected=False)
        shown.append(len(heard.events))

    assert shown == [2, 2, 4, 4]  # that it is slow, and that it goes on
    assert len(heard.kept) == 2


def test_a_short_pause_is_not_shown() -> None:
    pause = Verdict(condition=RunState.HEALTHY, why="no step", quiet=5.0, examine=True)

    assert told(pause, pause, MOVES) == []


@pytest.mark.parametrize(
    ("condition", "starting", "kind"),
    [
        (RunState.SLOW, False, RunEvent.SLOW),
        (RunState.SLOW, True, RunEvent.STARTING),
        (RunState.STOPPED, False, RunEvent.STOPPED),
        (RunState.HUNG, True, RunEvent.HUNG),
    ],
)
def test_an_event_has_the_state_of_its_verdict(
    condition: RunState,
    starting: bool,  # noqa: FBT001 - a case of the table
    kind: RunEvent,
) -> None:
    verdict = Verdict(condition=condition, why="", quiet=30.0, starting=starting)

    assert Quiet(verdict=verdict).kind is kind


LOCKED = Blame(
    sign=Sign.WAIT,
    why="rank 1 is waiting for a lock at train.py:40 main, and 1 rank waits for it",
    ranks=(RankRecord(rank=1),),
    number=1,
    compared=2,
)
ALIKE = Blame(sign=Sign.NONE, why="no rank stands out: all 2 ranks are in step 9", compared=2)


def test_a_hang_is_shown_once_and_known_again_by_its_place_and_step() -> None:
    heard = Heard()
    verdict = Verdict(condition=RunState.HUNG, why="", quiet=9.0, place="train.py:24 load")

    for before in (None, HangPlace("train.py:24 load", 7), HangPlace("train.py:24 load", 8)):
        teller = VerdictMessages(cast("Announcer", heard), before=before)
        teller.hung(verdict, 7)
        teller.hung(verdict, 7)

    assert heard.events == [
        Quiet(verdict=verdict, step=7, again=again) for again in (False, True, False)
    ]


def test_a_hang_of_another_rank_at_the_same_line_is_not_the_same_again() -> None:
    heard = Heard()
    verdict = Verdict(
        condition=RunState.HUNG, why="", quiet=9.0, place="train.py:40 main", blame=LOCKED
    )

    for rank in (0, 1):
        before = HangPlace("train.py:40 main", 7, (rank,))
        VerdictMessages(cast("Announcer", heard), before=before).hung(verdict, 7)

    assert heard.events == [Quiet(verdict=verdict, step=7, again=again) for again in (False, True)]


def test_evidence_is_said_only_if_it_says_more() -> None:
    heard = Heard()
    teller = VerdictMessages(cast("Announcer", heard))

    for found, before in ((None, None), (LOCKED, LOCKED), (ALIKE, LOCKED), (LOCKED, ALIKE)):
        teller.blamed(found, before)

    assert heard.said == [f"evidence: {LOCKED.why}."]


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (
            ("train.py:78 main", "train.py:45 fault"),
            (
                "step 45 · no rank stands out: rank 0 stopped at train.py:78 main, rank 1 stopped"
                " at train.py:45 fault · 9.0 s"
            ),
        ),
        (
            ("train.py:78 main",) * 2,
            "step 45 · train.py:78 in main · waiting for other ranks · 9.0 s",
        ),
    ],
)
def test_ranks_in_collectives_are_not_said_to_be_in_a_lock(
    places: tuple[str, ...], said: str
) -> None:
    ranks = tuple(
        RankRecord(rank=rank, pid=100 + rank, step=45, place=place, waits_for=WaitsFor.RANKS)
        for rank, place in enumerate(places)
    )
    thread = ThreadSeen(tid=100, name="python", state="S", cpu=0.0, wait=Wait.LOCK)
    process = ProcessSeen(
        pid=100,
        parent=1,
        name="python",
        python=True,
        read_bytes=0,
        written_bytes=0,
        rss_bytes=0,
        threads=(thread,),
    )
    member = Member(
        process=process,
        thread=thread,
        activity=Activity.WAITS_INSIDE,
        place="train.py:78 main",
        trains=True,
    )
    verdict = Verdict(
        condition=RunState.HUNG,
        why="",
        quiet=9.0,
        place="train.py:78 main",
        culprit=100,
        waits=WaitSet(at=0.0, members=(member,)),
        blame=blame(ranks),
        ranks=ranks,
    )

    assert line_of(Quiet(verdict=verdict, step=45)).facts == said
