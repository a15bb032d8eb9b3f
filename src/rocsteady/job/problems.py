"""What is wrong with a job that could be read: each with its key, and a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocsteady.errors import JobError, JournalError
from rocsteady.job.line_pattern import LinePattern
from rocsteady.job.metric_goals import metric_problems
from rocsteady.job.metrics import metrics_problems
from rocsteady.job.notify import notify_problems
from rocsteady.job.run_names import check_name
from rocsteady.job.stages import stage_job, variant_command
from rocsteady.job.values import CHECKPOINT, DoneWhen, Job, Resume, Total

Problems = Iterator[tuple[str, str]]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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
    for source, problem in metric_problems(done_when.metrics):
        yield f"{key}.metrics.{source}", problem


def _of_resume(resume: Resume) -> Problems:
    slots = (*resume.arguments, *resume.environment.values())
    for slot in slots:
        if CHECKPOINT in slot and slot != CHECKPOINT:
            yield "resume", f"{CHECKPOINT} must be a whole argument, not part of {slot!r}"
        if "\0" in slot:
            yield "resume", "contains a zero byte"
    if CHECKPOINT not in slots:
        yield "resume", f"neither arguments nor environment has {CHECKPOINT!r}"
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
        if not (variant.arguments or variant.without):
            yield key, "changes nothing; give arguments or without"
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
        yield from _of_total(stage.total, f"{key}.total")
        if stage.done_when is not None:
            yield from _of_done_when(stage.done_when, f"{key}.done_when")
        try:
            yield from _of_command(stage_job(job, stage).command, key)
        except JobError as error:
            yield f"{key}.arguments", str(error).partition(": ")[2]
