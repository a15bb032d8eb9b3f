"""One thread that writes. Those who watch hand their entries over and never wait.

A disk may hang or be full for minutes. Entries then queue up to a bound; beyond it the oldest are
dropped and counted. Only one who must know that a thing is on disk waits, with a bound of his own.
A thread stuck in the kernel cannot be ended; it is left behind, and does not hold up our exit.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from rocsteady.errors import JournalError, NotRecordedError
from rocsteady.store.database import Work, is_damage
from rocsteady.store.values import UnwrittenEntries

QUEUE_LIMIT = 4096  # entries
LINGER = timedelta(milliseconds=200)  # for more entries to be written with this one
DISK_RETRY = timedelta(seconds=1)  # after the disk would not have it

T = TypeVar("T")


class Connect(Protocol):
    """How the thread opens its database; doubtful when it was found damaged."""

    def __call__(self, *, doubtful: bool) -> sqlite3.Connection:
        """Open it."""


class _Request(Generic[T]):
    def __init__(
        self, work: Callable[[sqlite3.Connection], T], undo: Callable[[T], Work] | None
    ) -> None:
        self.work, self.undo = work, undo
        self.answered = threading.Event()
        self.abandoned = False
        self.result: T | None = None
        self.trouble = ""

    def __call__(self, connection: sqlite3.Connection) -> None:
        if not self.abandoned:
            self.result = self.work(connection)


class JournalWriter:
    """A queue, and the thread that empties it into a database."""

    def __init__(
        self,
        connect: Connect,
        folder: Path,
        *,
        limit: int = QUEUE_LIMIT,
        linger: timedelta = LINGER,
        loss_entry: Callable[[int, str], Work] | None = None,
    ) -> None:
        self._connect, self._folder = connect, folder
        self._limit, self._linger, self._loss_entry = limit, linger, loss_entry
        self._queue: deque[Work] = deque()
        self._changed = threading.Condition()
        self._requests = 0  # in the queue
        self._closing = False
        self._dropped = self._refused = self._unreported = 0
        self._why = ""
        self.trouble = ""  # why what is written now is lost
        self._connection: sqlite3.Connection | None = None
        self._file = 0  # its inode, once it was written to
        self._doubtful = False
        self._thread = threading.Thread(target=self._run, name="rocsteady-journal", daemon=True)
        self._thread.start()

    @property
    def losses(self) -> UnwrittenEntries:
        with self._changed:
            return UnwrittenEntries(
                dropped=self._dropped,
                refused=self._refused,
                waiting=len(self._queue),
                why=self._why,
            )

    def put(self, work: Work) -> None:
        """Hand over an entry. Never waits."""
        with self._changed:
            if self._closing:
                self._count_dropped(1)
                return
            self._queue.append(work)
            self._shorten()
            self._changed.notify()

    def now(
        self,
        work: Callable[[sqlite3.Connection], T],
        within: timedelta,
        undo: Callable[[T], Work] | None = None,
    ) -> T:
        """Do ``work`` after all that was handed over before, and return when it is on disk.

        If that takes longer than promised it is not done, or undone as soon as that is possible.
        """
        request = _Request(work, undo)
        with self._changed:
            if self._closing:
                raise NotRecordedError("the journal is closed")
            self._queue.append(request)
            self._requests += 1
            self._changed.notify()
        if not request.answered.wait(within.total_seconds()):
            with self._changed:  # the answer may come at this very moment
                if not request.answered.is_set():
                    request.abandoned = True
                    raise NotRecordedError(self._too_late(within))
        if request.trouble:
            raise NotRecordedError(request.trouble)
        return request.result  # type: ignore[return-value] # set before it was answered

    def close(self, within: timedelta) -> bool:
        """Write what is left, for no longer than promised. False: some of it is lost."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(within.total_seconds())
        return not self._thread.is_alive() and not self.losses.waiting

    def _too_late(self, within: timedelta) -> str:
        why = f" ({self._why})" if self._why else ""
        return f"the journal's disk did not answer within {within.total_seconds():g} s{why}"

    def _shorten(self) -> None:
        while len(self._queue) - self._requests > self._limit:
            oldest = next(i for i, work in enumerate(self._queue) if not _is_request(work))
            del self._queue[oldest]
            self._count_dropped(1)

    def _count_dropped(self, number: int) -> None:
        self._dropped += number
        self._unreported += number

    def _run(self) -> None:
        try:
            while batch := self._take():
                if not self._write(batch):
                    with self._changed:
                        if self._closing:
                            break
                        self._changed.wait_for(self._hurry, DISK_RETRY.total_seconds())
        finally:
            if self._connection is not None:
                self._connection.close()

    def _hurry(self) -> bool:
        return self._closing or self._requests > 0

    def _take(self) -> list[Work]:
        """Wait for entries and take them all; none when it is time to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            self._changed.wait_for(self._hurry, self._linger.total_seconds())
            batch = list(self._queue)
            self._queue.clear()
            self._requests = 0
            return batch

    def _write(self, batch: list[Work]) -> bool:
        """Write all of it or nothing, and tell those who wait. False: the disk would not."""
        unreported = self._unreported
        try:
            connection = self._connection or self._connect(doubtful=self._doubtful)
            if self._connection is None:
                self._file = 0
            self._connection, self._doubtful = connection, False
        except (sqlite3.Error, OSError, JournalError) as error:
            return self._keep(batch, error)
        try:
            self._commit(connection, batch, unreported)
        except Exception as error:  # noqa: BLE001 - one bad entry must not end the journal
            return self._keep(batch, error) if _may_pass(error) else self._sift(batch, error)
        with self._changed:
            self._unreported -= unreported
        self.trouble = self._gone(connection)
        self._answer(batch)
        return True

    def _gone(self, connection: sqlite3.Connection) -> str:
        """Return why writes are lost, if the file was deleted or replaced."""
        files = connection.execute("SELECT CAST(file AS BLOB) FROM pragma_database_list")
        path = files.fetchone()[0]  # which need not be UTF-8
        try:
            found = os.stat(path).st_ino  # noqa: PTH116 - on the way of every entry
        except OSError:
            found = 0
        self._file = self._file or found
        return "" if found == self._file else "it was deleted"

    def _commit(self, connection: sqlite3.Connection, batch: list[Work], unreported: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for work in batch:
                work(connection)
            if unreported and self._loss_entry:
                self._loss_entry(unreported, self._why)(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if any(_is_request(work) for work in batch):
            sync_folder(self._folder)

    def _keep(self, batch: list[Work], error: Exception) -> bool:
        """Put back what the disk would not have. Those who wait are told."""
        if isinstance(error, sqlite3.Error) and is_damage(error):
            self._doubtful = True
        if self._connection is not None and "locked" not in str(error):
            self._connection.close()
            self._connection = None
        self._answer(batch, trouble=str(error))
        self.trouble = str(error)
        with self._changed:
            self._why = str(error)
            self._queue.extendleft(work for work in reversed(batch) if not _is_request(work))
            self._shorten()
        return False

    def _sift(self, batch: list[Work], error: Exception) -> bool:
        """Find the entry that the database will never have, and write the rest."""
        if len(batch) > 1:
            written = [self._write([work]) for work in batch]
            return all(written)
        with self._changed:
            self._refused += not _is_request(batch[0])
        self._answer(batch, trouble=str(error))
        return True

    def _answer(self, batch: list[Work], trouble: str = "") -> None:
        for request in batch:
            if not isinstance(request, _Request):
                continue
            with self._changed:
                request.trouble = trouble
                request.answered.set()
                late = request.abandoned and not trouble and request.result is not None
                if late and request.undo:
                    self._queue.appendleft(request.undo(request.result))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system has a way to."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_request(work: Work) -> bool:
    return isinstance(work, _Request)


def _may_pass(error: Exception) -> bool:
    """Return whether a write may succeed later, and the entry itself is not at fault."""
    if isinstance(error, sqlite3.OperationalError):
        return not str(error).startswith(("no such", "table "))
    return isinstance(error, OSError) or (isinstance(error, sqlite3.Error) and is_damage(error))
