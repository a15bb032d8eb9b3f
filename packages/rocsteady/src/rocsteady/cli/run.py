"""``rocsteady run``: watch a training run, know a hang from slowness, restart where it is free."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from rocsteady.cli.detach import WITHOUT_TERMINAL, detach
from rocsteady.cli.duration import Duration
from rocsteady.cli.project import enter, find_job_folder, find_project
from rocsteady.cli.project_journal import find_run, kept_journal
from rocsteady.errors import (
    ExaminationError,
    JobError,
    JournalError,
    NotRecordedError,
    RequestError,
    RocsteadyError,
)
from rocsteady.exit_codes import PERSON_NEEDED
from rocsteady.failures.remedy import load_remedies
from rocsteady.plan.saved_plan import command_of, planned
from rocsteady.run.attempt_settings import Settings
from rocsteady.run.engines.elastic import AgentLink
from rocsteady.run.existing_checkpoints import Choice
from rocsteady.run.job import FILE
from rocsteady.run.job.run_names import check_name
from rocsteady.run.job.values import Existing, Job
from rocsteady.run.runs import RunLauncher
from rocsteady.run.stages import Turn, are_done, carry_out_stages, turns_of
from rocsteady.run.strategy_history import RunWishes
from rocsteady.run.supervision import patience_for
from rocsteady.screens.command_check import check_interpreter
from rocsteady.screens.job_questions import ask_about_run, ask_existing, at_a_terminal, job_here
from rocsteady.screens.screen import tell
from rocsteady.store.journal import Journal
from rocsteady.store.location import Place, existing_places, find_place
from rocsteady.store.machine_history import Memory
from rocsteady.suggestions import no_such
from rocsteady.system.child_end import DETACHED, OURS
from rocsteady.system.full_screen import FullScreen

EXAMPLE = "rocsteady run -- python train.py"


class RunName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A name for a run."""

    name = "NAME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return it, or say how a name is written."""
        try:
            return check_name(str(value))
        except JournalError as error:
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
            if each not in load_remedies():
                listed = "To list them: rocsteady explain --workarounds"
                self.fail(no_such("workaround", each, load_remedies(), listed), param, ctx)
        return ids


