"""``rocsteady run``: watch a training run, know a hang from slowness, restart where it is free."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click
import msgspec

from rocsteady.cli.detach import WITHOUT_TERMINAL, detach
from rocsteady.cli.starting import ask_about, course_for, patience_for
from rocsteady.errors import NotRecordedError, RocsteadyError
from rocsteady.host.child import DETACHED, OURS
from rocsteady.journal.journal import Journal
from rocsteady.journal.memory import Memory
from rocsteady.journal.place import find_place
from rocsteady.journal.values import Run, RunStory
from rocsteady.knowledge.reader import load_knowledge
from rocsteady.knowledge.waits import load_waits
from rocsteady.remedies.catalog import RUNGS
from rocsteady.supervisor.course import Wanted, as_json
from rocsteady.supervisor.decision import PERSON_NEEDED
from rocsteady.supervisor.finish import DONE
from rocsteady.supervisor.job import FILE, Job, duration, read_job
from rocsteady.supervisor.run import Supervisor
from rocsteady.supervisor.settings import Settings
from rocsteady.vocabulary import Strategy


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


class Remedies(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Ids of remedies, with commas between them."""

    name = "ID[,ID]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Read them, or say which one there is not."""
        if isinstance(value, tuple):
            return value
        ids = tuple(word.strip() for word in str(value).split(",") if word.strip())
        for each in ids:
            if each not in RUNGS:
                self.fail(f"there is no remedy {each!r}; rocsteady remedies lists them", param, ctx)
        return ids


# What follows the command's first word is the command's own, also an option that we have too.
@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--name", help="What to call the run; two words are made up otherwise.")
@click.option(
    "--max-attempts",
    type=click.IntRange(1, 1000),
    help="In all. Without it: as long as remedies are left and it gets further; 4 without them.",
)
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
@click.option("--no-remedies", is_flag=True, help="After a failure only the same again.")
@click.option("--allow", type=Remedies(), default=(), help="Only these remedies.")
@click.option("--deny", type=Remedies(), default=(), help="Never these remedies.")
@click.option("--with", "start_with", type=Remedies(), default=(), help="Start with these.")
@click.option("--again", is_flag=True, help="Also what took this machine down before.")
@click.option("--detach", "detached", is_flag=True, help="Go on without this terminal.")
@click.option("--resume", metavar="RUN", help="Go on with a run that was left.")
@click.option(
    "--yes", is_flag=True, help="Do not ask before a job file is used for the first time."
)
@click.option(WITHOUT_TERMINAL, "alone", is_flag=True, hidden=True)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    name: str | None,
    max_attempts: int | None,
    observe: bool,
    hang_after: timedelta | None,
    from_scratch: bool,
    no_remedies: bool,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    start_with: tuple[str, ...],
    again: bool,
    detached: bool,
    resume: str | None,
    yes: bool,
    alone: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND unchanged, watch its steps, and start it again when it hangs or crashes.

    rocsteady run -- python train.py. Without COMMAND, rocsteady.toml says what to run.

    Exit code: the script's own; 75 may be retried without a person, 76 a person is needed or it
    ended without being done, 130 on ^C.
    """
    if resume is not None and (command or name):
        raise click.UsageError("--resume takes the run's own command and name")
    folder = Path.cwd()
    place = find_place(folder)
    memory = Memory(place)
    journal = Journal(place)
    code = PERSON_NEEDED
    try:
        job = _job(folder, command, resume, journal, memory, yes=yes)
        settings = Settings(
            max_attempts=max_attempts,
            observe=observe,
            from_scratch=from_scratch,
            remedies=not no_remedies,
            patience=patience_for(hang_after or job.hang_after),
        )
        if detached:
            code = detach(_again(ctx.params), folder, journal)
        else:
            wanted = Wanted(allow=allow, deny=deny, start_with=start_with, again=again)
            known = load_knowledge()
            run, earlier = _run(job, journal, name=name, resume=resume)
            code = Supervisor(
                job,
                run,
                folder=folder,
                settings=settings,
                journal=journal,
                memory=memory,
                waits=load_waits(),
                known_variables=frozenset(known.variables),
                course=course_for(wanted, job, folder, journal, memory, known),
                terminal=DETACHED if alone else OURS,
                earlier=earlier,
            ).carry_out()
    except NotRecordedError as error:
        click.echo(f"rocsteady: {error}. Nothing was started.", err=True)
    finally:
        kept = journal.close()
        memory.close()
    if not kept:
        click.echo("rocsteady: the end of the journal could not be written.", err=True)
    ctx.exit(code)


def _again(options: dict[str, object]) -> list[str]:
    """Spell our own options once more, for the one that goes on without a terminal."""
    flags = ("observe", "from_scratch", "no_remedies", "again")
    words = ["--yes", *(f"--{flag.replace('_', '-')}" for flag in flags if options[flag])]
    for option in ("name", "resume", "max_attempts"):
        if options[option] is not None:
            words += [f"--{option.replace('_', '-')}", str(options[option])]
    for option, spelt in (("allow", "--allow"), ("deny", "--deny"), ("start_with", "--with")):
        ids = options[option]
        if isinstance(ids, tuple) and ids:
            words += [spelt, ",".join(ids)]
    if isinstance(options["hang_after"], timedelta):
        words += ["--hang-after", f"{options['hang_after'].total_seconds():.3f}s"]
    command = options["command"]
    return [*words, "--", *command] if isinstance(command, tuple) else words


def _run(
    job: Job, journal: Journal, *, name: str | None, resume: str | None
) -> tuple[Run, RunStory | None]:
    """Begin a run, or take over one that was left."""
    if resume is None:
        name = name or (_free_name(job.name, journal) if job.name else None)
        strategy = as_json(Strategy())
        return journal.begin_run(job.command, job=job, strategy=strategy, name=name), None
    line = next(line for line in journal.runs() if line.run.name == resume)
    if line.alive:
        raise RocsteadyError(f"{resume} is running; rocsteady stop {resume} ends it")
    if line.run.outcome == DONE:
        raise RocsteadyError(f"{resume} is done: there is nothing to go on with")
    earlier = journal.story(resume)
    return journal.take_over(resume), earlier


def _free_name(wanted: str, journal: Journal) -> str:
    """Give each run of a job file that names them a number, from the second on."""
    taken = {line.run.name for line in journal.runs()}
    number = 2
    name = wanted
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name


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
        try:
            kept = msgspec.convert(journal.story(resume).run.job, Job)
        except msgspec.ValidationError as error:
            raise RocsteadyError(f"{resume}: its job cannot be read: {error}") from None
        return msgspec.structs.replace(kept, command=journal.command(resume))
    if path.exists():
        file = read_job(path)
        ask_about(file, memory, yes=yes)
        return msgspec.structs.replace(file.job, command=command) if command else file.job
    if not command:
        raise click.UsageError("name a command: rocsteady run -- python train.py")
    return Job(command=command)
