"""A damaged journal is read as far as it goes; where it does not, there is advice."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from rocsteady.errors import JournalError
from rocsteady.model import RunOutcome, RunState, Strategy
from rocsteady.store.database import LATEST
from rocsteady.store.journal import Journal
from rocsteady.store.location import Place, find_place
from rocsteady.store.values import AttemptRecord, Incident, Sample


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place, now = find_place(tmp_path / "project", state=tmp_path / "state"), time.time()
    journal = Journal(place)
    run = journal.begin_run(("true",), job={}, strategy=Strategy(), name="calm-otter").id
    journal.record(
        AttemptRecord(run=run, number=1, strategy=Strategy(), boot_id="b", started=now, last_step=3)
    )
    journal.record(
        Incident(
            run=run, attempt=1, number=1, verdict=RunState.HUNG, why="", place="", quiet=1.0,
            evidence="", at=now,
        )
    )  # fmt: skip
    journal.progressed(run, 1, Sample(at=now, step=3, verdict=RunState.HEALTHY, quiet=0.0))
    journal.end_run(run, RunOutcome.NOT_DONE)
    assert journal.close()
    return place


def damage(place: Place, statement: str, *values: object) -> None:
    connection = sqlite3.connect(place.database)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("value", [1e18, -1e18, 9e999, -9e999, 2**62])
def test_times_that_cannot_be_are_read_as_times_that_can(place: Place, value: float) -> None:
    for column in ("runs SET started", "runs SET ended", "incidents SET at", "progress SET start"):
        damage(place, f"UPDATE {column} = ?", value)

    with closing(Journal(place)) as journal:
        story = journal.story("calm-otter")

    expected = LATEST if value > 0 else 0.0
    assert (story.run.started, story.run.ended) == (expected, expected)
    assert story.incidents[0].at == expected
    assert story.progress[0].start == expected


@pytest.mark.parametrize("what", ["bytes", "json", "type"])
def test_a_damaged_journal_says_what_to_do_next(place: Place, what: str) -> None:
    if what == "bytes":
        place.database.write_bytes(b"SQLite format 3" + bytes(5000))
    elif what == "json":
        damage(place, "UPDATE runs SET command = 'x'")
    else:
        damage(place, "PRAGMA ignore_check_constraints = 1")
        damage(place, 'UPDATE runs SET job = \'{"version":1,"value":7}\'')

    with closing(Journal(place)) as journal, pytest.raises(JournalError) as caught:
        journal.runs()

    path = place.database
    assert f"The logs are still in {path.parent / 'runs'}." in str(caught.value)
    assert str(caught.value).endswith(f"start a new one: mv {path} {path}.broken")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN UPDATE runs SET outcome = 'done'; END",
        "CREATE VIEW v AS SELECT * FROM runs",
    ],
)
def test_a_journal_that_changes_by_itself_what_is_written_is_refused(
    place: Place, statement: str
) -> None:
    damage(place, statement)

    with pytest.raises(JournalError), closing(Journal(place)) as journal:
        journal.story("calm-otter")
