"""Whether a job file may be run without asking: it names a program.

A job file of the user's own is confirmed when its command has changed since this account last used
it, anybody else's always. What an account used is kept in its own state folder, which does not
travel with a project.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Iterator
from enum import Enum

from rocsteady.run.job.job_file import JobFile
from rocsteady.run.job.metrics import metrics_lines
from rocsteady.run.job.notify import notify_lines
from rocsteady.run.job.values import Job
from rocsteady.store.machine_history import Memory


class Doubt(Enum):
    """Why a job file must be confirmed before it is run."""

    CHANGED = "its command has changed since it was last used"
    ANOTHERS = "it belongs to another user"
    OPEN = "other users can write to it"


def doubts(file: JobFile, memory: Memory) -> tuple[Doubt, ...]:
    """Return why a job file must be confirmed first. Nothing: it may be run."""
    found: list[Doubt] = []
    seen = memory.seen(_key(file))
    same = seen is not None and seen.sha256 == file.sha256
    if sys.platform != "win32":
        if file.owner != os.geteuid():
            found.append(Doubt.ANOTHERS)
        if file.mode & (stat.S_IWGRP | stat.S_IWOTH) and not same:
            found.append(Doubt.OPEN)
    if seen is not None and not same and seen.commands != tuple(_commands(file.job)):
        found.append(Doubt.CHANGED)
    return tuple(found)


def changes(file: JobFile, memory: Memory) -> tuple[str, ...]:
    """Return what would be run in place of what was run last, as lines with - and +."""
    seen = memory.seen(_key(file))
    before, now = seen.commands if seen else (), tuple(_commands(file.job))
    gone = [f"- {line}" for line in before if line not in now]
    return (*gone, *(f"+ {line}" for line in now if line not in before))


def trust(file: JobFile, memory: Memory) -> None:
    """Remember a job file, as it is, once it may be run."""
    memory.saw(_key(file), file.sha256, tuple(_commands(file.job)))


def _commands(job: Job) -> Iterator[str]:
    """Spell all that a job file can make a program of: its command, and what is added to it."""
    yield f"command: {shlex.join(job.command)}"
    if job.resume is not None:
        if job.resume.arguments:
            yield f"resume.arguments: {shlex.join(job.resume.arguments)}"
        for name, value in job.resume.environment.items():
            yield f"resume.environment: {name}={value}"
    for name, variant in job.variants.items():
        yield f"variants.{name}.arguments: {shlex.join(variant.arguments)}"
        if variant.without:
            yield f"variants.{name}.without: {shlex.join(variant.without)}"
    for stage in job.stages:
        yield f"stages.{stage.name}.arguments: {shlex.join(stage.arguments)}"
    yield from notify_lines(job.notify)
    yield from metrics_lines(job.metrics)


def _key(file: JobFile) -> str:
    return str(file.path.absolute())
