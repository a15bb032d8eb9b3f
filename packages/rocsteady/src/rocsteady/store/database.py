"""A database of rocsteady: its tables, how it is opened, and values as rows.

Opening makes the tables, or sets a broken database aside. Nothing refers to another table by
force: when entries are lost, those that are left must still be taken.

What is not a number or a text is JSON with a version. JSON is written with escapes, so that a
command with bytes that are no UTF-8 comes back as it was. Plain texts are for people: they are made
well-formed and kept short.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args

import msgspec
from rocsteady_train.untrusted_file import read_tail

from rocsteady.errors import DamagedJournalError, JournalError
from rocsteady.model import (
    Blame,
    Certainty,
    Decision,
    Failure,
    FailureKind,
    Fingerprint,
    Next,
    Observation,
    ProbeOutcome,
    Strategy,
    Value,
)
from rocsteady.store.values import (
    AttemptRecord,
    AttemptResult,
    Bucket,
    Deadly,
    DecisionRecord,
    Helped,
    Incident,
    Intent,
    LearnedRecord,
    MessageRecord,
    NamedFailure,
    Observed,
    Run,
)
from rocsteady.system.root import well_formed
from rocsteady.typed_values import convert

LOOK = timedelta(seconds=5)  # for the format of a database
STRICT = "STRICT" if sqlite3.sqlite_version_info >= (3, 37) else ""
KEYED = f"{STRICT + ', ' if STRICT else ''}WITHOUT ROWID"
PRIVATE_FILE = 0o600
SEVERAL_DATABASES = bytes.fromhex("d9d505f920a163d7")  # the end of such a rollback journal
PARTS = ("", "-wal", "-shm", "-journal")  # what SQLite keeps beside a database
LONGEST = 64 * 1024 * 1024  # bytes of a value
WAL_LIMIT = 4 * 1024 * 1024  # bytes that the log beside the database keeps

TEXT_LIMIT = 4000  # characters; longer ones belong in the evidence
JSON_VERSION = 1
LATEST_TIME = 4102444800.0  # seconds since 1970: the year 2100

T = TypeVar("T", bound=Value)
Work = Callable[[sqlite3.Connection], object]
Schema = Sequence[str]  # the statements that make its tables

FORMAT = 1
JOURNAL: Schema = (
    f"""CREATE TABLE runs (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
            command TEXT NOT NULL, job TEXT NOT NULL, strategy TEXT NOT NULL, folder TEXT NOT NULL,
            machine TEXT NOT NULL, boot_id TEXT NOT NULL, process TEXT NOT NULL,
            started REAL NOT NULL, ended REAL, outcome TEXT NOT NULL) {STRICT}""",
    f"""CREATE TABLE attempts (run INTEGER NOT NULL, number INTEGER NOT NULL,
            strategy TEXT NOT NULL, boot_id TEXT NOT NULL, started REAL NOT NULL, ended REAL,
            exit_code INTEGER, signal INTEGER, outcome TEXT NOT NULL, first_step INTEGER,
            last_step INTEGER, result TEXT, PRIMARY KEY (run, number)) {KEYED}""",
    f"""CREATE TABLE incidents (run INTEGER NOT NULL, attempt INTEGER NOT NULL,
            number INTEGER NOT NULL, verdict TEXT NOT NULL, why TEXT NOT NULL, place TEXT NOT NULL,
            quiet REAL NOT NULL, evidence TEXT NOT NULL, at REAL NOT NULL, blame TEXT,
            PRIMARY KEY (run, number)) {KEYED}""",
    f"""CREATE TABLE decisions (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, attempt INTEGER,
            decision TEXT NOT NULL, at REAL NOT NULL) {STRICT}""",
    f"""CREATE TABLE messages (id INTEGER PRIMARY KEY, run INTEGER, text TEXT NOT NULL,
            event TEXT NOT NULL, at REAL NOT NULL) {STRICT}""",
    f"""CREATE TABLE intents (id INTEGER PRIMARY KEY, run INTEGER, attempt INTEGER,
            kind TEXT NOT NULL, what TEXT NOT NULL, machine TEXT NOT NULL, boot_id TEXT NOT NULL,
            process TEXT NOT NULL, at REAL NOT NULL, outcome TEXT, ended REAL,
            fate TEXT) {STRICT}""",
    "CREATE INDEX open_intents ON intents (id) WHERE outcome IS NULL",
    f"""CREATE TABLE progress (run INTEGER NOT NULL, attempt INTEGER NOT NULL,
            start REAL NOT NULL, width INTEGER NOT NULL, first_step INTEGER NOT NULL,
            last_step INTEGER NOT NULL, total INTEGER, first_progress REAL, last_progress REAL,
            quiet REAL NOT NULL, seconds_in TEXT NOT NULL, seconds_as TEXT NOT NULL,
            gauges TEXT NOT NULL, PRIMARY KEY (run, width, start, attempt)) {KEYED}""",
    f"""CREATE TABLE failures (run INTEGER NOT NULL, attempt INTEGER NOT NULL,
            failure TEXT NOT NULL, evidence TEXT NOT NULL, at REAL NOT NULL,
            PRIMARY KEY (run, attempt)) {KEYED}""",
)
MEMORY: Schema = (
    f"""CREATE TABLE learned (script TEXT NOT NULL, machine TEXT NOT NULL, phases TEXT NOT NULL,
            device_wait REAL NOT NULL, locked_wait REAL NOT NULL, at REAL NOT NULL,
            PRIMARY KEY (script, machine)) {KEYED}""",
    f"""CREATE TABLE deadly (machine TEXT NOT NULL, script TEXT NOT NULL,
            strategy TEXT NOT NULL, command TEXT NOT NULL, at REAL NOT NULL,
            PRIMARY KEY (machine, script, strategy)) {KEYED}""",
    f"""CREATE TABLE helped (machine TEXT NOT NULL, script TEXT NOT NULL,
            failure TEXT NOT NULL, remedy TEXT NOT NULL, run TEXT NOT NULL, at REAL NOT NULL,
            PRIMARY KEY (machine, script, failure)) {KEYED}""",
    f"""CREATE TABLE observations (machine TEXT NOT NULL, at REAL NOT NULL,
            probe TEXT NOT NULL, variant TEXT NOT NULL, observation TEXT NOT NULL,
            PRIMARY KEY (machine, at, probe, variant)) {KEYED}""",
)


def connect(  # noqa: PLR0913 - how it is opened, each with a name
    path: Path,
    schema: Schema,
    *,
    wal: bool,
    busy: timedelta,
    doubtful: bool = False,
    kept_as: Callable[[Path], None] = lambda _: None,
) -> sqlite3.Connection:
    """Open a database for writing. A broken one is kept beside it, and a new one is begun."""
    try:
        return _opened(path, schema, wal=wal, busy=busy, doubtful=doubtful)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
    except UnicodeDecodeError:  # SQLite's own message quotes the bytes that are wrong
        pass
    kept_as(set_aside(path))
    return _opened(path, schema, wal=wal, busy=busy)


@contextlib.contextmanager
def connect_to_read(path: Path, busy: timedelta) -> Iterator[sqlite3.Connection]:
    """Open a database that is there; nothing is changed in it. It may lie on read-only media."""
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(contextlib.closing(_readable(path, busy, stack)))
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        _check_schema(connection, JOURNAL if _check_format(connection) else ())
        yield connection


def _readable(path: Path, busy: timedelta, stack: contextlib.ExitStack) -> sqlite3.Connection:
    """Open it as it is, or a copy where SQLite cannot make the files that it needs beside it."""
    if os.access(path.parent, os.W_OK):
        return _answering(path, "rw", busy)
    with contextlib.suppress(sqlite3.OperationalError):
        return _answering(path, "ro", busy)
    copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocsteady-"))) / path.name
    for suffix in ("", "-wal", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(path.with_name(path.name + suffix), copy.with_name(path.name + suffix))
    return _answering(copy, "rw", busy)


def _answering(path: Path, mode: str, busy: timedelta) -> sqlite3.Connection:
    _refuse_traps(path)
    address = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=_s(busy))
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def version(connection: sqlite3.Connection) -> int:
    """Return the format of a database; 0 while another process is just making it."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether a file is no database or a broken one; other trouble may pass."""
    return type(error) is sqlite3.DatabaseError


