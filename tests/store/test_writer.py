from __future__ import annotations

import functools
import sqlite3
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from rocsteady.errors import NotRecordedError
from rocsteady.store import database
from rocsteady.store.database import Work, put
from rocsteady.store.values import MessageRecord, UnwrittenEntries
from rocsteady.store.writer import JournalWriter

BUSY = timedelta(milliseconds=50)


def message(number: int) -> Work:
    return put(MessageRecord(text=str(number), at=0.0))


def texts(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return [text for (text,) in connection.execute("SELECT text FROM messages ORDER BY id")]
    finally:
        connection.close()


class Disk:
    """A database whose opening waits until it is let go, as a disk that hangs does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers = threading.Event()
        self.trouble: Exception | None = None

    def connect(self, *, doubtful: bool) -> sqlite3.Connection:
        self.answers.wait(20)
        if self.trouble:
            raise self.trouble
        return database.connect(self.path, database.JOURNAL, wal=True, busy=BUSY, doubtful=doubtful)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "journal.db")


def loss_entry(number: int, why: str) -> Work:
    return put(MessageRecord(text=f"{number} lost: {why}", at=0.0))


def test_a_disk_that_hangs_makes_nobody_wait_and_costs_the_oldest(disk: Disk) -> None:
    writer = JournalWriter(
        disk.connect, disk.path.parent, limit=100, linger=timedelta(0), loss_entry=loss_entry
    )
    writer.put(message(-1))
    time.sleep(0.1)  # it is now with the disk
    start = time.monotonic()

    for number in range(10_000):
        writer.put(message(number))

    assert time.monotonic() - start < 1
    assert writer.losses == UnwrittenEntries(dropped=9_900, waiting=100)
    disk.answers.set()
    assert writer.close(timedelta(seconds=5))
    kept = texts(disk.path)
    assert kept[0] == "-1"
    assert [text for text in kept if text.isdigit()] == [str(n) for n in range(9_900, 10_000)]
    assert "9900 lost: " in kept


def test_closing_over_a_disk_that_hangs_is_bounded(disk: Disk) -> None:
    writer = JournalWriter(disk.connect, disk.path.parent)
    writer.put(message(1))
    start = time.monotonic()

    assert not writer.close(timedelta(milliseconds=300))
    assert time.monotonic() - start < 1
    disk.answers.set()
    writer.close(timedelta(seconds=5))


def test_a_full_disk_keeps_entries_until_there_is_room(disk: Disk) -> None:
    disk.answers.set()
    disk.trouble = sqlite3.OperationalError("database or disk is full")
    writer = JournalWriter(disk.connect, disk.path.parent, linger=timedelta(0))
    writer.put(message(1))
    with pytest.raises(NotRecordedError, match="disk is full"):
        writer.now(lambda _: None, timedelta(seconds=5))

    assert writer.losses == UnwrittenEntries(waiting=1, why="database or disk is full")
    disk.trouble = None
    assert writer.now(lambda _: 7, timedelta(seconds=5)) == 7
    assert writer.close(timedelta(seconds=5))
    assert texts(disk.path) == ["1"]


def test_a_database_that_fills_up_in_earnest_says_so_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    full = True

    def connect(*, doubtful: bool) -> sqlite3.Connection:
        connection = database.connect(
            path, database.JOURNAL, wal=True, busy=BUSY, doubtful=doubtful
        )
        if full:
            connection.execute("PRAGMA max_page_count = 1")  # SQLite's own "disk is full"
        return connection

    writer = JournalWriter(connect, tmp_path, linger=timedelta(0))
    for number in range(200):
        writer.put(put(MessageRecord(text=str(number) * 500, at=0.0)))
    with pytest.raises(NotRecordedError, match="full"):
        writer.now(message(0), timedelta(seconds=5))
    full = False
    writer.now(lambda _: None, timedelta(seconds=5))

    assert writer.close(timedelta(seconds=5))
    assert len({text for text in texts(path) if len(text) > 1}) == 200


def test_an_entry_that_no_database_takes_is_counted_and_costs_no_other(disk: Disk) -> None:
    disk.answers.set()
    writer = JournalWriter(disk.connect, disk.path.parent)
    writer.put(message(1))
    writer.put(lambda connection: connection.execute("INSERT INTO messages VALUES (1, 2)"))
    writer.put(lambda connection: connection.execute("SELECT ?", (1 << 70,)))
    writer.put(lambda _: 1 / 0)
    writer.put(message(2))

    assert writer.close(timedelta(seconds=5))
    assert texts(disk.path) == ["1", "2"]
    assert writer.losses.refused == 3


def test_a_database_that_breaks_is_set_aside_and_a_new_one_is_begun(disk: Disk) -> None:
    disk.answers.set()
    disk.path.write_bytes(b"this is not a database, but it is as long as one might be" * 100)
    writer = JournalWriter(disk.connect, disk.path.parent)
    writer.put(message(1))

    assert writer.close(timedelta(seconds=5))
    assert texts(disk.path) == ["1"]
    assert disk.path.with_name("journal.db.broken-1").exists()


def test_damage_found_while_writing_is_set_aside_too(disk: Disk) -> None:
    disk.answers.set()
    first = JournalWriter(disk.connect, disk.path.parent)
    for number in range(3000):
        first.put(put(MessageRecord(text=str(number) * 100, at=0.0)))
    assert first.close(timedelta(seconds=10))
    with disk.path.open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"\xff" * 200 * 4096)

    writer = JournalWriter(disk.connect, disk.path.parent, linger=timedelta(0))
    writer.put(message(1))
    deadline = time.monotonic() + 10
    while writer.losses.waiting and time.monotonic() < deadline:
        time.sleep(0.1)

    assert writer.close(timedelta(seconds=5))
    assert texts(disk.path) == ["1"]


def test_a_database_that_only_says_it_is_ours_is_set_aside(disk: Disk) -> None:
    disk.answers.set()
    connection = sqlite3.connect(disk.path)
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    writer = JournalWriter(disk.connect, disk.path.parent)

    writer.now(message(1), timedelta(seconds=5))
    writer.close(timedelta(seconds=5))
    assert texts(disk.path) == ["1"]


def test_after_closing_entries_are_counted_as_lost_and_nobody_waits(disk: Disk) -> None:
    disk.answers.set()
    writer = JournalWriter(disk.connect, disk.path.parent)
    writer.close(timedelta(seconds=5))

    writer.put(message(1))
    with pytest.raises(NotRecordedError, match="closed"):
        writer.now(lambda _: None, timedelta(seconds=5))
    assert writer.losses.dropped == 1


def test_many_threads_may_hand_over_at_once(disk: Disk) -> None:
    disk.answers.set()
    writer = JournalWriter(disk.connect, disk.path.parent)
    hand_over = functools.partial(_hand_over, writer)
    threads = [threading.Thread(target=hand_over, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert writer.close(timedelta(seconds=10))
    assert sorted(map(int, texts(disk.path))) == list(range(800))


def _hand_over(writer: JournalWriter, first: int) -> None:
    for number in range(first * 100, first * 100 + 100):
        writer.put(message(number))
