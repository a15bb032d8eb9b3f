from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from rocsteady.errors import NotRecordedError
from rocsteady.model import IntentKind
from rocsteady.store.identity import Identity, is_alive, this_process
from rocsteady.store.journal import Journal, fate
from rocsteady.store.location import Place
from rocsteady.store.values import Fate, Intent
from rocsteady.system.disk_root import DiskRoot

OpenJournal = Callable[..., Journal]
linux = pytest.mark.skipif(sys.platform != "linux", reason="boots and births are from /proc")


def rows(place: Place, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(place.database)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_an_intent_is_on_disk_before_the_deed(journal: Journal, place: Place) -> None:
    with journal.intend(IntentKind.KILL, "the tree of 4711", run=1, attempt=2):
        seen = rows(place, "SELECT kind, what, run, attempt, outcome FROM intents")

    assert seen == [("kill", "the tree of 4711", 1, 2, None)]
    assert rows(place, "SELECT outcome FROM intents") == [("done",)]


def test_a_deed_that_fails_says_how_and_its_own_word_comes_first(
    journal: Journal, place: Place
) -> None:
    with pytest.raises(ValueError, match="no"), journal.intend(IntentKind.PROBE, "matmul"):
        raise ValueError("no")
    with journal.intend(IntentKind.PROBE, "attention") as intent:
        intent.end("hung")

    assert rows(place, "SELECT outcome FROM intents ORDER BY id") == [
        ("failed: ValueError: no",),
        ("hung",),
    ]


def test_when_the_journal_cannot_be_written_the_deed_is_not_done(
    open_journal: OpenJournal, place: Place
) -> None:
    journal = open_journal(intend_within=timedelta(milliseconds=300))
    journal.flush()
    other = sqlite3.connect(place.database, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    done = False

    with (
        pytest.raises(NotRecordedError, match=r"within 0\.3 s"),
        journal.intend(IntentKind.KILL, "the tree"),
    ):
        done = True
    other.execute("ROLLBACK")
    other.close()

    assert not done
    journal.flush()
    assert journal.unfinished() == ()


def test_an_intent_that_came_too_late_is_written_as_not_done(
    open_journal: OpenJournal, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = open_journal(intend_within=timedelta(milliseconds=200))
    journal.flush()

    def slowly(folder: object) -> None:
        del folder
        time.sleep(0.5)  # after COMMIT, before anyone is told

    with monkeypatch.context() as patch:
        patch.setattr("rocsteady.store.writer.sync_folder", slowly)  # a disk this slow is rare
        with pytest.raises(NotRecordedError):
            journal.intend(IntentKind.KILL, "the tree")
    journal.flush()

    assert rows(place, "SELECT outcome FROM intents") == [
        ("not done: the journal's disk was too slow",)
    ]


@linux
def test_an_intent_of_another_boot_took_the_machine_down(open_journal: OpenJournal) -> None:
    here = this_process()
    before = open_journal(here=replace(here, boot_id="the boot before"))
    intent = before.intend(IntentKind.START, "attempt 1 with HSA_OVERRIDE_GFX_VERSION=10.3.0")
    before.close()

    after = open_journal(here=here)
    (found,) = after.unfinished()

    assert (found.id, found.fate) == (intent.number, Fate.MACHINE_WENT_DOWN)
    after.settle(found, "the machine went down")
    assert after.unfinished() == ()


@linux
def test_an_intent_of_a_process_that_lives_is_under_way_until_it_dies(
    open_journal: OpenJournal,
) -> None:
    here = this_process()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        space = here.process.partition(":")[0]
        with open(f"/proc/{child.pid}/stat", encoding="utf-8") as stream:  # noqa: PTH123 - as short
            birth = stream.read().rpartition(")")[2].split()[19]
        process = f"{space}:{child.pid}:{birth}"
        open_journal(here=replace(here, process=process)).intend(IntentKind.START, "attempt 1")
        journal = open_journal(here=here)

        assert [found.fate for found in journal.unfinished()] == [Fate.UNDER_WAY]
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # now a zombie
        assert [found.fate for found in journal.unfinished()] == [Fate.KILLED]


def test_what_cannot_be_known_is_not_guessed() -> None:
    here = Identity(machine="m", boot_id="b", process="1:2:3")
    intent = Intent(
        id=1, run=None, attempt=None, kind=IntentKind.START, what="w",
        machine="m", boot_id="b", process="1:2:3", at=0.0,
    )  # fmt: skip

    assert fate(intent, here) is Fate.UNDER_WAY
    assert fate(replace(intent, boot_id=""), here) is Fate.UNKNOWN  # Windows
    assert fate(replace(intent, boot_id="c", machine="n"), here) is Fate.UNKNOWN  # a shared home
    assert fate(replace(intent, boot_id="c"), here) is Fate.MACHINE_WENT_DOWN
    assert fate(replace(intent, process="9:2:3"), here) is Fate.UNKNOWN  # another container
    assert is_alive("nonsense") is None


def test_a_root_without_processes_says_nothing_of_them(tmp_path: Path) -> None:
    """A run on a recorded machine must not take others for dead, and remove what is theirs."""
    (tmp_path / "proc").mkdir()

    assert is_alive(this_process().process) is True
    assert is_alive(this_process().process, DiskRoot(tmp_path)) is None


def test_an_open_intent_of_our_own_is_under_way(journal: Journal) -> None:
    intent = journal.intend(IntentKind.START, "attempt 1")

    (found,) = journal.unfinished()

    assert found.fate in (Fate.UNDER_WAY, Fate.UNKNOWN)  # unknown on Windows
    intent.end()
    assert journal.unfinished() == ()