class RunCommand(click.Command):
    """A command of which every refusal needs a person: 1 would be taken for the script's own."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click has it
        """Run it."""
        try:
            return super().invoke(ctx)
        except (JobError, ExaminationError, RequestError):
            raise
        except RocsteadyError as error:
            tell(f"rocsteady: {error}")
            ctx.exit(PERSON_NEEDED)


# What follows the command's first word is the command's own, also an option that we have too.
@click.command("run", cls=RunCommand, context_settings={"allow_interspersed_args": False})
@click.option("--name", type=RunName(), help="Name of the run. Default: two random words.")
@click.option(
    "--max-attempts",
    type=click.IntRange(1, 1000),
    help="Stop after this many attempts. Default: continue until remedies run out.",
)
@click.option("--observe", is_flag=True, help="Only observe; never stop or restart the run.")
@click.option(
    "--hang-after",
    type=Duration(),
    metavar="DURATION",
    help="Stop the run after this long without progress, even if it is not proven to be stuck.",
)
@click.option(
    "--from-scratch",
    is_flag=True,
    help="Restart even a script that cannot resume; its output files are backed up first.",
)
@click.option("--no-remedies", is_flag=True, help="Retry without changing any settings.")
@click.option("--allow", type=Remedies(), default=(), help="Use only these remedies.")
@click.option("--deny", type=Remedies(), default=(), help="Never use these remedies.")
@click.option(
    "--with", "start_with", type=Remedies(), default=(), help="Start with these remedies applied."
)
@click.option("--again", is_flag=True, help="Also allow settings that have crashed this machine.")
@click.option(
    "--detach", "detached", is_flag=True, help="Run in the background, detached from this terminal."
)
@click.option(
    "--watch",
    "watched",
    is_flag=True,
    help="Run in the background and open rocsteady watch here.",
)
@click.option("--resume", metavar="RUN", help="Resume a run that ended or was stopped.")
@click.option("--fresh", is_flag=True, help="Ignore checkpoints from before this run.")
@click.option(
    "--continue", "go_on", is_flag=True, help="Resume from the newest existing checkpoint."
)
@click.option(
    "--anyway",
    is_flag=True,
    help="Start even if a run of the same job or with the same checkpoints is running here.",
)
@click.option(
    "--plan",
    "plan",
    type=click.IntRange(1),
    metavar="N",
    help="Run option N of the last plan; fall back to the options after it.",
)
@click.option("--stage", metavar="NAME", help="Start at this stage of the job file.")
@click.option(
    "--yes",
    is_flag=True,
    help="Skip all confirmations; also allow --stage out of order.",
)
@click.option(WITHOUT_TERMINAL, "alone", is_flag=True, hidden=True)
@click.option("--ranks", type=int, hidden=True)  # a socket to the torchrun whose ranks are watched
@click.option("--several-hosts", is_flag=True, hidden=True)  # have ranks of that torchrun's job
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    /,
    *,
    name: str | None,
    resume: str | None,
    fresh: bool,
    go_on: bool,
    anyway: bool,
    plan: int | None,
    stage: str | None,
    yes: bool,
    alone: bool,
    command: tuple[str, ...],
    **_: object,  # which _settings, _wishes, _link and _launch read
) -> None:
    """Run COMMAND, watch its progress, and restart it when it hangs or crashes.

    rocsteady run -- python train.py. Without COMMAND, runs the command in rocsteady.toml.

    Exit code: the script's own; 75 the run can be retried automatically, 76 a person is needed or
    the run ended before the job was done, 2 incorrect usage, 130 on ^C.
    """
    _check(ctx.params)
    folder = _folder(command, resume)
    typed, command = bool(command), command if plan is None else command_of(folder, command)
    _check_job(folder, command, resume)
    place = _place(folder, resume)
    memory, journal = Memory(place), Journal(place)
    code = PERSON_NEEDED
    try:
        journal.flush()  # within its bound; what reads the journal from here on has none
        job = _job(folder, command, resume, journal, memory, yes=yes)
        job, wanted = _wishes(ctx.params, folder, job)
        if stage is not None and not job.stages:
            raise click.UsageError(f"--stage needs stages in {FILE}; leave out the command")
        turns = turns_of(job, journal, name=name, first=stage, yes=yes)
        if not turns:
            _check_free(name, journal)
        runner = RunLauncher(
            folder=folder,
            settings=_settings(ctx.params, job),
            wanted=wanted,
            journal=journal,
            memory=memory,
            terminal=DETACHED if alone else OURS,
            choice=_choice(typed=typed, fresh=fresh, go_on=go_on, ask=not (yes or alone)),
            alone=not anyway,
            link=_link(ctx.params),
        )
        runner = runner.chosen(_first(job, turns), resume)
        code = _launch(ctx.params, job, turns, runner)
    except NotRecordedError as error:
        tell(f"rocsteady: {error}. Nothing was started.")
    finally:
        kept = journal.close()
        memory.close()
    if not kept:
        tell("rocsteady: the last journal entries could not be written.")
    ctx.exit(code)


def _wishes(options: dict[str, Any], folder: Path, job: Job) -> tuple[Job, RunWishes]:
    """Return what was said of remedies, and the job: with --plan that of an option."""
    names = ("allow", "deny", "start_with", "again")
    wanted = RunWishes(**{name: options[name] for name in names})
    if options["plan"] is None:
        return job, wanted
    job, option, after = planned(folder, job, options["plan"])
    return job, msgspec.structs.replace(wanted, strategy=option.strategy, options=after)


def _link(options: dict[str, Any]) -> AgentLink | None:
    if options["ranks"] is None:
        return None
    return AgentLink(options["ranks"], os.environ, several_hosts=options["several_hosts"])


def _settings(options: dict[str, Any], job: Job) -> Settings:
    return Settings(
        max_attempts=options["max_attempts"],
        observe=options["observe"],
        from_scratch=options["from_scratch"],
        remedies=not options["no_remedies"],
        patience=patience_for(options["hang_after"] or job.hang_after),
    )


def _launch(options: dict[str, Any], job: Job, turns: tuple[Turn, ...], runner: RunLauncher) -> int:
    """Carry out the run, here or in the background, or the stages that are left of it."""
    if turns and are_done(turns):
        return 0
    if options["resume"] is not None and runner.is_done(options["resume"]):
        tell(f"rocsteady: {options['resume']} is done; there is nothing to resume.")
        return 0
    if options["detached"] or options["watched"]:
        name = detach(_again(options, runner.choice), runner.folder, runner.journal)
        return _view(runner.journal, name) if options["watched"] else 0
    if turns:
        return carry_out_stages(turns, runner.carry_out)
    return runner.carry_out(job, name=options["name"], resume=options["resume"])[0]


def _view(journal: Journal, name: str) -> int:
    """Show the run on a full screen until the user leaves it, and say what became of it."""
    from rocsteady.cli.watch_screen import watch_screen  # noqa: PLC0415 - only --watch needs it

    code = watch_screen(journal, name)
    run = find_run(journal, name).run
    if run.ended is None:
        tell(f"rocsteady: {name} continues in the background. To view it: rocsteady watch {name}")
    else:
        tell(
            f"rocsteady: {name}: {run.outcome.value}. To see what happened: rocsteady report {name}"
        )
    return code


def _folder(command: tuple[str, ...], resume: str | None) -> Path:
    """Return where the run takes place; refuse what cannot run before anything is created."""
    here = Path.cwd()
    if command:  # as it was typed, here
        check_interpreter(command, here)
        return here
    return enter(find_project(here) if resume is not None else find_job_folder(here))


def _check_job(folder: Path, command: tuple[str, ...], resume: str | None) -> None:
    """Refuse a run of nothing, before a journal is created for it."""
    if resume is not None and not existing_places(folder):
        find_run(None, resume)
    if resume is None and not command and not os.path.lexists(folder / FILE):
        raise click.UsageError(f"name a command: {EXAMPLE}")


def _place(folder: Path, resume: str | None) -> Place:
    """Return where the run is recorded: one that is resumed where it was before."""
    here = find_place(folder)
    if resume is None:
        return here
    with kept_journal(resume) as journal:
        kept = journal.place if journal else None
    return (
        msgspec.structs.replace(here, folder=kept.folder, database=kept.database, wal=kept.wal)
        if kept
        else here
    )


def _check(options: dict[str, object]) -> None:
    """Refuse options that contradict each other."""
    if options["watched"] and not FullScreen.is_possible():
        raise click.UsageError("--watch needs a terminal; without it, use --detach")
    own = ("command", "name", "stage", "plan")
    if options["resume"] is not None and any(options[each] for each in own):
        raise click.UsageError("--resume uses the run's own command and name; leave yours out")
    if options["fresh"] and options["go_on"]:
        raise click.UsageError("--fresh and --continue cannot be combined")
    if options["resume"] is not None and (options["fresh"] or options["go_on"]):
        raise click.UsageError("--resume cannot be combined with --fresh or --continue")
    if options["plan"] is not None and options["start_with"]:
        raise click.UsageError("--plan has its own settings and cannot be combined with --with")


def _check_free(name: str | None, journal: Journal) -> None:
    """Refuse the name of another run."""
    if name is not None and any(line.run.name == name for line in journal.runs()):
        raise click.UsageError(
            f"a run named {name!r} already exists. Choose another --name, or continue that run:"
            f" rocsteady run --resume {name}"
        )


def _choice(*, typed: bool, fresh: bool, go_on: bool, ask: bool) -> Choice:
    existing = Existing.FRESH if fresh else Existing.CONTINUE if go_on else None
    asks = ask_existing if ask and at_a_terminal() else None
    return Choice(existing=existing, typed=typed, ask=asks)


def _first(job: Job, turns: tuple[Turn, ...]) -> Job:
    """Return the job that is carried out first: a stage that is not done, or all of it."""
    return next((turn.job for turn in turns if not turn.done_by), job)


def _again(options: dict[str, object], choice: Choice) -> list[str]:
    """Spell our own options once more, for the one that goes on without a terminal."""
    flags = ("observe", "from_scratch", "no_remedies", "again", "anyway")
    words = ["--yes", *(f"--{flag.replace('_', '-')}" for flag in flags if options[flag])]
    if choice.existing is not None:
        words.append(f"--{choice.existing.value}")
    for option in ("name", "resume", "plan", "stage", "max_attempts"):
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


def _job(  # noqa: PLR0913 - each says where a job may come from
    folder: Path,
    command: tuple[str, ...],
    resume: str | None,
    journal: Journal,
    memory: Memory,
    *,
    yes: bool,
) -> Job:
    if resume is not None:
        run = find_run(journal, resume).run
        ask_about_run(run, journal.place, memory, yes=yes)
        try:
            kept = msgspec.convert(run.job, Job)
        except msgspec.ValidationError as error:
            raise RocsteadyError(f"{resume}: its job cannot be read: {error}") from None
        return msgspec.structs.replace(kept, command=journal.command(resume))
    job = job_here(folder, command, memory, yes=yes, example=EXAMPLE)
    return msgspec.structs.replace(job, stages=()) if command else job