def set_aside_other_format(path: Path) -> Path | None:
    """Rename a database of another format, which is not read; return its new name.

    A disk that does not answer is left to whoever opens the database, and says so.
    """
    if not path.exists():
        return None
    found: list[int] = []
    looking = threading.Thread(target=_look_at_format, args=(path, found), daemon=True)
    looking.start()
    looking.join(_s(LOOK))
    return set_aside(path, "other-format") if found and found[0] not in (0, FORMAT) else None


def _look_at_format(path: Path, found: list[int]) -> None:
    with (  # locked, damaged or a trap: opening it says so
        contextlib.suppress(sqlite3.Error, UnicodeDecodeError, JournalError, OSError),
        contextlib.closing(_answering(path, "rw", timedelta(0))) as connection,
    ):
        found.append(version(connection))


def set_aside(path: Path, why: str = "broken") -> Path:
    """Rename a database, with what belongs to it, and return its new name."""
    number = 1
    while (aside := path.with_name(f"{path.name}.{why}-{number}")).exists():
        number += 1
    for suffix in PARTS:
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.replace(aside.with_name(aside.name + suffix))
    return aside


def _make_private(path: Path) -> None:
    """Make a database readable only by its owner: commands and variables may hold secrets.

    One that is there is never opened for it: closing it would end locks that SQLite has on it.
    """
    with contextlib.suppress(OSError):  # SQLite says what is wrong
        if path.exists():
            path.chmod(PRIVATE_FILE)
        else:
            path.touch(mode=PRIVATE_FILE)


