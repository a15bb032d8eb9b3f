"""What commands share that start a training command: leave to use its job file, and a course."""

from __future__ import annotations

import os
import shlex
import sys
from datetime import timedelta
from functools import cache
from pathlib import Path

import click

from rocsteady.cli.command_check import check_interpreter
from rocsteady.cli.screen import json_text, tell
from rocsteady.errors import RocsteadyError
from rocsteady.job.job_file import FILE, JobFile, read_job
from rocsteady.job.stages import for_command
from rocsteady.job.trust import (
    Doubt,
    changes,
    doubts,
    trust,
)
from rocsteady.job.values import Job
from rocsteady.journal.identity import script_fingerprint
from rocsteady.journal.journal import Journal
from rocsteady.journal.memory import Memory
from rocsteady.journal.place import Place
from rocsteady.journal.run_trust import knows_run, remember_run
from rocsteady.journal.values import Run
from rocsteady.knowledge.harmful import harmful_variables
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.disk_root import DiskRoot
from rocsteady.machine.machine import Machine, examine
from rocsteady.pulse.verdict import Patience
from rocsteady.supervisor.course import Course, Wanted


def course_for(  # noqa: PLR0913, PLR0917 - all that it rests on
    wanted: Wanted,
    job: Job,
    folder: Path,
    journal: Journal,
    memory: Memory | None,
    known: Knowledge,
) -> Course:
    """Make the course of a run here; the machine is examined when that is first needed."""

    @cache
    def machine() -> Machine:
        return examined(known)

    telling = {*known.variables, *(each.name for each in harmful_variables())}
    return Course(
        wanted,
        script=script_fingerprint(job.command, str(folder)),
        here=journal.here.machine,
        memory=memory,
        knowledge=known,
        machine=machine,
        variables={name: os.environ[name] for name in telling if name in os.environ},
    )


def examined(known: Knowledge) -> Machine:
    """Return what this machine is."""
    return examine(DiskRoot(), known.variables)[0]


def job_here(
    folder: Path, command: tuple[str, ...], memory: Memory, *, yes: bool, example: str
) -> Job:
    """Return the job of a folder's file, or of a command that is given in place of its own."""
    path = folder / FILE
    if path.exists():
        file = read_job(path)
        check_interpreter(command or file.job.command, folder)
        ask_about(file, memory, yes=yes)
        job, dropped = for_command(file.job, command or file.job.command)
        if dropped:
            own = shlex.join(file.job.command)
            keys = ", ".join(dropped)
            click.echo(
                f"rocsteady: {FILE} is for another command ({own}); not used from it: {keys}.",
                err=True,
            )
        return job
    if not command:
        raise click.UsageError(f"name a command: {example}")
    check_interpreter(command, folder)
    return Job(command=command)


def ask_about(file: JobFile, memory: Memory, *, yes: bool) -> None:
    """Ask before a job file is run that is not the user's own, or whose command has changed."""
    found = doubts(file, memory)
    if found and not yes:
        tell(f"rocsteady: {file.path.name}: {', '.join(doubt.value for doubt in found)}.")
        changed = "" if set(found) - {Doubt.CHANGED} else "\n".join(changes(file, memory))
        tell(changed or file.text)
        if not sys.stdin.isatty():
            raise click.UsageError(
                f"{file.path.name} was not run. Read it, then use --yes to run it."
            )
        if not click.confirm("Run it?", err=True):
            raise RocsteadyError(f"{file.path.name} was not run")
    trust(file, memory)


def ask_about_run(run: Run, place: Place, memory: Memory, *, yes: bool) -> None:
    """Show the command of a run that this account has no record of, before it is started again."""
    if knows_run(run, place, memory):
        return
    if not yes:
        tell(f"rocsteady: {run.name}: this account has no record of starting this run. It says:")
        tell(f"command: {shlex.join(run.command)}\njob: {json_text(run.job).rstrip()}")
        not_run = RocsteadyError(f"{run.name} was not started. Read its command, then use --yes.")
        if not sys.stdin.isatty() or not click.confirm("Run it?", err=True):
            raise not_run
    remember_run(run, place, memory)


def patience_for(hang_after: timedelta | None) -> Patience:
    """Return how long is too long; the user's own limit replaces those of all that is unproven."""
    return Patience(hang_after=hang_after)
