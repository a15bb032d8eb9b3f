"""The machine's own memory, in the user's state folder: it outlives any project.

What a script usually does here, what helped it, what took this machine down, and what came of
probes. It is not kept in the project, since whoever hands us a project could then tell us what to
do. Without a place for it everything still works; nothing is remembered.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from rocsteady.errors import JournalError
from rocsteady.model import Observation, Value
from rocsteady.store import database
from rocsteady.store.database import put, select
from rocsteady.store.location import DATABASE, Place, memory_file
from rocsteady.store.user_folders import state_folder
from rocsteady.store.values import (
    Deadly,
    Helped,
    LearnedRecord,
    Observed,
    PhaseHistory,
)
from rocsteady.store.writer import JournalWriter

BUSY = timedelta(seconds=1.5)
CLOSE_WITHIN = timedelta(seconds=2)
MAX_OBSERVATIONS = 2000  # of a machine: the newest ones

T = TypeVar("T", bound=Value)


class Memory:
    def __init__(self, place: Place, clock: Callable[[], float] = time.time) -> None:
        self._path = place.memory
        self._clock = clock
        self._writer: JournalWriter | None = None
        if self._path is not None and place.memory_writable:
            self._writer = JournalWriter(self._connect, self._path.parent)

    @property
    def keeps(self) -> bool:
        return self._writer is not None

    def learn(self, script: str, machine: str, learned: PhaseHistory) -> None:
        """Remember what a script usually does, in place of what was known of it."""
        known = {name: getattr(learned, name) for name in PhaseHistory.__struct_fields__}
        self._put(LearnedRecord(**known, script=script, machine=machine, at=self._clock()))

    def learned(self, script: str, machine: str) -> LearnedRecord | None:
        """Return what a script usually does on a machine, if it was ever seen there."""
        where = "WHERE script = ? AND machine = ?"
        return next(iter(self._select(LearnedRecord, where, script, machine)), None)

    def killed(self, deadly: Deadly) -> None:
        self._put(deadly)

    def deadly(self, machine: str, script: str) -> tuple[Deadly, ...]:
        """Return the ways to run a script that took a machine down, oldest first."""
        where = "WHERE machine = ? AND script = ? ORDER BY at"
        return self._select(Deadly, where, machine, script)

    def helped(self, helped: Helped) -> None:
        self._put(helped)

    def what_helped(self, machine: str, script: str) -> tuple[Helped, ...]:
        """Return what helped a script on a machine, the latest last."""
        return self._select(Helped, "WHERE machine = ? AND script = ? ORDER BY at", machine, script)

    def observed(self, machine: str, observation: Observation) -> None:
        """Remember what came of a probe; of very many only the newest."""
        self._put(
            Observed(
                machine=machine,
                at=observation.at,
                probe=observation.probe,
                variant=observation.variant,
                observation=observation,
            )
        )
        if self._writer is not None:
            self._writer.put(
                lambda connection: connection.execute(
                    "DELETE FROM observations WHERE machine = ? AND at < (SELECT at FROM"
                    " observations WHERE machine = ? ORDER BY at DESC LIMIT 1 OFFSET ?)",
                    (machine, machine, MAX_OBSERVATIONS - 1),
                )
            )

    def observations(self, machine: str) -> tuple[Observation, ...]:
        """Return what came of probes on a machine, oldest first."""
        with contextlib.suppress(OSError, JournalError):
            rows = self._select(Observed, "WHERE machine = ? ORDER BY at", machine)
            return tuple(row.observation for row in rows)
        return ()  # not for us to read

    def close(self, within: timedelta = CLOSE_WITHIN) -> bool:
        return self._writer is None or self._writer.close(within)

    def flush(self, within: timedelta = CLOSE_WITHIN) -> None:
        if self._writer is not None:
            self._writer.now(lambda _: None, within)

    def _connect(self, *, doubtful: bool) -> sqlite3.Connection:
        if self._path is None:
            raise sqlite3.OperationalError("no folder for it is writable")
        # No write-ahead log: a home that became read-only can then still be read.
        return database.connect(
            self._path, database.MEMORY, wal=False, busy=BUSY, doubtful=doubtful
        )

    def _put(self, value: Value) -> None:
        if self._writer is not None:
            self._writer.put(put(value))

    def _select(self, kind: type[T], where: str, *columns: object) -> tuple[T, ...]:
        if self._path is None or not self._path.exists():
            return ()
        with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            with contextlib.closing(
                sqlite3.connect(uri, uri=True, timeout=BUSY.total_seconds())
            ) as connection:
                connection.execute("PRAGMA trusted_schema = OFF")
                if database.version(connection) == database.FORMAT:
                    return select(connection, kind, where, *columns)
        return ()


def memory_to_read(state: Path | None = None) -> Memory:
    state = state or state_folder()
    return Memory(
        Place(
            folder=state,
            database=state / DATABASE,
            wal=False,
            memory=memory_file(state),
            memory_writable=False,
        )
    )
