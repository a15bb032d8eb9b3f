"""Checks and questions before a training command is started: its job file, run and paths."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click
import msgspec

from rocsteady.errors import RocsteadyError
from rocsteady.failures.difference import describe_changes
from rocsteady.failures.remedy import set_by_no_workaround
from rocsteady.model import Strategy
from rocsteady.probe.scratch import outside
from rocsteady.run.checkpoints.checkpoints import Checkpoints
from rocsteady.run.job import FILE
from rocsteady.run.job.job_file import JobFile, read_job
from rocsteady.run.job.stages import for_command
from rocsteady.run.job.trust import LOADS_CODE, changes, doubts, trust
from rocsteady.run.job.values import Existing, Job
from rocsteady.screens.screen import json_text, tell
from rocsteady.store.account_records import Orders
from rocsteady.store.journal import Journal
from rocsteady.store.redaction import shown_command
from rocsteady.store.values import Run
from rocsteady.typed_values import convert

QUIT = "quit"
EXAMPLE = ("--", "python", "train.py")


def as_typed(*options: str, after: Sequence[str] = ()) -> str:
    """Return the command line that was typed, with options that it lacks, and what comes last."""
    program = click.get_current_context().command_path.split()
    given = sys.argv[len(program) :]
    given = given[:-1] if after and given[-1:] == ["--"] else given
    return shown_command((*program, *options, *given, *after))


def job_here(folder: Path, command: tuple[str, ...], *, yes: bool, of_ranks: bool = False) -> Job:
    """Return the job of a folder's file, or of a command that is given in place of its own.

    torchrun can ask nobody: without a confirmation, its job has no file.
    """
    path = folder / FILE
    if path.exists():
        file = read_job(path)
        check_interpreter(command or file.job.command, folder)
        job, dropped = for_command(file.job, command or file.job.command)
        if of_ranks and not yes and doubts(file, job):
            tell(f"rocsteady: {FILE} is not used. Read it, then: export ROCSTEADY_YES=1")
            return Job(command=command)
        ask_about(file, yes=yes, typed=job if command else None)
        if dropped:
            own = shown_command(file.job.command)
            keys = ", ".join(dropped)
            click.echo(
                f"rocsteady: {FILE} is for another command ({own}); ignoring its {keys}.",
                err=True,
            )
        return job
    if not command:
        raise click.UsageError(f"name a command: {as_typed(after=EXAMPLE)}")
    check_interpreter(command, folder)
    return Job(command=command)


def ask_about(file: JobFile, *, yes: bool, typed: Job | None = None) -> None:
    """Ask before a job file is used for the first time, is not the user's own, or has changed."""
    found = doubts(file, typed)
    if found and not yes:
        tell(f"rocsteady: {file.path.name}: {', '.join(doubt.value for doubt in found)}. It says:")
        _show(changes(file) or file.text.splitlines())
        if not sys.stdin.isatty():
            allow = as_typed("--yes")
            raise click.UsageError(f"nothing was started. Read it, then allow it: {allow}")
        if not click.confirm("Use it?", err=True):
            raise RocsteadyError("nothing was started")
    if found or typed is None:
        trust(file)


def job_of_run(run: Run, folder: Path, journal: Journal, *, yes: bool) -> Job:
    """Return the job of a run of the past, as this account agrees that it is started again."""
    orders = journal.orders(run.name)
    try:
        job = convert(orders.run.job, Job)
    except msgspec.ValidationError as error:
        raise RocsteadyError(f"{run.name}: its job cannot be read: {error}") from None
    job = msgspec.structs.replace(job, command=orders.run.command)
    if not orders.chosen:
        _ask_about_run(orders, job, folder, yes=yes)
        journal.agree(orders)
    return job


def _ask_about_run(orders: Orders, job: Job, folder: Path, *, yes: bool) -> None:
    """Show what a run would start and set that this account has not begun so, before it does."""
    run = orders.run
    resume = job.resume.environment if job.resume and not orders.known else {}
    refused = [name for name in resume if LOADS_CODE.fullmatch(name)]
    refused += [name for each in orders.others for name in set_by_no_workaround(each)]
    if refused:
        raise RocsteadyError(
            f"{run.name} was not started: its journal sets {refused[0]}, and this account did not"
        )
    if not yes:
        what = "did not choose all its settings" if orders.known else "has no record of this run"
        tell(f"rocsteady: {run.name}: this account {what}. Its journal says:")
        _show(_spelled(orders, job, folder))
        not_run = RocsteadyError(f"{run.name} was not started. Read its command, then use --yes.")
        if not sys.stdin.isatty() or not click.confirm("Run it?", err=True):
            raise not_run


def _show(orders: Iterable[str]) -> None:
    """Show what is asked about, a line each: no value can look like another line."""
    tell("\n".join(order.replace("\n", "\\n") for order in orders))


def _spelled(orders: Orders, job: Job, folder: Path) -> Iterator[str]:
    """Spell all that a run starts and sets when it is resumed."""
    run = orders.run
    yield f"command: {shlex.join(run.command)}"
    yield from f"job: {json_text(run.job)}".splitlines()
    for each in orders.others:
        yield f"settings: {describe_changes(Strategy(), each)}"
    checkpoints = Checkpoints(job, folder, Path(run.folder), None, run.started)
    if job.resume is None:
        yield f"resume: {checkpoints.method.words}"
    checkpoints.take_up_written()
    if newest := checkpoints.newest():
        yield f"checkpoint: {newest.path}"


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
    if not program.endswith(SCRIPT) or not os.path.isfile(folder / program):  # noqa: PTH113
        return  # what may not be looked at is refused when it is started
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
