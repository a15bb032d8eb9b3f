"""``rocsteady run``: watch a training run, know a hang from slowness, restart where it is free."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import click
import msgspec

from rocsteady.cli.detach import detach
from rocsteady.errors import RocsteadyError
from rocsteady.host.child import DETACHED, OURS
from rocsteady.journal.journal import Journal
from rocsteady.journal.memory import Memory
from rocsteady.journal.place import find_place
from rocsteady.knowledge.reader import load_knowledge
from rocsteady.knowledge.waits import load_waits
from rocsteady.pulse.verdict import Patience
from rocsteady.supervisor.job import FILE, Job, JobFile, duration, read_job
from rocsteady.supervisor.records import STRATEGY
from rocsteady.supervisor.run import Supervisor
from rocsteady.supervisor.settings import Settings
from rocsteady.supervisor.trust import doubts, trust


class Duration(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A duration, such as 90s, 10m or 2h 30m."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Read it, or say how it is written."""
        try:
            return duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command("run", context_settings={"ignore_unknown_options": False})
@click.option("--name", help="What to call the run; two words are made up otherwise.")
@click.option("--max-attempts", type=click.IntRange(1, 1000), default=4, show_default=True)
@click.option("--observe", is_flag=True, help="Watch and tell; never act.")
@click.option(
    "--hang-after",
    type=Duration(),
    metavar="DURATION",
    help="End it after so long without progress, also where it cannot be told that it is stuck.",
)
@click.option(
    "--from-scratch",
    is_flag=True,
    help="Restart even a script that cannot resume; what it wrote is copied aside first.",
)
@click.option("--detach", "detached", is_flag=True, help="Go on without this terminal.")
@click.option("--resume", metavar="RUN", help="Go on with a run that was left.")
@click.option(
    "--yes", is_flag=True, help="Do not ask before a job file is used for the first time."
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    name: str | None,
    max_attempts: int,
    observe: bool,
    hang_after: timedelta | None,
    from_scratch: bool,
    detached: bool,
    resume: str | None,
    yes: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND unchanged, watch its steps, and start it again when it hangs or crashes.

    rocsteady run -- python train.py. Without COMMAND, rocsteady.toml says what to run.

    Exit code: the script's own; 75 may be retried without a person, 76 a person is needed or it
    ended without being done, 130 on ^C.
    """
    if detached:
        ctx.exit(detach(sys.argv[1:]))
    folder = Path.cwd()
    place = find_place(folder)
    memory = Memory(place)
    journal = Journal(place)
    try:
        job = _job(folder, command, resume, journal, memory, yes=yes)
        if hang_after is None:
            hang_after = job.hang_after
        settings = Settings(
            max_attempts=max_attempts,
            observe=observe,
            from_scratch=from_scratch,
            patience=_patience(hang_after),
        )
        ctx.exit(_carry_out(job, settings, folder, journal, memory, name=name, resume=resume))
    finally:
        journal.close()
        memory.close()


def _carry_out(  # noqa: PLR0913 - what a run is made of
    job: Job,
    settings: Settings,
    folder: Path,
    journal: Journal,
    memory: Memory,
    *,
    name: str | None,
    resume: str | None,
) -> int:
    first = 1
    if resume is not None:
        run = journal.take_over(resume)
        first = len(journal.story(resume).attempts) + 1
    else:
        run = journal.begin_run(job.command, job=job, strategy=STRATEGY, name=name or job.name)
    supervisor = Supervisor(
        job,
        run,
        folder=folder,
        settings=settings,
        journal=journal,
        memory=memory,
        waits=load_waits(),
        known_variables=frozenset(load_knowledge().variables),
        terminal=DETACHED if os.environ.get("ROCSTEADY_DETACHED") else OURS,
    )
    return supervisor.carry_out(first)


def _job(  # noqa: PLR0913 - each says where a job may come from
    folder: Path,
    command: tuple[str, ...],
    resume: str | None,
    journal: Journal,
    memory: Memory,
    *,
    yes: bool,
) -> Job:
    path = folder / FILE
    if resume is not None:
        kept = journal.story(resume).run.job
        return msgspec.structs.replace(msgspec.convert(kept, Job), command=journal.command(resume))
    if path.exists():
        file = read_job(path)
        _ask(file, memory, yes=yes)
        return msgspec.structs.replace(file.job, command=command) if command else file.job
    if not command:
        raise click.UsageError("name a command: rocsteady run -- python train.py")
    return Job(command=command)


def _ask(file: JobFile, memory: Memory, *, yes: bool) -> None:
    """Show a job file that is not known to be the user's own, before anything of it is run."""
    found = doubts(file, memory)
    if found and not yes:
        click.echo(
            f"rocsteady: {file.path.name}: {', '.join(doubt.value for doubt in found)}.", err=True
        )
        click.echo(file.text, err=True)
        if not sys.stdin.isatty():
            raise RocsteadyError(f"{file.path.name} was not run. Read it, then give --yes.")
        click.confirm("Run it?", abort=True, err=True)
    trust(file, memory)


def _patience(hang_after: timedelta | None) -> Patience:
    if hang_after is None:
        return Patience()
    usual = Patience()
    return Patience(
        long_after=max(hang_after, usual.spin_after),
        works_after=max(hang_after, usual.spin_after),
        long_factor=1.0,
    )
