from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocsteady.errors import JournalError
from rocsteady.model import (
    Blame,
    Fingerprint,
    IntentKind,
    Outcome,
    RankRecord,
    RunOutcome,
    RunState,
    Sign,
    Strategy,
    WaitsFor,
)
from rocsteady.printable import printable, printable_json
from rocsteady.store.forecast import totals
from rocsteady.store.identity import is_supervisor, this_process
from rocsteady.store.journal import Journal
from rocsteady.store.location import Place, find_place
from rocsteady.store.values import (
    AttemptCost,
    AttemptRecord,
    Incident,
    MessageRecord,
    NamedFailure,
    Run,
    RunRecord,
    Sample,
)
from tests.values import decided, failure

OpenJournal = Callable[..., Journal]
COMMAND = ("python", "train.py")
linux = pytest.mark.skipif(sys.platform != "linux", reason="births of processes are from /proc")
FAILURE = failure(
    "oom-device",
    fingerprint=Fingerprint(kind="oom-device", place="train.py:3"),
    seen=("HIP out of memory",),
)


def begin(journal: Journal, name: str | None = None) -> Run:
    return journal.begin_run(COMMAND, job={"command": COMMAND}, strategy=Strategy(), name=name)


def attempt(run: int, number: int, started: float, **options: object) -> AttemptRecord:
    fields = {
        "run": run,
        "number": number,
        "strategy": Strategy(),
        "boot_id": "b",
        "started": started,
    }
    return AttemptRecord(**{**fields, **options})  # type: ignore[arg-type] # as the test says


def train(journal: Journal, run: int, number: int, start: float, steps: range) -> None:
    for second, step in enumerate(steps):
        look = Sample(at=start + second, step=step, verdict=RunState.HEALTHY, quiet=0.0, total=500)
        journal.progressed(run, number, look)


def test_a_run_has_a_name_and_a_private_folder(journal: Journal, place: Place) -> None:
    first, second = begin(journal), begin(journal, "calm-otter")

    assert first.name.count("-") == 1
    assert first.folder == str(place.folder / "runs" / first.name)
    assert second.name == "calm-otter"
    assert Path(second.folder).is_dir()
    if os.name == "posix":
        assert Path(second.folder).stat().st_mode & 0o777 == 0o700


def test_failures_and_what_an_intent_was_for_come_back(journal: Journal) -> None:
    run = begin(journal, "calm-otter")
    named = NamedFailure(run=run.id, attempt=1, failure=FAILURE, evidence="/e", at=1.0)
    journal.record(named)
    journal.record(attempt(run.id, 1, 1.0))
    journal.intend(IntentKind.START, "python", run=run.id, attempt=1)
    journal.flush()
    (left,) = journal.unfinished()

    found = journal.attempt_of(left)
    assert found is not None
    assert (found[0].name, found[1].number) == ("calm-otter", 1)
    assert journal.story("calm-otter").failures == (named,)


def test_a_name_is_checked_and_taken_once(journal: Journal) -> None:
    begin(journal, "calm-otter")

    with pytest.raises(JournalError, match="there is a run 'calm-otter' already"):
        begin(journal, "calm-otter")
    with pytest.raises(JournalError, match="is not a name"):
        begin(journal, "../../etc")


def test_the_story_of_a_run_comes_back_as_it_was_written(open_journal: OpenJournal) -> None:
    journal = open_journal(clock=lambda: 1000.0)
    run = begin(journal, "calm-otter")
    first = attempt(run.id, 1, 1000.0, ended=1200.0, signal=9, outcome=Outcome.HUNG, first_step=0,
                    last_step=100)  # fmt: skip
    second = attempt(
        run.id,
        2,
        1201.0,
        ended=1400.0,
        exit_code=0,
        outcome=Outcome.BY_ITSELF,
        first_step=80,
        last_step=150,
    )
    incident = Incident(
        run=run.id, attempt=1, number=1, verdict=RunState.HUNG, why="no step for 9 s",
        place="dataset.py:88 __getitem__", quiet=9.5, evidence="incident-1", at=1190.0,
        blame=Blame(
            sign=Sign.WAIT, why="rank 1 is waiting for a lock", number=1, compared=2,
            ranks=(RankRecord(rank=1, step=100, waits_for=WaitsFor.LOCK),),
        ),
    )  # fmt: skip
    decision = decided("retry", "a first", at=1200.0, strategy=Strategy(workers=0), wait=5.0)
    message = MessageRecord(run=run.id, text="attempt 2, from step 80", at=1201.0)

    journal.record(attempt(run.id, 1, 1000.0))
    train(journal, run.id, 1, 1000.0, range(101))
    journal.record(incident)
    journal.record(first)
    journal.record(decision)
    journal.record(message)
    journal.record(second)
    train(journal, run.id, 2, 1211.0, range(80, 151))
    with journal.intend(IntentKind.KILL, "the tree", run=run.id, attempt=2):
        pass
    journal.end_run(run, RunOutcome.DONE)
    journal.flush()
    story = journal.story("calm-otter")

    assert story.run == msgspec.structs.replace(run, ended=1000.0, outcome=RunOutcome.DONE)
    assert story.attempts == (first, second)
    assert story.incidents == (incident,)
    assert story.decisions == (decision,)
    assert story.messages == (message,)
    assert [(intent.kind, intent.outcome) for intent in story.intents] == [
        (IntentKind.KILL, "done")
    ]
    assert story.progress[-1].last_step == 150
    (loss,) = story.losses  # from 1100, the last step, to 1212, the first new one
    assert loss == AttemptCost(attempt=1, idle=112.0, steps_redone=20, redoing=loss.redoing)
    assert loss.redoing == pytest.approx(20, rel=0.02)
    assert story.seconds_lost == loss.idle + loss.redoing
    assert msgspec.json.decode(msgspec.json.encode(story), type=RunRecord) == story


