"""Checks and questions before a training command is started: its job file, run and paths."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from rocsteady.errors import RocsteadyError
from rocsteady.failures.remedy import believed
from rocsteady.model import Strategy
from rocsteady.probe.scratch import outside
from rocsteady.run.job import FILE
from rocsteady.run.job.job_file import JobFile, read_job
from rocsteady.run.job.stages import for_command
from rocsteady.run.job.trust import LOADS_CODE, changes, doubts, trust
from rocsteady.run.job.values import Existing, Job
from rocsteady.screens.screen import json_text, tell
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import Memory, knows_run, remember_run
from rocsteady.store.redaction import shown_command
from rocsteady.store.values import Run

QUIT = "quit"


def job_here(
    folder: Path, command: tuple[str, ...], memory: Memory, *, yes: bool, example: str
) -> Job:
    """Return the job of a folder's file, or of a command that is given in place of its own."""
    path = folder / FILE
    if path.exists():
        file = read_job(path)
        check_interpreter(command or file.job.command, folder)
        job, dropped = for_command(file.job, command or file.job.command)
        ask_about(file, memory, yes=yes, typed=job if command else None)
        if dropped:
            own = shown_command(file.job.command)
            keys = ", ".join(dropped)
            click.echo(
                f"rocsteady: {FILE} is for another command ({own}); ignoring its {keys}.",
                err=True,
            )
        return job
    if not command:
        raise click.UsageError(f"name a command: {example}")
    check_interpreter(command, folder)
    return Job(command=command)


def ask_about(file: JobFile, memory: Memory, *, yes: bool, typed: Job | None = None) -> None:
    """Ask before a job file is used for the first time, is not the user's own, or has changed."""
    found = doubts(file, memory, typed)
    if found and not yes:
        tell(f"rocsteady: {file.path.name}: {', '.join(doubt.value for doubt in found)}. It says:")
        tell("\n".join(changes(file, memory)) or file.text)
        if not sys.stdin.isatty():
            own = f" -- {shown_command(typed.command)}" if typed else ""
            allow = f"{click.get_current_context().command_path} --yes{own}"
            raise click.UsageError(f"nothing was started. Read it, then allow it: {allow}")
        if not click.confirm("Use it?", err=True):
            raise RocsteadyError("nothing was started")
    if found or typed is None:
        trust(file, memory)


def ask_about_run(run: Run, journal: Journal, memory: Memory, *, yes: bool) -> None:
    """Show what a run that this account has no record of starts and sets, before it does so."""
    place = journal.place
    if knows_run(run, place, memory):
        return
    story = journal.story(run.name)
    strategies = [each.strategy for each in story.attempts[-1:]]
    strategies += [each.decision.strategy for each in story.decisions[-1:]]
    strategies = [believed(each, (run.strategy,)) for each in strategies]
    resume = run.job.get("resume")
    job_variables = resume.get("environment") if isinstance(resume, dict) else None
    for name in (*(n for each in strategies for n in each.variables), *(job_variables or ())):
        if LOADS_CODE.fullmatch(name):
            raise RocsteadyError(
                f"{run.name} was not started: its journal sets {name}, and this account has no"
                " record of this run"
            )
    if not yes:
        tell(f"rocsteady: {run.name}: this account has no record of this run. Its journal says:")
        tell(f"command: {shlex.join(run.command)}\njob: {json_text(run.job).rstrip()}")
        for strategy in strategies:
            if strategy != Strategy():
                tell(f"strategy: {json_text(strategy).rstrip()}")
        not_run = RocsteadyError(f"{run.name} was not started. Read its command, then use --yes.")
        if not sys.stdin.isatty() or not click.confirm("Run it?", err=True):
            raise not_run
    remember_run(run, place, memory)


def ask_about_paths(words: Sequence[str], folder: Path, what: str, *, yes: bool) -> None:
    """Name paths that the script would really write to."""
    found = outside(words, folder)
    if not found or yes:
        return
    tell(
        f"rocsteady: not protected, because outside this folder: {', '.join(found)}. If the script"
        f" writes there, the {what} does too."
    )
    if not sys.stdin.isatty() or not click.confirm("Continue?", err=True):
        raise click.UsageError("nothing was started. Use other paths, or --yes to accept this.")


def ask_existing(found: str, usual: Existing) -> Existing:
    choices = [Existing.CONTINUE.value, Existing.FRESH.value, QUIT]
    answer = click.prompt(
        f"{found} Continue from them, start fresh, or quit?",
        type=click.Choice(choices),
        default=usual.value,
        err=True,
    )
    if answer == QUIT:
        raise click.Abort
    return Existing(answer)


def at_a_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


SCRIPT = ".py"


def check_interpreter(command: tuple[str, ...], folder: Path) -> None:
    """Refuse a Python script without an interpreter, and offer the command with one."""
    program = command[0]
    if not program.endswith(SCRIPT) or not (folder / program).is_file():
        return
    found = folder / program if os.path.dirname(program) else shutil.which(program)  # noqa: PTH120
    if found and os.access(found, os.X_OK):
        return
    python = "python" if shutil.which("python") or not shutil.which("python3") else "python3"
    raise click.UsageError(
        f"{program} is a script, not a program. Did you mean: {shown_command((python, *command))}"
    )


def check_command(command: tuple[str, ...], folder: Path) -> None:
    """Refuse a program that does not exist, before anything is created for it."""
    check_interpreter(command, folder)
    if shutil.which(command[0]) is None and not (folder / command[0]).exists():
        raise click.UsageError(f"{command[0]}: not found")
