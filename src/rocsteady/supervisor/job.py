"""The job file, ``rocsteady.toml``: what is to be done, and when it is done. Optional.

::

    command = ["python", "train.py", "--epochs", "10"]    # never through a shell
    name = "calm-otter"
    total = { epochs = 10 }
    deadline = 2025-11-30T18:00:00                        # or with a zone, or "36h" from the start
    hang_after = "10m"

    [resume]
    arguments = ["--resume", "{checkpoint}"]
    checkpoints = ["checkpoints/*.pt"]

    [done_when]
    epochs = 10
    absent_text = ["HIPBLAS_STATUS_ALLOC_FAILED"]
    gpus_busy = 2
    files = [{ path = "TRAINING/*.pt", kind = "model" }]
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from enum import Enum
from pathlib import Path

import msgspec

from rocsteady.errors import JobError, JournalError
from rocsteady.journal.names import check_name
from rocsteady.vocabulary import Value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "rocsteady.toml"
CHECKPOINT = "{checkpoint}"
SIZE_LIMIT = 256 * 1024  # bytes
LONGEST = timedelta(days=3650)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]")
_PART = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATIONS = (("hang_after",), ("deadline",), ("done_when", "within"))


class FileKind(Enum):
    """What a file must be to count as readable."""

    MODEL = "model"
    JSON = "json"
    ANY = "any"


class WantedFile(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that the job must have written."""

    path: str  # a pattern, from the folder of the job file
    kind: FileKind = FileKind.ANY
    readable: bool = True


