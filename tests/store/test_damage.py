"""A damaged journal is read as far as it goes; where it does not, there is advice."""

from __future__ import annotations

import json
import resource
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from rocsteady.errors import JournalError
from rocsteady.model import (
    Certainty,
    Failure,
    Fingerprint,
    IntentKind,
    Observation,
    Outcome,
    ProbeOutcome,
    RunOutcome,
    RunState,
    Strategy,
)
from rocsteady.store.database import LATEST_TIME
from rocsteady.store.journal import Journal
from rocsteady.store.location import Place, find_place
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import AttemptRecord, Deadly, Incident, NamedFailure, Sample


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
    failure = Failure(
        kind="gpu-hang", title="", words="", certainty=Certainty.CERTAIN,
        fingerprint=Fingerprint(kind="gpu-hang"), seen=(),
    )  # fmt: skip
    journal.record(NamedFailure(run=run, attempt=1, failure=failure, evidence="", at=now))
    journal.intend(IntentKind.START, "train.py", run=run, attempt=1)
    journal.progressed(run, 1, Sample(at=now, step=3, verdict=RunState.HEALTHY, quiet=0.0))
    journal.end_run(journal.runs()[0].run, RunOutcome.NOT_DONE)
    assert journal.close()
    return place


def damage(place: Place, statement: str, *values: object) -> None:
    connection = sqlite3.connect(place.database)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def change(path: Path | None, table: str, name: str, **fields: object) -> None:
    """Change a JSON column as a later version might write it."""
    assert path is not None
    with closing(sqlite3.connect(path)) as database, database:
        rows = database.execute(f"SELECT DISTINCT {name} FROM {table}").fetchall()  # noqa: S608
        for (text,) in rows:
            content = json.loads(text)
            content["value"] |= fields
            statement = f"UPDATE {table} SET {name} = ? WHERE {name} = ?"  # noqa: S608 - ours
            database.execute(statement, (json.dumps(content), text))


@pytest.mark.parametrize("value", [1e18, -1e18, 9e999, -9e999, 2**62])
def test_times_that_cannot_be_are_read_as_times_that_can(place: Place, value: float) -> None:
    for column in ("runs SET started", "runs SET ended", "incidents SET at", "progress SET start"):
        damage(place, f"UPDATE {column} = ?", value)

    with closing(Journal(place)) as journal:
        story = journal.story("calm-otter")

    expected = LATEST_TIME if value > 0 else 0.0
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
        "ALTER TABLE runs ADD COLUMN x TEXT GENERATED ALWAYS AS (hex(zeroblob(400000000)))",
        "CREATE VIRTUAL TABLE t USING fts5(content)",
    ],
)
def test_a_journal_that_changes_by_itself_what_is_written_is_refused(
    place: Place, statement: str
) -> None:
    damage(place, statement)

    with pytest.raises(JournalError), closing(Journal(place)) as journal:
        journal.story("calm-otter")
    damage(place, "PRAGMA user_version = 0")  # as one that was never made
    with pytest.raises(JournalError), closing(Journal(place)) as journal:
        journal.story("calm-otter")


def test_a_computed_value_does_not_fill_the_memory(place: Place) -> None:
    """A journal of 53 KB took 6.7 GB; with the column's table in place of ours, and its rows."""
    wanted = "CREATE TABLE runs (command TEXT NOT NULL GENERATED ALWAYS AS (hex(zeroblob(4e8))))"
    with closing(sqlite3.connect(place.database)) as connection:
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'runs'", (wanted,))
        connection.commit()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(JournalError), closing(Journal(place)) as journal:
        journal.runs()

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_a_journal_in_another_encoding_is_refused(place: Place) -> None:
    with closing(sqlite3.connect(place.database)) as ours:
        dump = list(ours.iterdump())
    place.database.unlink()
    with closing(sqlite3.connect(place.database)) as other:
        other.execute("PRAGMA encoding = 'UTF-16'")
        other.executescript("\n".join(dump))
        other.execute("PRAGMA user_version = 1")

    with pytest.raises(JournalError), closing(Journal(place)) as journal:
        journal.runs()


def test_what_a_later_version_may_add_reads_as_unknown(place: Place) -> None:
    for column in ("attempts SET outcome", "runs SET outcome", "intents SET kind"):
        damage(place, f"UPDATE {column} = ?", "abducted")
    damage(place, "UPDATE incidents SET verdict = ?", "abducted")
    blame = json.dumps({"version": 1, "value": {"sign": "abducted", "why": "", "ranks": []}})
    damage(place, "UPDATE incidents SET blame = ?", blame)
    change(place.database, "attempts", "strategy", levitate=True)
    change(place.database, "failures", "failure", mood="bad")

    with closing(Journal(place)) as journal:
        story = journal.story("calm-otter")

    assert story.run.outcome is RunOutcome.OTHER
    assert [attempt.outcome for attempt in story.attempts] == [Outcome.OTHER]
    assert [intent.kind for intent in story.intents] == [IntentKind.OTHER]
    assert [(each.verdict, each.blame) for each in story.incidents] == [(RunState.OTHER, None)]
    assert [attempt.strategy for attempt in story.attempts] == [Strategy()]
    assert [each.failure.kind for each in story.failures] == ["gpu-hang"]


def test_a_failure_that_cannot_be_read_is_unknown(place: Place) -> None:
    change(place.database, "failures", "failure", certainty=7)

    with closing(Journal(place)) as journal:
        (failed,) = journal.story("calm-otter").failures

    assert failed.failure.kind == "unknown"


def test_what_a_later_version_may_remember_reads_as_unknown(place: Place) -> None:
    memory = Memory(place)
    memory.observed("m", Observation(probe="p", outcome=ProbeOutcome.OK, tries=1, seconds=0.0))
    memory.killed(Deadly(machine="m", script="s", strategy=Strategy(workers=0), command="", at=1.0))
    memory.close()
    change(place.memory, "observations", "observation", outcome="abducted")
    change(place.memory, "deadly", "strategy", workers="many")

    assert [each.outcome for each in memory.observations("m")] == [ProbeOutcome.NOT_RUN]
    assert [each.strategy for each in memory.deadly("m", "s")] == [Strategy()]
