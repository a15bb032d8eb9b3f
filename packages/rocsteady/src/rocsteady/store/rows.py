"""Values as rows, and rows as values. What is not a number or a text is JSON with a version.

JSON is written with escapes, so that a command with bytes that are no UTF-8 comes back as it was.
Plain texts are for people: they are made well-formed and kept short.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args

import msgspec

from rocsteady.doctor.machine.root import well_formed
from rocsteady.errors import DamagedJournalError, JournalError
from rocsteady.model import (
    Certainty,
    Failure,
    FailureKind,
    Fingerprint,
    Observation,
    ProbeOutcome,
    Strategy,
    Value,
)
from rocsteady.store.values import (
    AttemptRecord,
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
    SeenFile,
    Takedown,
)

TEXT_LIMIT = 4000  # characters; longer ones belong in the evidence
JSON_VERSION = 1
LATEST = 4102444800.0  # seconds since 1970: the year 2100

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
    Takedown: "takedowns",
    SeenFile: "seen_files",
    Deadly: "deadly",
    Helped: "helped",
    Observed: "observations",
}

# What stands for a value that a newer version wrote and this one cannot read.
UNREADABLE: Mapping[object, Value] = {
    Strategy: Strategy(),
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

T = TypeVar("T", bound=Value)
Row = dict[str, object]
Work = Callable[[sqlite3.Connection], object]


def put(value: Value) -> Work:
    """Return the writing of a row, in place of the one with the same key if there is one."""
    row = row_of(value)
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    # Names come from our own classes, never from data.
    statement = f"INSERT OR REPLACE INTO {TABLES[type(value)]} ({names}) VALUES ({marks})"  # noqa: S608
    columns = tuple(row.values())
    return lambda connection: connection.execute(statement, columns)


def insert(connection: sqlite3.Connection, kind: type[Value], row: Mapping[str, object]) -> int:
    """Write a new row whose key the database chooses, and return that key."""
    columns = {name: column(value) for name, value in row.items()}
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    statement = f"INSERT INTO {TABLES[kind]} ({names}) VALUES ({marks})"  # noqa: S608 - our own names
    key = connection.execute(statement, tuple(columns.values())).lastrowid
    return int(key or 0)


def select(
    connection: sqlite3.Connection,
    kind: type[T],
    where: str = "",
    *columns: object,
    without: tuple[str, ...] = (),
) -> tuple[T, ...]:
    """Read the values that a condition of our own picks; ``without`` columns of a later format."""
    names = ", ".join(_columns(kind, without)[0])
    rows = connection.execute(f"SELECT {names} FROM {TABLES[kind]} {where}", columns)  # noqa: S608
    return tuple(_values(kind, rows, without))


def row_of(value: Value) -> Row:
    """Return the columns of a value."""
    return {name: column(getattr(value, name)) for name in value.__struct_fields__}


def column(value: object) -> object:
    """Return what SQLite keeps of a field."""
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
    """Return what a JSON column holds."""
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
            columns[name] = None if text is None else _readable(packed[name], unpacked(str(text)))
        for name in times:
            columns[name] = _possible(columns[name])
        try:
            yield msgspec.convert(columns, kind)
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
    return min(max(time, 0.0), LATEST) if isinstance(time, int | float) else time


def _is_json(kind: object) -> bool:
    parts = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    values = any(isinstance(part, type) and issubclass(part, Value) for part in parts)
    return values or getattr(kind, "__origin__", None) in (dict, tuple)


def _readable(kind: object, content: object) -> object:
    """Return a JSON column as it is, or what stands for it if a newer version wrote it."""
    if kind not in UNREADABLE:
        return content
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError:
        return UNREADABLE[kind]