class DoneWhen(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must be so when the command ends, besides exit code 0."""

    files: tuple[WantedFile, ...] = ()
    steps: int | None = None
    epochs: int | None = None
    absent_text: tuple[str, ...] = ()
    present_text: tuple[str, ...] = ()
    gpus_busy: int | None = None
    within: timedelta | None = None


class Resume(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the command is told to go on from a checkpoint."""

    arguments: tuple[str, ...] = ()  # added to the command
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    checkpoints: tuple[str, ...]  # patterns, from the folder of the job file


class Total(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much work it is."""

    steps: int | None = None
    epochs: int | None = None


class Deadline(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By when. One of the two."""

    at: datetime | None = None
    within: timedelta | None = None  # of the start of the run


class Job(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user wants done."""

    command: tuple[str, ...]
    name: str | None = None
    total: Total | None = None
    deadline: Deadline | None = None
    hang_after: timedelta | None = None
    resume: Resume | None = None
    done_when: DoneWhen = DoneWhen()


class JobFile(Value, frozen=True, kw_only=True):
    """A job as it was read: what is shown, trusted and run are the same bytes."""

    path: Path
    text: str
    sha256: str
    owner: int | None  # None on Windows
    mode: int
    job: Job


def read_job(path: Path) -> JobFile:
    """Read a job file, or say which key of which file is wrong, and how."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as stream:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise JobError(f"{path}: not a file")
            content = stream.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}") from None
    if len(content) > SIZE_LIMIT:
        raise JobError(f"{path}: larger than {SIZE_LIMIT // 1024} KiB, which no job file is")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise JobError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None
    return JobFile(
        path=path,
        text=text,
        sha256=hashlib.sha256(content).hexdigest(),
        owner=None if sys.platform == "win32" else facts.st_uid,
        mode=stat.S_IMODE(facts.st_mode),
        job=parse_job(text, str(path)),
    )


def parse_job(text: str, where: str = FILE) -> Job:
    """Read the text of a job file."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise JobError(f"{where}: {error}") from None
    for keys in _DURATIONS:
        _convert_duration(table, keys, where)
    try:
        job = msgspec.convert(table, Job)
    except msgspec.ValidationError as error:
        raise JobError(f"{where}: {_in_words(str(error))}") from None
    for key, problem in _problems(job):
        raise JobError(f"{where}: {key}: {problem}")
    return job


def duration(text: str) -> timedelta:
    """Read "90s", "2h 30m" or "1.5d". A bare number has no unit and is refused."""
    total, rest = timedelta(0), text
    while match := _PART.match(rest):
        total += timedelta(seconds=float(match.group(1)) * _SECONDS[match.group(2)])
        rest = rest[match.end() :]
    if rest.strip() or not text.strip():
        raise ValueError(f"{text!r} is not a duration; write it as 90s, 10m, 2h 30m or 3d")
    if not timedelta(0) < total <= LONGEST:
        raise ValueError(f"{text!r}: more than nothing and less than ten years")
    return total


def _convert_duration(table: dict[str, object], keys: tuple[str, ...], where: str) -> None:
    """Put a timedelta, or a Deadline, in the place of what a person wrote."""
    for key in keys[:-1]:
        inner = table.get(key)
        if not isinstance(inner, dict):
            return
        table = inner
    key = keys[-1]
    if key not in table:
        return
    try:
        value = table[key]
        table[key] = _deadline(value) if key == "deadline" else _duration_of(value)
    except ValueError as error:
        raise JobError(f"{where}: {'.'.join(keys)}: {error}") from None


def _duration_of(value: object) -> timedelta:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a duration; write it as 90s, 10m, 2h 30m or 3d")  # noqa: TRY004 - told with the others
    return duration(value)


def _deadline(value: object) -> dict[str, object]:
    """Read a moment, or a time from the start. A moment without a zone is by this machine's."""
    if isinstance(value, str):
        if not _MOMENT.match(value):
            return {"within": duration(value)}
        return _deadline(datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", value)))
    if isinstance(value, datetime):
        try:
            return {"at": value.astimezone()}
        except (OverflowError, OSError):
            raise ValueError(f"{value} is too far away") from None
    if isinstance(value, date):
        raise ValueError(f"{value} has no time of day; write it as {value}T18:00:00")  # noqa: TRY004 - told with the others
    raise ValueError(f"{value!r} is neither a date with a time nor a duration")


def _problems(job: Job) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a job: the key, and a sentence."""
    if not job.command or not job.command[0]:
        yield "command", "names no program"
    for word in job.command:
        if "\0" in word:
            yield "command", "holds a zero byte"
    if job.name is not None:
        try:
            check_name(job.name)
        except JournalError as error:
            yield "name", str(error)
    if job.total and (job.total.steps is None) == (job.total.epochs is None):
        yield "total", "give steps or epochs"
    total = job.total or Total()
    counts = {
        "total.steps": total.steps,
        "total.epochs": total.epochs,
        "done_when.steps": job.done_when.steps,
        "done_when.epochs": job.done_when.epochs,
        "done_when.gpus_busy": job.done_when.gpus_busy,
    }
    yield from ((key, "must be 1 or more") for key, count in counts.items() if _too_few(count))
    yield from _problems_of_done_when(job.done_when)
    if job.resume is not None:
        yield from _problems_of_resume(job.resume)


def _too_few(count: int | None) -> bool:
    return count is not None and count < 1


def _problems_of_done_when(done_when: DoneWhen) -> Iterator[tuple[str, str]]:
    for key in ("absent_text", "present_text"):
        if not all(text.strip() for text in getattr(done_when, key)):
            yield f"done_when.{key}", "an empty text is in every log"
    for number, wanted in enumerate(done_when.files):
        if not wanted.path or "\0" in wanted.path:
            yield f"done_when.files[{number}].path", "must name a file"


def _problems_of_resume(resume: Resume) -> Iterator[tuple[str, str]]:
    slots = (*resume.arguments, *resume.environment.values())
    for slot in slots:
        if CHECKPOINT in slot and slot != CHECKPOINT:
            yield "resume", f"{CHECKPOINT} must be a whole argument, not part of {slot!r}"
        if "\0" in slot:
            yield "resume", "holds a zero byte"
    if CHECKPOINT not in slots:
        yield "resume", f"neither arguments nor environment has {CHECKPOINT!r}"
    for name in resume.environment:
        if not _VARIABLE.fullmatch(name):
            yield "resume.environment", f"{name!r} is not the name of a variable"
    if not resume.checkpoints:
        yield "resume.checkpoints", "must have at least one pattern"
    for pattern in resume.checkpoints:
        if not pattern or pattern.startswith("-") or "\0" in pattern:
            yield "resume.checkpoints", f"{pattern!r} could be taken for an option, or for nothing"


def _in_words(error: str) -> str:
    """Put the key first, where msgspec puts it last."""
    problem, _, path = error.partition(" - at `")
    key = path.rstrip("`").removeprefix("$").removeprefix(".")
    if match := re.fullmatch(r"Object contains unknown field `(.*)`", problem, re.DOTALL):
        return f"{key}.{match.group(1)}".lstrip(".") + ": there is no such key"
    if match := re.fullmatch(r"Object missing required field `(.*)`", problem):
        return f"{key}.{match.group(1)}".lstrip(".") + ": is missing"
    problem = problem.replace("`", "").replace("array", "list").replace("object", "table")
    return f"{key}: {problem[:1].lower()}{problem[1:]}" if key else problem
