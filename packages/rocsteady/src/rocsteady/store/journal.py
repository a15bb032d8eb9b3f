"""The journal of a project: what happened so far, here.

Those who watch call ``record``, ``progressed`` and ``end_run``: they hand over and never wait.
Those who are about to do something that may take the machine down call ``intend``, which returns
when the intent is on disk, or raises within its bound; then it must not be done.

Any number of supervisors may use one journal at a time.

An intent without an outcome is itself a finding. From another boot of this machine it says: during
this, the machine went down.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import final

import msgspec

from rocsteady.errors import DamagedJournalError, JournalError, NotRecordedError
from rocsteady.model import IntentKind, RunOutcome, Strategy, Value
from rocsteady.store import database, queries
from rocsteady.store.account_records import (
    Agreed,
    Orders,
    agree_also,
    forget,
    keep,
    kept,
    sha256_of,
    strategies_in,
)
from rocsteady.store.database import Work, insert, put, select
from rocsteady.store.identity import Identity, is_alive, this_process
from rocsteady.store.location import RUNS, Place, make_run_folder
from rocsteady.store.progress import Meter, age
from rocsteady.store.run_names import check_name, new_name
from rocsteady.store.values import (
    AttemptRecord,
    DecisionRecord,
    Event,
    Fate,
    Intent,
    KeptEnd,
    MessageRecord,
    Run,
    RunLine,
    RunRecord,
    Sample,
    UnwrittenEntries,
)
from rocsteady.store.writer import JournalWriter, sync_folder

INTEND_WITHIN = timedelta(seconds=2)
OPEN_WITHIN = timedelta(seconds=10)
CLOSE_WITHIN = timedelta(seconds=2)
BUSY = timedelta(seconds=1.5)  # how long another supervisor's write is waited for; below the above
AGE_EVERY = 600.0  # seconds
NO_STRATEGY = Strategy()
DONE = "done"
NOT_DONE = "not done: the journal's disk was too slow"


@final
class IntentHandle:
    """An action that is on disk and not yet done. Its outcome is recorded once, whichever way."""

    def __init__(self, number: int, record: Callable[[int, str], None]) -> None:
        self.number = number
        self._record = record
        self._ended = False

    def end(self, outcome: str = DONE) -> None:
        """Record what came of it. The first word counts."""
        if not self._ended:
            self._ended = True
            self._record(self.number, outcome)

    def __enter__(self) -> IntentHandle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(DONE if kind is None else f"failed: {kind.__name__}: {error}")


class Journal:
    """A project's journal, open for writing. Opens when it is first written to or read."""

    def __init__(
        self,
        place: Place,
        *,
        clock: Callable[[], float] = time.time,
        here: Identity | None = None,
        intend_within: timedelta = INTEND_WITHIN,
    ) -> None:
        self.place = place
        self.here = here or this_process()
        self._clock = clock
        self._intend_within = intend_within
        self._meters: dict[tuple[int, int], Meter] = {}
        self._aged: dict[int, float] = {}
        self._ends: dict[Path, KeptEnd] = {}
        self._records: dict[int, Path] = {}  # of the runs that this process carries out
        self.lost: list[str] = []  # what became of a journal that could not be read
        self._writer = JournalWriter(
            self._connect, place.database.parent, loss_entry=self._loss_entry
        )

    @property
    def losses(self) -> UnwrittenEntries:
        return self._writer.losses

    @property
    def trouble(self) -> str:
        """Why what is written now is lost; "" as a rule."""
        return self._writer.trouble

    def begin_run(
        self,
        command: tuple[str, ...],
        *,
        job: Value | Mapping[str, object],
        strategy: Strategy = NO_STRATEGY,
        name: str | None = None,
        alone: bool = False,
    ) -> Run:
        """Write a new run down, with a name of its own, and make its folder.

        ``alone``: refuse if a run with the same command or checkpoints is going on here.
        """
        if name is not None:
            check_name(name)
        wanted = {
            "command": command,
            "job": msgspec.to_builtins(job),
            "strategy": strategy,
            **msgspec.structs.asdict(self.here),
            "started": self._clock(),
            "outcome": RunOutcome.NONE,
        }
        run = self._writer.now(
            lambda connection: self._new_run(connection, name, wanted, alone=alone), OPEN_WITHIN
        )
        folder = make_run_folder(self.place.folder, run.name)
        return msgspec.structs.replace(run, folder=str(folder))  # to the byte

    def last_run(self, command: tuple[str, ...]) -> Run | None:
        """Return the latest run of a command in this journal."""
        runs = (line.run for line in self.runs() if line.run.command == command)
        return max(runs, key=lambda run: run.id, default=None)

    def orders(self, name: str) -> Orders:
        """Return what a run starts and sets, read at once, and what of it this account chose."""
        with self._reader_of(name) as connection:
            run, rows = queries.run_and_choices(connection, name)
        agreed = kept(Agreed, self.place.folder / RUNS / name)
        if agreed is not None and agreed.sha256 != sha256_of(run):
            agreed = None
        known = (NO_STRATEGY, *(agreed.strategies if agreed else ()))
        others = tuple(each for each in strategies_in(rows) if each not in known)
        return Orders(run=run, known=agreed is not None, others=others)

    def agree(self, orders: Orders) -> None:
        """Keep that a run may start and set what was read, whatever its journal says by now."""
        records = self.place.folder / RUNS / orders.run.name
        if not orders.known:
            forget(records)  # what is kept there is of another run
            keep(Agreed(sha256=sha256_of(orders.run)), records)
        agree_also(orders.others, records)

    def end_run(self, run: Run, outcome: RunOutcome) -> None:
        end = KeptEnd(process=run.process, ended=self._clock(), outcome=outcome)
        self._ends[self.place.folder / RUNS / run.name] = end
        columns = (end.ended, outcome.value, run.id)
        self._flush_meters(run.id)
        self._writer.put(
            lambda connection: connection.execute(
                "UPDATE runs SET ended = ?, outcome = ? WHERE id = ?", columns
            )
        )

    def take_over(self, name: str, *, alone: bool = False) -> Run:
        """Make this process the supervisor of a run that was left, and return the run.

        ``alone``: refuse if another run with the same command or checkpoints is going on here.
        """
        columns = (self.here.machine, self.here.boot_id, self.here.process, name)

        def write(connection: sqlite3.Connection) -> Run:
            before = queries.run_named(connection, name)
            ours = before.boot_id == self.here.boot_id
            if before.ended is None and ours and is_alive(before.process):
                raise JournalError(f"{name} is running. To stop it: rocsteady stop {name}")
            if alone:
                queries.refuse_second(connection, before.command, before.job, self.here)
            connection.execute(
                "UPDATE runs SET machine = ?, boot_id = ?, process = ?, ended = NULL, outcome = ''"
                " WHERE name = ?",
                columns,
            )
            return queries.run_named(connection, name)

        check_name(name)
        folder = make_run_folder(self.place.folder, name)
        run = self._writer.now(write, OPEN_WITHIN)
        self._records[run.id] = folder
        return self._seen(run)

    def record(self, value: Event | MessageRecord) -> None:
        """Hand over an entry. One with the same number takes the place of the earlier."""
        if isinstance(value, AttemptRecord | DecisionRecord) and value.run in self._records:
            records, chosen = self._records[value.run], strategies_in([value])
            self._writer.put(lambda _: agree_also(chosen, records))  # before the entry is there
        self._writer.put(put(value))

    def progressed(self, run: int, attempt: int, sample: Sample) -> None:
        """Take a look at the progress into account; as often as you like."""
        meter = self._meters.setdefault((run, attempt), Meter(run, attempt))
        for bucket in meter.add(sample):
            self._writer.put(put(bucket))
        if sample.at - self._aged.setdefault(run, sample.at) >= AGE_EVERY:
            self._aged[run] = sample.at
            self._writer.put(lambda connection: age(connection, run, sample.at))

    def intend(
        self,
        kind: IntentKind,
        what: str,
        *,
        run: int | None = None,
        attempt: int | None = None,
    ) -> IntentHandle:
        """Put on disk what is about to be done, or raise NotRecordedError: then do not do it."""
        row = {
            "run": run,
            "attempt": attempt,
            "kind": kind,
            "what": what,
            **msgspec.structs.asdict(self.here),
            "at": self._clock(),
        }
        number = self._writer.now(
            lambda connection: insert(connection, Intent, row),
            self._intend_within,
            undo=lambda late: _settled(late, NOT_DONE, self._clock()),
        )
        return IntentHandle(number, self._end_intent)

    def settle(self, intent: Intent, outcome: str, fate: Fate | None = None) -> None:
        """Record the outcome of an unfinished intent of the past, once a person was told."""
        self._end_intent(intent.id, outcome, fate)

    def unfinished(self) -> tuple[Intent, ...]:
        """Return the intents without an outcome, oldest first, and why they have none."""
        with self._reader() as connection:
            where = "WHERE outcome IS NULL ORDER BY id"
            intents = select(connection, Intent, where) if connection else ()
        return tuple(msgspec.structs.replace(each, fate=fate(each, self.here)) for each in intents)

    def runs(self) -> tuple[RunLine, ...]:
        with self._reader() as connection:
            if connection is None:
                return ()
            lines = queries.run_lines(connection, self.here, self._clock())
        return tuple(msgspec.structs.replace(line, run=self._seen(line.run)) for line in lines)

    def story(self, name: str) -> RunRecord:
        with self._reader_of(name) as connection:
            story = queries.story(connection, name)
        run = self._seen(story.run)
        seen = (each.last_progress or each.start for each in story.progress)
        since = max(seen, default=run.started) if run.ended != story.run.ended else None
        return msgspec.structs.replace(story, run=run, unrecorded_since=since)

    def _seen(self, run: Run) -> Run:
        """Return a run with the folder that it has here, whatever the journal says of that.

        Also as it ended, if that could not be written into the journal.
        """
        records = self.place.folder / RUNS / run.name
        run = msgspec.structs.replace(run, folder=str(records))
        end = None if run.ended else kept(KeptEnd, records)
        if end is None or end.process != run.process:
            return run
        return msgspec.structs.replace(run, ended=end.ended, outcome=end.outcome)

    def attempt_of(self, intent: Intent) -> tuple[Run, AttemptRecord] | None:
        """Return the attempt that an intent belongs to, if both were written down."""
        with self._reader() as connection:
            return queries.attempt_of(connection, intent) if connection else None

    def flush(self, within: timedelta = OPEN_WITHIN) -> None:
        """Return when all that was handed over is on disk."""
        for run in {run for run, _ in self._meters}:
            self._flush_meters(run)
        self._writer.now(lambda _: None, within)

    def close(self, within: timedelta = CLOSE_WITHIN) -> bool:
        """Write what is left, for no longer than promised. False: some of it is lost."""
        for run in {run for run, _ in self._meters}:
            self._flush_meters(run)
        written = self._writer.close(within)
        if self._writer.trouble:  # a full disk, say; the account's may have room
            for records, end in self._ends.items():
                keep(end, records)
        return written

    def _connect(self, *, doubtful: bool) -> sqlite3.Connection:
        path, wal = self.place.database, self.place.wal
        new = not path.exists()
        if self._is_emptied:
            self.lost.append("the journal was empty")
        connection = database.connect(
            path,
            database.JOURNAL,
            wal=wal,
            busy=BUSY,
            doubtful=doubtful,
            kept_as=lambda aside: self.lost.append(f"the journal was damaged, and is now {aside}"),
        )
        try:
            if new:
                sync_folder(path.parent)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def _is_emptied(self) -> bool:
        """Whether nothing is in its file, though runs were recorded."""
        with contextlib.suppress(OSError):
            return not self.place.database.stat().st_size and any(
                (self.place.folder / RUNS).iterdir()
            )
        return False

    @contextlib.contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection | None]:
        """Yield a connection to read with; None if nothing was ever written."""
        if not os.path.lexists(self.place.database):
            yield None
            return
        if self._is_emptied:
            raise self._damaged("it is empty")
        try:
            with database.connect_to_read(self.place.database, BUSY) as connection:
                yield connection if database.version(connection) else None
        except DamagedJournalError as error:
            raise self._damaged(str(error)) from None
        except UnicodeDecodeError:  # SQLite's own message quotes the bytes that are wrong
            raise self._damaged("not a text") from None
        except (sqlite3.Error, OSError) as error:
            if isinstance(error, sqlite3.Error) and database.is_damage(error):
                raise self._damaged(str(error)) from None
            raise JournalError(f"{self.place.database}: {error}") from None

    @contextlib.contextmanager
    def _reader_of(self, name: str) -> Iterator[sqlite3.Connection]:
        with self._reader() as connection:
            if connection is None:
                raise JournalError(f"there is no run {name!r}: nothing was run here yet")
            yield connection

    def _damaged(self, why: str) -> JournalError:
        """Return what is wrong, what is left and what to type."""
        path = shlex.quote(str(self.place.database))
        return DamagedJournalError(
            f"the journal is damaged ({why}). The logs are still in {self.place.folder / RUNS}."
            f" To keep the journal aside and start a new one: mv {path} {path}.broken"
        )

    def _new_run(
        self,
        connection: sqlite3.Connection,
        name: str | None,
        wanted: Mapping[str, object],
        *,
        alone: bool,
    ) -> Run:
        if alone:
            queries.refuse_second(connection, wanted["command"], wanted["job"], self.here)
        taken = {found for (found,) in connection.execute("SELECT name FROM runs")}
        if name in taken:
            raise JournalError(f"there is a run {name!r} already; choose another --name")
        chosen = name or new_name(taken)
        folder = self.place.folder / RUNS / chosen
        key = insert(connection, Run, {**wanted, "name": chosen, "folder": str(folder)})
        (run,) = select(connection, Run, "WHERE id = ?", key)
        self._records[key] = folder
        forget(folder)  # an earlier run had the name
        keep(Agreed(sha256=sha256_of(run)), folder)  # before the run is there for anybody else
        return run

    def _end_intent(self, number: int, outcome: str, fate: Fate | None = None) -> None:
        """Wait for the outcome to be on disk, but only so long: the action is done anyway."""
        work = _settled(number, outcome, self._clock(), fate)
        try:
            self._writer.now(work, self._intend_within)
        except NotRecordedError:
            self._writer.put(work)

    def _flush_meters(self, run: int) -> None:
        for meter in [meter for key, meter in self._meters.items() if key[0] == run]:
            for bucket in meter.current():
                self._writer.put(put(bucket))

    def _loss_entry(self, number: int, why: str) -> Work:
        text = f"{number} entries of the journal were lost: {why or 'there were too many at once'}"
        return put(MessageRecord(text=text, at=self._clock()))


def _settled(number: int, outcome: str, at: float, fate: Fate | None = None) -> Work:
    columns = outcome[:4000], at, fate.value if fate else None, number
    return lambda connection: connection.execute(
        "UPDATE intents SET outcome = ?, ended = ?, fate = ? WHERE id = ? AND outcome IS NULL",
        columns,
    )


def fate(intent: Intent, here: Identity) -> Fate:
    """Return why an intent has no outcome, as seen from here."""
    if not (intent.boot_id and here.boot_id):
        return Fate.UNKNOWN
    if intent.boot_id != here.boot_id:
        same = intent.machine == here.machine
        return Fate.MACHINE_WENT_DOWN if same else Fate.UNKNOWN
    if intent.process == here.process:
        return Fate.UNDER_WAY
    alive = is_alive(intent.process)
    if alive is None:
        return Fate.UNKNOWN
    return Fate.UNDER_WAY if alive else Fate.KILLED
