"""A month-long run stays under 50 MB, whatever the number of its steps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from rocsteady.model import IntentKind, Outcome, RunState, Strategy
from rocsteady.store.journal import Journal
from rocsteady.store.location import Place
from rocsteady.store.progress import DAY, HOUR
from rocsteady.store.values import AttemptRecord, Incident, MessageRecord, Sample
from tests.values import decided

OpenJournal = Callable[..., Journal]
LOOK_EVERY = 20  # seconds
PHASES = ("data", "compute", "backward", "optimizer", "checkpoint", "compile", "evaluate")


def incident(journal: Journal, run: int, number: int, at: float) -> None:
    """Write what one hang and one restart leave behind."""
    folder = f"/home/user/project/.rocsteady/runs/calm-otter/incident-{number}"
    why, place = "no step for 9 s (at most 0.9 s in this phase so far)", "dataset.py:88 __getitem__"
    journal.record(
        Incident(run=run, attempt=number, number=number, verdict=RunState.HUNG, quiet=9.3, why=why,
                 at=at, place=place, evidence=folder)
    )  # fmt: skip
    for text in ("Looking.", "hung in the DataLoader. " * 6, "the same again", "from step 4,800"):
        journal.record(MessageRecord(run=run, text=text, at=at))
    journal.record(replace(decided("retry", "chance", attempt=number, at=at), run=run))
    journal.record(
        AttemptRecord(run=run, number=number + 1, strategy=Strategy(device="gpu", workers=2),
                boot_id="b" * 36, started=at, ended=at + 600, signal=9, outcome=Outcome.HUNG,
                first_step=1000 * number, last_step=1000 * number + 900)
    )  # fmt: skip
    for kind in (IntentKind.PAUSE, IntentKind.KILL, IntentKind.START):
        journal.intend(kind, f"attempt {number} of calm-otter", run=run, attempt=number).end()


def megabytes(place: Place) -> float:
    files = place.database.parent.glob("journal.db*")
    return sum(path.stat().st_size for path in files) / 1e6


@pytest.mark.slow
def test_a_month_with_a_hang_every_hour(
    open_journal: OpenJournal, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0
    journal = open_journal(clock=lambda: float(now))
    run = journal.begin_run(("python", "train.py"), job={}, strategy=Strategy()).id
    for now in range(0, 30 * DAY, LOOK_EVERY):
        number = now // HOUR + 1
        if now % HOUR == 0:
            incident(journal, run, number, now)
        seconds_in = dict.fromkeys(PHASES, (now % HOUR) * 0.13)
        journal.progressed(
            run,
            number,
            Sample(at=now, step=now * 500, verdict=RunState.HEALTHY, quiet=0.1, total=10**9,
                   seconds_in=seconds_in),
        )  # fmt: skip
    journal.flush(timedelta(seconds=60))
    size = megabytes(place)
    story = journal.story(journal.runs()[0].run.name)
    with capsys.disabled():
        print(f"\n30 days, {now * 500:,} steps, {len(story.incidents)} incidents: {size:.1f} MB,"  # noqa: T201 - the figure is the point
              f" {len(story.progress)} rows of progress")  # fmt: skip

    assert journal.losses.dropped == 0
    assert len(story.incidents) == 720
    assert size < 50
