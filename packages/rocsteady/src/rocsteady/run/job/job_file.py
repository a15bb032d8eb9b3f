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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from rocsteady_train.untrusted_file import open_regular, read_exactly, read_regular

from rocsteady.errors import JobError, JournalError
from rocsteady.hangs.line_pattern import LinePattern
from rocsteady.model import Value
from rocsteady.run.job import FILE
from rocsteady.run.job.metrics import Metrics, metrics_problems
from rocsteady.run.job.notify import Notify, notify_problems
from rocsteady.run.job.quantities import deadline, dollars, duration, size
from rocsteady.run.job.stages import stage_job, variant_command
from rocsteady.run.job.values import CHECKPOINT, DoneWhen, Job, Resume, Total, Variant
from rocsteady.store.run_names import check_name
from rocsteady.store.user_folders import config_folder
from rocsteady.toml import parse_toml
from rocsteady.typed_values import convert

SIZE_LIMIT = 256 * 1024  # bytes
CONFIGURATION_FILE = "config.toml"  # in the user's configuration folder
CONFIGURATION_LIMIT = 64 * 1024  # bytes
Problems = Iterator[tuple[str, str]]
_KEY = re.compile(rf"[^=\s{{}}]+={re.escape(CHECKPOINT)}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WRITTEN: dict[tuple[str, ...], Callable[[object], object]] = {
    ("hang_after",): duration,
    ("log_limit",): size,
    ("budget",): dollars,
    ("deadline",): deadline,
    ("done_when", "within"): duration,
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
    try:
        job = _converted(parse_toml(text))
    except ValueError as error:
        raise JobError(f"{where}: {error}") from None
    for key, problem in problems(job):
        raise JobError(f"{where}: {key}: {problem}")
    return job


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
        return convert(value, kind)
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


class Configuration(Value, frozen=True, kw_only=True):
    notify: Notify | None = None
    metrics: Metrics | None = None


def user_configuration() -> Configuration:
    path = config_folder() / CONFIGURATION_FILE
    try:
        text = read_regular(path, CONFIGURATION_LIMIT).decode()
    except FileNotFoundError:
        return Configuration()
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{path}: {getattr(error, 'strerror', '') or error}") from None
    try:
        found = checked(parse_toml(text), Configuration)
    except ValueError as error:
        raise JobError(f"{path}: {error}") from None
    for key, problem in (*notify_problems(found.notify), *metrics_problems(found.metrics)):
        raise JobError(f"{path}: {key}: {problem}")
    return found


def problems(job: Job) -> Problems:
    """Yield what is wrong with a job: the key, and a sentence."""
    yield from _of_command(job.command, "command")
    if job.name is not None:
        yield from _of_name(job.name, "name")
    yield from _of_total(job.total, "total")
    yield from _of_done_when(job.done_when, "done_when")
    if job.resume is not None:
        yield from _of_resume(job.resume)
    yield from _of_variants(job)
    yield from _of_stages(job)
    yield from notify_problems(job.notify)
    yield from metrics_problems(job.metrics)


def _of_command(command: tuple[str, ...], key: str) -> Problems:
    if not command or not command[0]:
        yield key, "must name a program"
    if any("\0" in word for word in command):
        yield key, "contains a zero byte"


def _of_name(name: str, key: str) -> Problems:
    try:
        check_name(name)
    except JournalError as error:
        yield key, str(error)


def _of_total(total: Total | None, key: str) -> Problems:
    if total is None:
        return
    if total.steps is not None and total.epochs is not None:
        yield key, "give steps or epochs, not both"
    yield from _too_few(key, steps=total.steps, epochs=total.epochs)
    if total.log:
        yield from _of_log(total, f"{key}.log")
    elif total.steps is None and total.epochs is None:
        yield key, "give steps or epochs, or a pattern as log"


def _of_log(total: Total, key: str) -> Problems:
    try:
        groups = LinePattern(total.log).names
    except ValueError as error:
        yield key, str(error)
        return
    if "n" not in groups:
        yield key, r"has no group that is named n; write it as 'episode (?P<n>\d+)'"
    if "total" not in groups and total.count is None:
        yield key, "has no group named total; also give steps"


def _too_few(key: str, **counts: int | None) -> Problems:
    for name, count in counts.items():
        if count is not None and count < 1:
            yield f"{key}.{name}", "must be 1 or more"


def _of_done_when(done_when: DoneWhen, key: str) -> Problems:
    yield from _too_few(
        key, steps=done_when.steps, epochs=done_when.epochs, gpus_busy=done_when.gpus_busy
    )
    for name in ("absent_text", "present_text"):
        if not all(text.strip() for text in getattr(done_when, name)):
            yield f"{key}.{name}", "must not be empty"
    for number, wanted in enumerate(done_when.files):
        if not wanted.path or "\0" in wanted.path:
            yield f"{key}.files[{number}].path", "must name a file"


def _of_resume(resume: Resume) -> Problems:
    slots = (*resume.arguments, *resume.environment.values())
    for slot in slots:
        if CHECKPOINT in slot and slot != CHECKPOINT and not _KEY.fullmatch(slot):
            yield "resume", f"{CHECKPOINT} must be a whole argument or KEY={CHECKPOINT}: {slot!r}"
        if "\0" in slot:
            yield "resume", "contains a zero byte"
    for name in resume.environment:
        if not _VARIABLE.fullmatch(name):
            yield "resume.environment", f"{name!r} is not the name of a variable"
    if not resume.checkpoints:
        yield "resume.checkpoints", "must have at least one pattern"
    for pattern in resume.checkpoints:
        if not pattern or pattern.startswith("-") or "\0" in pattern:
            yield "resume.checkpoints", f"{pattern!r} is empty or could be mistaken for an option"


def _of_variants(job: Job) -> Problems:
    for name, variant in job.variants.items():
        key = f"variants.{name}"
        yield from _of_name(name, key)
        yield from _of_total(variant.total, f"{key}.total")
        if not (variant.arguments or variant.without or variant.environment):
            yield key, "changes nothing; give arguments, without or environment"
        try:
            yield from _of_command(variant_command(job, name), key)
        except JobError as error:
            yield key, str(error).removeprefix(f"{key}: ")


def _of_stages(job: Job) -> Problems:
    if job.stages and job.name is None:
        yield "name", "is missing: the runs of stages are named NAME-STAGE"
    names = [stage.name for stage in job.stages]
    for number, stage in enumerate(job.stages):
        key = f"stages[{number}]"
        yield from _of_name(stage.name, f"{key}.name")
        yield from _of_name(f"{job.name}-{stage.name}", f"{key}.name")
        if names.index(stage.name) < number:
            yield f"{key}.name", f"there is a stage {stage.name!r} before it"
        if stage.variant and stage.variant not in job.variants:
            yield f"{key}.variant", f"there is no [variants.{stage.variant}]"
        elif stage.variant and job.variants[stage.variant].environment:
            yield f"{key}.variant", "has an environment, which only a plan tries"
        yield from _of_total(stage.total, f"{key}.total")
        if stage.done_when is not None:
            yield from _of_done_when(stage.done_when, f"{key}.done_when")
        try:
            yield from _of_command(stage_job(job, stage).command, key)
        except JobError as error:
            yield f"{key}.arguments", str(error).partition(": ")[2]
