"""Variants and stages of a job: the same script with other arguments, as jobs of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from rocsteady.errors import JobError
from rocsteady.job.arguments import with_arguments
from rocsteady.job.values import Job, Stage, Total

PYTHON = re.compile(r"(.*[/\\])?(py|python[0-9.]*)(\.exe)?")


def variant_command(job: Job, name: str) -> tuple[str, ...]:
    """Return the command of a variant."""
    return with_variant(job, name).command


def commands_of(job: Job) -> tuple[tuple[str, ...], ...]:
    """Return the command of a job, and then those of its variants."""
    return job.command, *(variant_command(job, name) for name in job.variants)


def with_variant(job: Job, name: str) -> Job:
    """Return the job with a model or a batch of another size."""
    variant = job.variants.get(name)
    if variant is None:
        there_are = ", ".join(job.variants) or "none"
        raise JobError(f"there is no variant {name!r}; there are: {there_are}")
    try:
        command = with_arguments(job.command, variant.arguments, variant.without)
    except ValueError as error:
        raise JobError(f"variants.{name}: {error}") from None
    return replace(job, command=command, total=variant.total or job.total)


def for_command(job: Job, command: tuple[str, ...]) -> tuple[Job, tuple[str, ...]]:
    """Return the job of a command, and the keys of a job for another one that do not apply to it.

    How much work another command is, and by when, is not known. The same script with other
    arguments counts and resumes in the same way, and writes the same files. Another interpreter
    does the same work.
    """
    if command == job.command:
        return job, ()
    if _differ_in_interpreter(command, job.command):
        other = replace(job, command=command, stages=())
    elif _script(command) == _script(job.command):
        total = Total(log=job.total.log) if job.total and job.total.log else None
        other = replace(job, command=command, total=total, deadline=None, stages=())
    else:
        other = Job(
            command=command,
            budget=job.budget,
            hang_after=job.hang_after,
            log_limit=job.log_limit,
            notify=job.notify,
            metrics=job.metrics,
        )
    keys = ("name", "total", "deadline", "resume", "done_when", "variants", "stages")
    return other, tuple(key for key in keys if getattr(job, key) != getattr(other, key))


def _differ_in_interpreter(command: Sequence[str], other: Sequence[str]) -> bool:
    """Tell whether one is, say, python3 train.py and the other /venv/bin/python train.py."""
    both = all(PYTHON.fullmatch(each[0]) for each in (command, other))
    return both and command[1:] == other[1:]


def _script(command: Sequence[str]) -> str:
    """Return what a command runs: its script, its module, or its program."""
    for before, word in pairwise(("", *command)):
        if word.endswith(".py") or before == "-m":
            return word
    return command[0]


def stage_job(job: Job, stage: Stage) -> Job:
    """Return the job that one stage is."""
    base = with_variant(job, stage.variant) if stage.variant else job
    try:
        command = with_arguments(base.command, stage.arguments)
    except ValueError as error:
        raise JobError(f"stage {stage.name}: {error}") from None
    return replace(
        base,
        command=command,
        name=f"{job.name}-{stage.name}",
        total=stage.total or base.total,
        done_when=stage.done_when or base.done_when,
        deadline=stage.deadline or base.deadline,
        variants={},
        stages=(),
    )