def test_an_attempt_that_ended_before_its_first_step_repeats_nothing(
    open_journal: OpenJournal,
) -> None:
    journal = open_journal(clock=lambda: 1000.0)
    run = begin(journal, "calm-otter")
    journal.record(attempt(run.id, 1, 1000.0, ended=1200.0, first_step=0, last_step=100))
    train(journal, run.id, 1, 1000.0, range(101))
    journal.record(attempt(run.id, 2, 1201.0, ended=1210.0, first_step=None, last_step=100))
    train(journal, run.id, 2, 1201.0, range(0))
    journal.record(attempt(run.id, 3, 1211.0, ended=1300.0, first_step=90, last_step=150))
    train(journal, run.id, 3, 1211.0, range(90, 151))
    journal.flush()

    losses = journal.story("calm-otter").losses
    assert [loss.steps_redone for loss in losses] == [10, 0]
    assert [loss.idle for loss in losses] == [110.0, 2.0]  # from 1100 to 1210, and to 1212


@linux
def test_the_list_of_runs_has_step_rate_and_time_left(open_journal: OpenJournal) -> None:
    journal = open_journal()
    run = begin(journal, "calm-otter")
    train(journal, run.id, 1, 6000.0, range(301))
    journal.record(attempt(run.id, 1, 6000.0))
    begin(journal, "bold-lynx")
    journal.flush()
    journal.close()

    newest, line = open_journal(clock=lambda: 6301.0).runs()

    assert newest.run.name == "bold-lynx"
    assert (newest.step, newest.rate, newest.alive) == (None, None, True)
    assert (line.step, line.total, line.attempts, line.incidents) == (300, 500, 1, 0)
    assert line.rate == pytest.approx(1.0, rel=0.01)
    assert line.seconds_left == pytest.approx(200, rel=0.01)
    assert line.last_progress == 6300.0


def test_a_total_that_the_steps_exceed_is_dropped(open_journal: OpenJournal) -> None:
    journal = open_journal(clock=lambda: 6600.0)
    run = begin(journal, "calm-otter")
    train(journal, run.id, 1, 6000.0, range(501))
    for second in range(501, 600):
        look = Sample(at=6000.0 + second, step=second, verdict=RunState.HEALTHY, quiet=0.0)
        journal.progressed(run.id, 1, look)
    journal.flush()

    (line,) = journal.runs()

    assert (line.step, line.total, line.seconds_left) == (599, None, None)
    assert totals(journal.story("calm-otter").progress) is None


@linux
def test_a_run_whose_supervisor_is_gone_is_not_alive_and_can_be_taken_over(
    open_journal: OpenJournal,
) -> None:
    here = this_process()
    space = here.process.partition(":")[0]
    dead = msgspec.structs.replace(here, process=f"{space}:4194000:1")
    begin(open_journal(here=dead), "calm-otter")
    rebooted = msgspec.structs.replace(here, boot_id="before")
    begin(open_journal(here=rebooted), "bold-lynx")
    journal = open_journal(here=here)

    assert [line.alive for line in journal.runs()] == [False, False]
    taken = journal.take_over("calm-otter")
    assert taken.process == here.process
    assert {line.run.name: line.alive for line in journal.runs()} == {
        "calm-otter": True,
        "bold-lynx": False,
    }


def test_a_command_comes_back_to_the_byte_and_is_shown_well_formed(journal: Journal) -> None:
    odd = os.fsdecode(b"caf\xe9.py")
    command = ("python", odd, "--text", "a\nb", "")
    journal.begin_run(command, job={"command": command}, strategy=Strategy(), name="odd-bytes")

    assert journal.orders("odd-bytes").run.command == command
    shown = journal.story("odd-bytes").run
    assert shown.command[1] != odd
    if os.name == "posix":
        assert msgspec.json.encode(shown.command)