def _opened(
    path: Path, schema: Schema, *, wal: bool, busy: timedelta, doubtful: bool = False
) -> sqlite3.Connection:
    _refuse_traps(path)
    _make_private(path)
    connection = sqlite3.connect(path, isolation_level=None, timeout=_s(busy))
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    try:
        mode = "WAL" if wal else "DELETE"
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}")
        connection.execute("PRAGMA trusted_schema = OFF")  # the file may have come with the project
        if doubtful and connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("quick_check found damage")  # noqa: TRY301 - as SQLite says
        _make_tables(connection, schema)
        _check_schema(connection, schema)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_tables(connection: sqlite3.Connection, schema: Schema) -> None:
    if _check_format(connection):
        return
    connection.execute("BEGIN IMMEDIATE")  # another supervisor may be doing the same
    try:
        if not _check_format(connection):
            for statement in schema:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check_schema(connection: sqlite3.Connection, schema: Schema) -> None:
    """Refuse a database that was not made by the same statements as ours.

    One with a trigger changes what is written to it; a column can be computed, and fill the memory.
    """
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    there = {_plain(statement): name for name, statement in rows}
    ours = set(map(_plain, schema))
    if others := [name for statement, name in there.items() if statement not in ours]:
        raise sqlite3.DatabaseError(f"{others[0]} in it is not as rocsteady makes it")
    if ours - there.keys():
        raise sqlite3.DatabaseError("tables are missing")
    if connection.execute("PRAGMA encoding").fetchone() != ("UTF-8",):
        raise sqlite3.DatabaseError("its text is not in UTF-8")


def _plain(statement: str) -> str:
    """Return a statement as an SQLite writes it that knows no strict tables."""
    return statement.replace("STRICT, ", "").removesuffix("STRICT").rstrip()


def _refuse_traps(path: Path) -> None:
    """Refuse a database that came with a project and would write, delete or wait elsewhere.

    SQLite deletes the file that a rollback journal names at its end, once a transaction of several
    databases is over. Ours never have one.
    """
    for part in (path.with_name(path.name + suffix) for suffix in PARTS):
        if part.is_symlink():
            raise JournalError(f"{part} is a link, which rocsteady does not write through")
        if part.exists() and not part.is_file():
            raise JournalError(f"{part} is not a regular file")
        if part.name.endswith("-shm") and part.exists() and part.stat().st_nlink > 1:
            raise JournalError(f"{part} has another name too, and reading it would change that")
    with contextlib.suppress(FileNotFoundError):
        journal = path.with_name(f"{path.name}-journal")
        if read_tail(journal, len(SEVERAL_DATABASES)) == SEVERAL_DATABASES:
            raise JournalError(f"{journal} names another file, which rocsteady's never do")


def _check_format(connection: sqlite3.Connection) -> int:
    """Return the format; 0 while the tables are not made."""
    found = version(connection)
    if found not in (0, FORMAT):
        raise JournalError(
            f"the journal has format {found}, not {FORMAT}: the next run keeps it aside unread, and"
            " starts a new one"
        )
    return found


def _s(duration: timedelta) -> float:
    return duration.total_seconds()


TABLES: Mapping[type[Value], str] = {
    Run: "runs",
    AttemptRecord: "attempts",
    Incident: "incidents",
    NamedFailure: "failures",
    DecisionRecord: "decisions",
    MessageRecord: "messages",
    Intent: "intents",
    Bucket: "progress",
    LearnedRecord: "learned",
    Deadly: "deadly",
    Helped: "helped",
    Observed: "observations",
}

# What stands for a value that a newer version wrote and this one cannot read.
UNREADABLE: Mapping[object, Value | None] = {
    Blame | None: None,
    AttemptResult | None: None,
    Strategy: Strategy(),
    Decision: Decision(next=Next.AGAIN, why="only a newer version of rocsteady can read why"),
    Failure: Failure(
        kind=FailureKind.UNKNOWN,
        title="A failure that only a newer version of rocsteady can read",
        words="",
        certainty=Certainty.UNKNOWN,
        fingerprint=Fingerprint(kind=FailureKind.UNKNOWN),
        seen=(),
    ),
    Observation: Observation(probe="", outcome=ProbeOutcome.NOT_RUN, tries=0, seconds=0.0),
}


