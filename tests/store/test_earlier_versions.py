"""Journals of earlier versions stay readable, and newer ones do not break this one.

``format_4`` holds a journal and a machine's memory from real runs, written on 17 November 2026 by
the last version that kept strategies, failures and observations as dicts: a hang in a loader that
three remedies answered, an error in a script, a crash of the machine, probes, and trials of a plan.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from rocsteady.model import (
    Certainty,
    IntentKind,
    Outcome,
    ProbeOutcome,
    RunOutcome,
    RunState,
    Strategy,
)
from rocsteady.store.journal import Journal
from rocsteady.store.location import Place
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import Fate

WRITTEN = Path(__file__).parent / "format_4"
MACHINE = "0123456789abcdef0123456789abcdef"
SCRIPT = "638d19c6c8e35c5ed4ef6b146fe69b64"
CRASHED = "e40795828847f0facae0981a4664c7c3"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for name in ("journal", "memory"):
        database = sqlite3.connect(tmp_path / f"{name}.db")
        database.executescript((WRITTEN / f"{name}.sql").read_text(encoding="utf-8"))
        database.close()
    return Place(
        folder=tmp_path,
        database=tmp_path / "journal.db",
        wal=False,
        memory=tmp_path / "memory.db",
        memory_writable=True,
    )


def change(path: Path | None, table: str, name: str, **fields: object) -> None:
    """Change a JSON column as a newer version might write it."""
    assert path is not None
    database = sqlite3.connect(path)
    rows = database.execute(f"SELECT DISTINCT {name} FROM {table}").fetchall()  # noqa: S608 - ours
    for (text,) in rows:
        content = json.loads(text)
        content["value"] |= fields
        statement = f"UPDATE {table} SET {name} = ? WHERE {name} = ?"  # noqa: S608 - ours
        database.execute(statement, (json.dumps(content), text))
    database.commit()
    database.close()


def test_every_record_of_a_run_that_hung_is_read(journal: Journal) -> None:
    story = journal.story("calm-otter")

    assert story.run.outcome is RunOutcome.DONE
    assert [attempt.strategy for attempt in story.attempts] == [
        Strategy(),
        Strategy(),
        Strategy(worker_context="forkserver"),
        Strategy(workers=0),
        Strategy(workers=0),
    ]
    assert [attempt.outcome for attempt in story.attempts] == [
        *[Outcome.HUNG] * 3,
        Outcome.STOPPED,
        Outcome.BY_ITSELF,
    ]
    assert {failed.failure.kind for failed in story.failures} == {"hang-in-loader"}
    assert story.failures[0].failure.fingerprint.place
    assert [incident.verdict for incident in story.incidents] == [RunState.HUNG] * 3
    assert [decision.what for decision in story.decisions if not decision.ends] == [
        "retry",
        "loader-forkserver",
        "loader-inline",
    ]
    assert {intent.kind for intent in story.intents} == {IntentKind.START, IntentKind.KILL}
    assert {RunState.HEALTHY, RunState.HUNG} <= {
        state for bucket in story.progress for state in bucket.seconds_as
    }
    assert len(story.messages) > 10


def test_an_error_in_a_script_and_a_crash_of_the_machine_are_read(journal: Journal) -> None:
    (failed,) = journal.story("ruby-bear").failures
    crashed = journal.story("cold-fox")

    assert (failed.failure.kind, failed.failure.certainty) == ("script-error", Certainty.CERTAIN)
    assert "KeyError" in failed.failure.traceback
    assert [attempt.outcome for attempt in crashed.attempts] == [Outcome.NONE, Outcome.BY_ITSELF]
    assert crashed.intents[0].outcome == Fate.MACHINE_WENT_DOWN.value
    assert [line.run.name for line in journal.runs()] == ["cold-fox", "ruby-bear", "calm-otter"]


def test_what_a_machine_remembers_is_read(place: Place) -> None:
    memory = Memory(place)

    seen = {(each.probe, each.variant): each.outcome for each in memory.observations(MACHINE)}

    assert len(seen) == 12
    assert seen["matmul-gradient", "bf16"] is ProbeOutcome.OK
    assert seen["trial", "cpu"] is ProbeOutcome.HANG
    assert [each.strategy for each in memory.deadly(MACHINE, CRASHED)] == [Strategy()]
    assert [each.kind for each in memory.takedowns(MACHINE)] == [IntentKind.START]
    assert [each.remedy for each in memory.what_helped(MACHINE, SCRIPT)] == ["loader-inline"]
    learned = memory.learned(SCRIPT, MACHINE)
    assert learned is not None
    assert "backward" in learned.phases
    memory.close()


def test_what_is_new_in_a_later_version_reads_as_unknown(journal: Journal, place: Place) -> None:
    database = sqlite3.connect(place.database)
    database.execute("UPDATE attempts SET outcome = 'abducted'")
    database.execute("UPDATE runs SET outcome = 'abducted'")
    database.execute("UPDATE intents SET kind = 'abduct'")
    database.execute("UPDATE incidents SET verdict = 'abducted'")
    blame = json.dumps({"version": 1, "value": {"sign": "abducted", "why": "", "ranks": []}})
    database.execute("UPDATE incidents SET blame = ?", (blame,))
    database.commit()
    database.close()
    change(place.database, "attempts", "strategy", levitate=True)
    change(place.database, "failures", "failure", mood="bad")
    change(place.memory, "observations", "observation", outcome="abducted")
    change(place.memory, "deadly", "strategy", workers="many")

    story, memory = journal.story("calm-otter"), Memory(place)

    assert story.run.outcome is RunOutcome.OTHER
    assert {attempt.outcome for attempt in story.attempts} == {Outcome.OTHER}
    assert {intent.kind for intent in story.intents} == {IntentKind.OTHER}
    assert {incident.verdict for incident in story.incidents} == {RunState.OTHER}
    assert {incident.blame for incident in story.incidents} == {None}
    assert story.attempts[2].strategy == Strategy(worker_context="forkserver")
    assert {failed.failure.kind for failed in story.failures} == {"hang-in-loader"}
    assert {each.outcome for each in memory.observations(MACHINE)} == {ProbeOutcome.NOT_RUN}
    assert [each.strategy for each in memory.deadly(MACHINE, CRASHED)] == [Strategy()]
    memory.close()


def test_a_failure_that_cannot_be_read_is_unknown(journal: Journal, place: Place) -> None:
    change(place.database, "failures", "failure", certainty=7)

    story = journal.story("calm-otter")

    assert {failed.failure.kind for failed in story.failures} == {"unknown"}