def test_nothing_was_run_here_yet_is_an_answer(journal: Journal) -> None:
    assert journal.runs() == ()
    assert journal.unfinished() == ()
    with pytest.raises(JournalError, match="nothing was run here yet"):
        journal.story("calm-otter")
    begin(journal)
    with pytest.raises(JournalError, match="no run 'calm-otter'"):
        journal.story("calm-otter")


def test_reading_a_broken_journal_is_one_sentence(journal: Journal, place: Place) -> None:
    place.database.write_bytes(b"not a database" * 500)

    with pytest.raises(JournalError, match="not a database"):
        journal.runs()


def test_a_row_that_was_tampered_with_is_an_error_and_not_a_crash(
    journal: Journal, place: Place
) -> None:
    begin(journal, "calm-otter")
    other = sqlite3.connect(place.database)
    for column in (
        "[]",
        "{",
        '{"version": 2, "value": []}',
        '{"version": 1, "value": 5}',
        "[" * 99999,
    ):
        other.execute("UPDATE runs SET command = ?", (column,))
        other.commit()
        with pytest.raises(JournalError, match=r"damaged|another version"):
            journal.story("calm-otter")
    other.close()


def test_two_journals_in_one_process_lose_nothing(open_journal: OpenJournal) -> None:
    journals = [open_journal() for _ in range(3)]
    runs = [begin(journal) for journal in journals]
    for number in range(1, 51):
        for journal, run in zip(journals, runs, strict=True):
            journal.record(attempt(run.id, number, 0.0))
    for journal in journals:
        journal.flush()

    assert [line.attempts for line in journals[0].runs()] == [50, 50, 50]


def test_without_a_write_ahead_log_it_works_as_well(place: Place) -> None:
    journal = Journal(msgspec.structs.replace(place, wal=False))
    begin(journal, "calm-otter")
    journal.close()

    connection = sqlite3.connect(place.database)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(st.characters(codec=None), max_size=5000))
def test_any_text_can_be_said(journal: Journal, text: str) -> None:
    run = begin(journal)

    journal.record(MessageRecord(run=run.id, text=text, at=0.0))
    journal.flush()

    (message,) = journal.story(run.name).messages
    assert len(message.text) <= 4000
    assert message.text[:3000] == text.encode("utf-8", "replace").decode()[:3000]
    assert journal.losses.refused == 0


def test_a_journal_that_another_process_is_just_making_has_no_runs_yet(tmp_path: Path) -> None:
    place = find_place(tmp_path, state=tmp_path / "state")
    sqlite3.connect(place.database).close()
    place.database.touch()

    journal = Journal(place)

    assert journal.runs() == ()
    assert journal.unfinished() == ()
    journal.close()


def test_a_run_is_where_its_last_attempt_is(journal: Journal) -> None:
    run = begin(journal, "calm-otter")
    train(journal, run.id, 1, 1000.0, range(100, 110))
    train(journal, run.id, 2, 1012.0, range(100, 105))
    journal.end_run(run, RunOutcome.DONE)
    journal.flush()

    (line,) = journal.runs()
    assert line.step == 104


@pytest.mark.parametrize(
    ("now", "verdict", "stalled", "rate"),
    [
        (1125.0, RunState.HEALTHY, False, 1.0),
        (1140.0, RunState.HEALTHY, True, 0.33),
        (1115.0, RunState.SLOW, True, 0.75),
        (1300.0, RunState.HEALTHY, True, 0.0),
    ],
)
def test_a_run_that_makes_no_progress_is_stalled_and_has_no_end(
    open_journal: OpenJournal, now: float, verdict: RunState, *, stalled: bool, rate: float
) -> None:
    journal = open_journal(clock=lambda: now)
    run = begin(journal)
    train(journal, run.id, 1, 1000.0, range(101))
    for at in range(1105, int(now), 5):
        look = Sample(at=float(at), step=100, verdict=verdict, quiet=at - 1100.0, total=500)
        journal.progressed(run.id, 1, look)
    journal.flush()

    (line,) = journal.runs()

    assert line.stalled is stalled
    assert line.rate == pytest.approx(rate, abs=0.1)
    assert (line.seconds_left is None) == stalled


def test_what_was_seen_last_is_there_after_a_flush(journal: Journal) -> None:
    """A run reads what its failures cost before its last steps would be written."""
    run = begin(journal)
    for hundredths in (0, 10, 20):
        look = Sample(
            at=1000.0 + hundredths / 100, step=hundredths, verdict=RunState.HEALTHY, quiet=0.0
        )
        journal.progressed(run.id, 1, look)
    journal.flush()

    assert journal.story(run.name).progress[-1].last_step == 20


