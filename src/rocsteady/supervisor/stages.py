"""Variants and stages of a job: the same script with other arguments, as jobs of their own."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import pairwise

from msgspec.structs import replace

from rocsteady.errors import JobError
from rocsteady.journal.values import Run
from rocsteady.supervisor.arguments import with_arguments
from rocsteady.supervisor.job_values import Deadline, Job, Stage, Total
from rocsteady.vocabulary import Value


class Turn(Value, frozen=True, kw_only=True):
    """A stage as it is carried out, and the run that has done it."""

    number: int  # from 1
    of: int
    name: str  # of the stage
    job: Job  # its name is that of its run
    done_by: str = ""  # the name of a run; "": it is not done

    @property
    def title(self) -> str:
        """What it is called to a person."""
        return f"stage {self.number} of {self.of}, {self.name}"


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
    arguments counts and resumes in the same way, and writes the same files.
    """
    if command == job.command:
        return job, ()
    if _script(command) == _script(job.command):
        total = Total(log=job.total.log) if job.total and job.total.log else None
        other = replace(job, command=command, total=total, deadline=None, stages=())
    else:
        other = Job(
            command=command,
            budget=job.budget,
            hang_after=job.hang_after,
            log_limit=job.log_limit,
        )
    keys = ("name", "total", "deadline", "resume", "done_when", "variants", "stages")
    return other, tuple(key for key in keys if getattr(job, key) != getattr(other, key))


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


def survey(job: Job, runs: Sequence[Run]) -> tuple[Turn, ...]:
    """Return the stages of a job in order, each with that of the ``runs`` that has done it.

    The time that a job has from its start begins with the first of them.
    """
    jobs = [stage_job(job, stage) for stage in job.stages]
    done = [_done(each, runs) for each in jobs]
    since = min((run.started for run in done if run is not None), default=time.time())
    due = _due(job.deadline, since)
    return tuple(
        Turn(
            number=number,
            of=len(jobs),
            name=stage.name,
            job=each if stage.deadline else replace(each, deadline=due),
            done_by=run.name if run else "",
        )
        for number, (stage, each, run) in enumerate(zip(job.stages, jobs, done, strict=True), 1)
    )


def _done(job: Job, runs: Sequence[Run]) -> Run | None:
    """Return the run of a stage that had the same command."""
    numbered = re.compile(rf"{re.escape(job.name or '')}(-[0-9]+)?")
    same = (run for run in runs if run.command == job.command and numbered.fullmatch(run.name))
    return next(same, None)


def _due(deadline: Deadline | None, since: float) -> Deadline | None:
    """Turn a time from the start into a moment: each stage is a run with a start of its own."""
    if deadline is None or deadline.within is None:
        return deadline
    start = datetime.fromtimestamp(since, tz=timezone.utc).astimezone()
    return Deadline(at=start + deadline.within)
