"""A slow run is reported once: what it waits for, how long it is left alone, what to type."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from rocsteady.hangs.values import Wait
from rocsteady.hangs.verdict import Verdict
from rocsteady.hangs.wait_set import Activity, Member, WaitSet
from rocsteady.model import Blame, RankRecord, RunState, Sign
from rocsteady.run.announcer import Announcer
from rocsteady.run.verdict_messages import VerdictMessages
from tests.hangs.verdicts.simulate import process, thread


class Heard:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.noted: list[str] = []
        self.pauses: set[str] = set()

    def note(self, text: str) -> None:
        self.noted.append(text)

    def say(self, text: str, *, style: str = "") -> None:
        del style
        self.said.append(text)


def told(*verdicts: Verdict, observe: bool = False) -> list[str]:
    heard = Heard()
    teller = VerdictMessages(cast("Announcer", heard), "calm-otter", observe=observe)
    for verdict in verdicts:
        teller.tell(verdict, inspected=True)
    return heard.said


HEALTHY = Verdict(condition=RunState.HEALTHY, why="", quiet=0.1)


def slow(limit: float | None, waits: WaitSet | None = None) -> Verdict:
    why = "no step for 30 s; the training thread is waiting for a lock"
    return Verdict(condition=RunState.SLOW, why=why, quiet=30.0, limit=limit, waits=waits)


CLOSED = WaitSet(
    at=0.0,
    members=(
        Member(
            process=process(1, thread(1, Wait.LOCK, "main (/home/u/train.py:40)")),
            thread=thread(1, Wait.LOCK, "main (/home/u/train.py:40)"),
            trains=True,
            activity=Activity.WAITS_INSIDE,
        ),
    ),
)


def test_each_kind_of_pause_is_shown_once_in_a_run() -> None:
    heard, shown = Heard(), []
    validation, upload = (
        msgspec.structs.replace(slow(1800.0), place=place)
        for place in ("train.py:40 validate", "train.py:50 upload")
    )
    for pause in (validation, validation, upload, validation):
        teller = VerdictMessages(cast("Announcer", heard), "calm-otter")  # one for each attempt
        teller.tell(pause, inspected=True)
        teller.tell(HEALTHY, inspected=False)
        shown.append(len(heard.said))

    assert shown == [2, 2, 4, 4]  # that it is slow, and that it goes on
    assert len(heard.noted) == 2


def test_slow_is_said_once_with_its_limit_and_what_to_type() -> None:
    (said,) = told(slow(1800.0), slow(1800.0))

    assert said == (
        "slow: no step for 30 s; the training thread is waiting for a lock. This is not proven to"
        " be a hang. rocsteady does not stop the run until 30 min after the last progress. To act"
        " now: rocsteady run --resume calm-otter, or rocsteady stop calm-otter. To change the"
        " limit, use --hang-after."
    )


@pytest.mark.parametrize(
    ("verdict", "observe", "expected"),
    [
        (slow(None), False, "cannot observe the work itself and does not stop the run"),
        (slow(1800.0), True, "Only observing: rocsteady does not stop the run."),
        (slow(300.0, CLOSED), False, "a lock. rocsteady does not stop the run until 5 min"),
    ],
)
def test_it_says_what_applies(verdict: Verdict, observe: bool, expected: str) -> None:  # noqa: FBT001 - a case of the table
    assert expected in told(verdict, observe=observe)[0]


LOCKED = Blame(
    sign=Sign.WAIT,
    why="rank 1 is waiting for a lock at train.py:40 main, and 1 rank waits for it",
    ranks=(RankRecord(rank=1),),
    number=1,
    compared=2,
)
ALIKE = Blame(sign=Sign.NONE, why="no rank stands out: all 2 ranks are in step 9", compared=2)


@pytest.mark.parametrize("found", [LOCKED, ALIKE, None])
def test_a_hang_is_said_with_the_rank_or_that_none_stands_out(found: Blame | None) -> None:
    heard = Heard()
    teller = VerdictMessages(cast("Announcer", heard), "calm-otter")

    teller.hung(
        Verdict(condition=RunState.HUNG, why="no step for 9 s", quiet=9.0, blame=found),
        "Incident 1.",
    )

    who = f" {found.why[:1].upper()}{found.why[1:]}." if found else ""
    assert heard.said == [f"hung: no step for 9 s.{who} Incident 1."]


def test_ranks_of_one_host_that_are_alike_are_not_said_of_a_hang_over_several() -> None:
    heard = Heard()
    teller = VerdictMessages(cast("Announcer", heard), "calm-otter")
    why = "no step for 9 s"
    apart = Verdict(condition=RunState.HUNG, why=why, quiet=9.0, blame=ALIKE, apart=True)

    teller.hung(apart, "Incident 1.")

    assert heard.said == [f"hung: {why}. Incident 1."]


def test_evidence_is_said_only_if_it_says_more() -> None:
    heard = Heard()
    teller = VerdictMessages(cast("Announcer", heard), "calm-otter")

    for found, before in ((None, None), (LOCKED, LOCKED), (ALIKE, LOCKED), (LOCKED, ALIKE)):
        teller.blamed(found, before)

    assert heard.said == [f"evidence: {LOCKED.why}."]


def test_a_slow_run_is_said_with_the_rank_that_stands_out() -> None:
    why = "no step for 30 s"
    (said,) = told(
        Verdict(condition=RunState.SLOW, why=why, quiet=30.0, limit=1800.0, blame=LOCKED)
    )

    assert said.startswith("slow: no step for 30 s. Rank 1 is waiting for a lock at train.py:40")