@linux
def test_a_second_run_with_the_same_command_is_refused_and_the_first_is_named(
    open_journal: OpenJournal,
) -> None:
    first, second = open_journal(), open_journal()
    begun = begin(first, "calm-otter")
    other = this_process()
    ours = msgspec.structs.replace(other, process=f"{other.process}0")  # as of another process
    second.here = ours

    with pytest.raises(JournalError, match="run calm-otter with the same command is running"):
        second.begin_run(COMMAND, job={}, strategy=Strategy(), alone=True)
    second.begin_run((*COMMAND, "--small"), job={}, strategy=Strategy(), alone=True)
    second.begin_run(COMMAND, job={}, strategy=Strategy())
    first.end_run(begun, RunOutcome.DONE)
    first.flush()
    second.begin_run(COMMAND, job={}, strategy=Strategy(), alone=True)


def test_a_run_that_has_made_all_its_steps_or_starts_again_is_not_stalled(
    open_journal: OpenJournal,
) -> None:
    journal = open_journal(clock=lambda: 9000.0)
    done, again = begin(journal), begin(journal)
    train(journal, done.id, 1, 1000.0, range(501))
    train(journal, again.id, 1, 1000.0, range(101))
    hung = Sample(at=1110.0, step=100, verdict=RunState.HUNG, quiet=10.0, total=500)
    journal.progressed(again.id, 1, hung)  # which is why it starts again
    look = Sample(at=8990.0, step=0, verdict=RunState.STARTING, quiet=0.0, total=500)
    journal.progressed(again.id, 2, look)
    journal.flush()

    assert [line.stalled for line in journal.runs()] == [False, False]


def test_a_run_that_ended_on_a_full_disk_has_ended(
    open_journal: OpenJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    journal = open_journal()
    run = journal.begin_run(COMMAND, job={}, strategy=Strategy(), name="calm-otter")
    journal._writer.now(
        lambda full: full.execute("PRAGMA max_page_count = 1"), timedelta(seconds=9)
    )
    for _ in range(20):
        journal.record(MessageRecord(run=run.id, text="x" * 4000, at=1.0))
    journal.end_run(run, RunOutcome.DONE)
    written = journal.close()

    later = open_journal()
    (line,), story = later.runs(), later.story("calm-otter")
    assert (written, line.run.outcome, story.run.outcome) == (False, *[RunOutcome.DONE] * 2)
    assert story.unrecorded_since == run.started


def test_what_is_agreed_to_is_what_was_read(journal: Journal, place: Place) -> None:
    """The journal may change while a person reads the question."""
    run = journal.begin_run(("python", "t.py"), job={}, strategy=Strategy())
    journal.flush()

    def edited(command: str) -> None:
        with contextlib.closing(sqlite3.connect(place.database)) as connection, connection:
            connection.execute("UPDATE runs SET command = ?", (command,))

    edited('{"version":1,"value":["python","other.py"]}')
    read = journal.orders(run.name)
    assert not read.chosen
    edited('{"version":1,"value":["curl","evil"]}')
    journal.agree(read)

    assert not journal.orders(run.name).chosen
    edited('{"version":1,"value":["python","other.py"]}')
    assert journal.orders(run.name).chosen


HOLDS = "import time; held = open('journal.db'); open('ready', 'w'); time.sleep(60)"


@pytest.mark.skipif(sys.platform == "win32", reason="no /proc there")
@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (("-P", "-m", "rocsteady", "run"), True),
        (("bin/rocsteady", "run"), True),
        (("sleep.py", "rocsteady", "run"), False),
        (("-c", HOLDS, "rocsteady"), False),
    ],
)
def test_only_the_program_itself_makes_a_supervisor(
    tmp_path: Path, words: tuple[str, ...], *, ours: bool
) -> None:
    """A journal can name any process; `stop` must not end `tail -f rocsteady`."""
    for name in ("rocsteady.py", "sleep.py", "bin/rocsteady"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(HOLDS)
    journal = tmp_path / "journal.db"
    for path in (journal, tmp_path / "another.db"):
        path.touch()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = (sys.executable, *words)
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as process:
        try:
            while not (tmp_path / "ready").exists():
                time.sleep(0.05)
            assert is_supervisor(process.pid, journal) is ours
            assert not is_supervisor(process.pid, tmp_path / "another.db")
        finally:
            process.kill()


def test_what_cannot_be_seen_is_written_out() -> None:
    blank = "\u3164\u115f\uffa0\u2800\U000e0101"
    assert printable(f"rm{blank} x\ufe0f") == r"rm\u3164\u115f\uffa0\u2800\U000e0101 x\ufe0f"
    assert printable("⚠\ufe0f caf\xe9") == "⚠\ufe0f caf\xe9"  # an emoji in color
    assert json.loads(printable_json(json.dumps(blank, ensure_ascii=False))) == blank