def put(value: Value) -> Work:
    """Return the writing of a row, in place of the one with the same key if there is one."""
    row = {name: column(getattr(value, name)) for name in value.__struct_fields__}
    names, places = ", ".join(row), ", ".join("?" * len(row))
    # Names come from our own classes, never from data.
    statement = f"INSERT OR REPLACE INTO {TABLES[type(value)]} ({names}) VALUES ({places})"  # noqa: S608
    columns = tuple(row.values())
    return lambda connection: connection.execute(statement, columns)


def insert(connection: sqlite3.Connection, kind: type[Value], row: Mapping[str, object]) -> int:
    """Write a new row whose key the database chooses, and return that key."""
    columns = {name: column(value) for name, value in row.items()}
    names, places = ", ".join(columns), ", ".join("?" * len(columns))
    statement = f"INSERT INTO {TABLES[kind]} ({names}) VALUES ({places})"  # noqa: S608 - our own names
    key = connection.execute(statement, tuple(columns.values())).lastrowid
    return int(key or 0)


def select(
    connection: sqlite3.Connection,
    kind: type[T],
    where: str = "",
    *columns: object,
    without: tuple[str, ...] = (),
) -> tuple[T, ...]:
    """Read the values that a condition of our own picks; ``without`` columns it can do without."""
    names = ", ".join(_columns(kind, without)[0])
    sought = tuple(map(column, columns))  # as they were written
    rows = connection.execute(f"SELECT {names} FROM {TABLES[kind]} {where}", sought)  # noqa: S608
    return tuple(_values(kind, rows, without))


def column(value: object) -> object:
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        text = well_formed(value)
        return text if len(text) <= TEXT_LIMIT else f"{text[: TEXT_LIMIT - 3]}..."
    content = {"version": JSON_VERSION, "value": msgspec.to_builtins(value)}
    return json.dumps(content, separators=(",", ":"))


def unpacked(text: str) -> object:
    try:
        content = _decoded(text)
        version = content["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise DamagedJournalError("a column is not JSON that rocsteady wrote") from None
    if version != JSON_VERSION:
        raise JournalError(
            f"the journal is from another version of rocsteady: JSON version {version!r}"
        )
    return content.get("value")


def _decoded(text: str) -> Any:  # noqa: ANN401 - JSON
    """Decode JSON quickly; what msgspec refuses, such as NaN, as Python itself does."""
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return json.loads(text)


def _values(
    kind: type[T], rows: Iterable[tuple[object, ...]], without: tuple[str, ...]
) -> Iterable[T]:
    names, packed, times = _columns(kind, without)
    for row in rows:
        columns = dict(zip(names, row, strict=True))
        for name in packed:
            text = columns[name]
            columns[name] = (
                None if text is None else _or_unreadable(packed[name], unpacked(str(text)))
            )
        for name in times:
            columns[name] = _possible(columns[name])
        try:
            yield convert(columns, kind)
        except msgspec.ValidationError as error:
            raise DamagedJournalError(f"{TABLES[kind]}: {error}") from None


@cache  # to ask msgspec takes longer than to read a row
def _columns(
    kind: type[Value], without: tuple[str, ...]
) -> tuple[tuple[str, ...], Mapping[str, object], tuple[str, ...]]:
    """Return the columns of a table, those that hold JSON with their types, and those of times."""
    fields = [field for field in msgspec.structs.fields(kind) if field.name not in without]
    packed = {field.name: field.type for field in fields if _is_json(field.type)}
    times = tuple(field.name for field in fields if field.type in (float, float | None))
    return tuple(field.name for field in fields), packed, times


def _possible(time: object) -> object:
    """Return a time that can be shown: that of a damaged journal may be any number."""
    return min(max(time, 0.0), LATEST_TIME) if isinstance(time, int | float) else time


def _is_json(kind: object) -> bool:
    parts = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    values = any(isinstance(part, type) and issubclass(part, Value) for part in parts)
    return values or getattr(kind, "__origin__", None) in (dict, tuple)


def _or_unreadable(kind: Any, content: object) -> object:  # noqa: ANN401 - a type or a union
    """Return a JSON column as it is, or what stands for it if a newer version wrote it."""
    if kind not in UNREADABLE:
        return content
    try:
        return convert(content, kind)
    except msgspec.ValidationError:
        return UNREADABLE[kind]
