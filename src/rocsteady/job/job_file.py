r"""The job file, ``rocsteady.toml``: what is to be done, and when it is done. Optional.

::

    command = ["python", "train.py", "--epochs", "10"]    # never through a shell
    name = "calm-otter"
    total = { epochs = 10 }                               # or { log = 'episode (?P<n>\d+)/...' }
    deadline = 2025-11-30T18:00:00                        # or with a zone, or "36h" from the start
    budget = 25                                           # dollars
    hang_after = "10m"
    log_limit = "200MB"

    [resume]
    arguments = ["--resume", "{checkpoint}"]
    checkpoints = ["checkpoints/*.pt"]

    [done_when]
    epochs = 10
    absent_text = ["HIPBLAS_STATUS_ALLOC_FAILED"]
    gpus_busy = 2
    files = [{ path = "TRAINING/*.pt", kind = "model" }]
    metrics = { "metadata.json:accuracy" = ">=0.65", 'log:mAP ([0-9.]+)' = ">=0.4" }

    [variants.small]
    arguments = ["--embedding", "128"]

    [[stages]]
    name = "smoke"
    arguments = ["--epochs", "1"]

docs/reference/job-file.md has every key.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from rocsteady.errors import JobError
from rocsteady.job import FILE
from rocsteady.job.metric_goals import written_metrics
from rocsteady.job.problems import problems
from rocsteady.job.quantities import deadline, dollars, size, written_duration
from rocsteady.job.values import (
    Job,
    Variant,
)
from rocsteady.model import Value
from rocsteady.toml import parse_toml
from rocsteady.untrusted_file import open_regular, read_exactly

SIZE_LIMIT = 256 * 1024  # bytes
_WRITTEN: dict[tuple[str, ...], Callable[[object], object]] = {
    ("hang_after",): written_duration,
    ("log_limit",): size,
    ("budget",): dollars,
    ("deadline",): deadline,
    ("done_when", "within"): written_duration,
    ("done_when", "metrics"): written_metrics,
}


Checked = TypeVar("Checked", bound=Value)


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
        with open_regular(path) as stream:
            facts = os.fstat(stream.fileno())
            content = read_exactly(stream, SIZE_LIMIT + 1)
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}") from None
    if len(content) > SIZE_LIMIT:
        raise JobError(f"{path}: larger than {SIZE_LIMIT // 1024} KiB, so not a job file")
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
        table = parse_toml(text)
    except ValueError as error:
        raise JobError(f"{where}: {error}") from None
    try:
        job = _converted(table)
    except ValueError as error:
        raise JobError(f"{where}: {error}") from None
    for key, problem in problems(job):
        raise JobError(f"{where}{_line_of(key, text)}: {key}: {problem}")
    return job


def _line_of(key: str, text: str) -> str:
    """Return the line of a metric, whose name is long, if no other line has the same name."""
    _, found, name = key.partition("done_when.metrics.")
    spellings = {name, name.replace("\\", "\\\\")}  # in a TOML text of either kind
    lines = [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if any(f"{quote}{spelling}{quote}" in line for spelling in spellings for quote in "'\"")
    ]
    return f":{lines[0]}" if found and len(lines) == 1 else ""


def _converted(table: dict[str, object]) -> Job:
    """Make a job of what a person wrote; raises ValueError that begins with the key."""
    _convert_words(table, "")
    stages = table.get("stages")
    for number, stage in enumerate(stages if isinstance(stages, list) else ()):
        _convert_words(stage, f"stages[{number}].")
    variants = table.get("variants")
    for name, variant in variants.items() if isinstance(variants, dict) else ():
        checked(variant, Variant, f"variants.{name}")  # msgspec would not say which
    return checked(table, Job)


def _convert_words(table: object, prefix: str) -> None:
    """Put values in the place of what is written in words."""
    for keys, read in _WRITTEN.items():
        *outer, key = keys
        inner = table
        for each in outer:
            inner = inner.get(each) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or key not in inner:
            continue
        try:
            inner[key] = read(inner[key])
        except ValueError as error:
            raise ValueError(f"{prefix}{'.'.join(keys)}: {error}") from None


def checked(value: object, kind: type[Checked], key: str = "") -> Checked:
    """Convert what was written, or raise a ValueError that begins with the key."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_in_words(str(error), key)) from None


def _in_words(error: str, within: str) -> str:
    """Put the key first, where msgspec puts it last."""
    problem, _, path = error.partition(" - at `")
    key = f"{within}{path.rstrip('`').removeprefix('$')}".removeprefix(".")
    if match := re.fullmatch(r"Object contains unknown field `(.*)`", problem, re.DOTALL):
        return f"{key}.{match.group(1)}".lstrip(".") + ": unknown key"
    if match := re.fullmatch(r"Object missing required field `(.*)`", problem):
        return f"{key}.{match.group(1)}".lstrip(".") + ": is missing"
    problem = problem.replace("`", "").replace("array", "list").replace("object", "table")
    return f"{key}: {problem[:1].lower()}{problem[1:]}" if key else problem
