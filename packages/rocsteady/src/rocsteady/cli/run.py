"""``rocsteady run``: watch a training run, know a hang from slowness, restart where it is free."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rocsteady_train.untrusted_file import open_regular, read_exactly

from rocsteady.cli.options import Parsed, duration_option
from rocsteady.cli.project import (
    OUTPUT,
    enter,
    find_job_folder,
    find_project,
    find_run,
    open_journal,
)
from rocsteady.cli.stop import stop
from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.doctor.machine_at_start import Examination
from rocsteady.errors import (
    ExaminationError,
    JobError,
    NotRecordedError,
    RequestError,
    RocsteadyError,
)
from rocsteady.exit_codes import INTERRUPTED, PERSON_NEEDED, RETRY
from rocsteady.failures.remedy import SAME_AGAIN, load_remedies
from rocsteady.model import RunOutcome
from rocsteady.plan.saved_plan import command_of, planned, stop_of
from rocsteady.run.checkpoints.existing_checkpoints import Choice
from rocsteady.run.checkpoints.script_resume import can_resume
from rocsteady.run.engines.tasks import HostTasks
from rocsteady.run.job import FILE
from rocsteady.run.job.notify import Notify, notify_problems
from rocsteady.run.job.values import Existing, Job
from rocsteady.run.options import AUTO, NEVER_RESUME, RunOptions
from rocsteady.run.run_end import is_of_operation
from rocsteady.run.runs import RunLauncher, load_for_failures
from rocsteady.run.stages import Turn, are_done, carry_out_stages, turns_of
from rocsteady.screens.job_questions import (
    EXAMPLE,
    as_typed,
    ask_existing,
    at_a_terminal,
    check_interpreter,
    job_here,
    job_of_run,
)
from rocsteady.screens.run_lines import RunScreen
from rocsteady.screens.screen import tell
from rocsteady.store.journal import Journal
from rocsteady.store.location import Place, existing_places, find_place
from rocsteady.store.machine_history import Memory
from rocsteady.store.policy import Mode, read_policy
from rocsteady.store.redaction import shown_command
from rocsteady.store.run_names import check_name
from rocsteady.store.values import RunLine
from rocsteady.suggestions import no_such
from rocsteady.system import keeper
from rocsteady.system.background import ITSELF, Detached, start_detached
from rocsteady.system.bounded_call import has_ended
from rocsteady.system.tasks import follow, task_here

NOT_FOUND = 127  # as a shell has it
WORDS = "rocsteady.run.words"  # by which the context knows what was typed
CHOICES = {Existing.CONTINUE: AUTO, Existing.FRESH: NEVER_RESUME}  # about earlier checkpoints
WITHOUT_TERMINAL = "--without-terminal"  # what the second one is told


EXIT_CODES = """\b
Exit codes: those of the script, and
   75  can be retried later, as it is
   76  gave up
    2  incorrect usage
  130  stopped with ^C
"""


def _name(text: str) -> str:
    if text in (AUTO, NEVER_RESUME):
        raise ValueError(f"--resume {text} already has a meaning; choose another name")
    return check_name(text)


def _remedies(text: str) -> tuple[str, ...]:
    ids = tuple(word.strip() for word in text.split(",") if word.strip())
    for each in ids:
        if each not in load_remedies():
            listed = "To see those for a failure: rocsteady explain FAILURE"
            raise ValueError(no_such("workaround", each, load_remedies(), listed))
    return ids


REMEDIES = Parsed("ID[,ID]", _remedies)


class RunCommand(click.Command):
    """A command of which every refusal needs a person: 1 would be taken for the script's own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember what was typed, so that --detach can pass it on."""
        ctx.meta[WORDS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click has it
        try:
            return super().invoke(ctx)
        except (JobError, ExaminationError, RequestError):
            raise
        except RocsteadyError as error:
            tell(f"rocsteady: {error}")
            ctx.exit(PERSON_NEEDED)


# To add an option: a click.option here, and a field of the same name in RunOptions
# (run/options.py). Nothing else has to change for it to arrive where it is read.
# What follows the command's first word is the command's own, also an option that we have too.
@click.command(
    "run", cls=RunCommand, context_settings={"allow_interspersed_args": False}, epilog=EXIT_CODES
)
@click.option(
    "--name", type=Parsed("NAME", _name), help="Name of the run. Default: two random words."
)
@click.option(
    "--resume",
    metavar="[auto|never|RUN]",
    help="RUN: continue that run; if it is still running, stop it first. auto: continue from the"
    " newest existing checkpoint. never: start from the beginning, even next to a run of the same"
    " job, and retry even a script that cannot resume (its output is backed up first). Default:"
    " continue if the last run of this job was left unfinished.",
)
@click.option(
    "--resume-trainer",
    is_flag=True,
    help="Resume a script that only calls trainer.train() (transformers, TRL) or trainer.fit()"
    " (Lightning): when it is restarted, the call is given the newest checkpoint. Remembered for"
    " this command.",
)
@click.option(
    "--max-attempts",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Give up after starting the script this often. Default: no limit while it gets further.",
)
@duration_option(
    "--give-up-after",
    help="Stop retrying what may clear up by itself (a kill, the network, a full disk) after this"
    " long without progress. Default: a day; an hour before the first step; 20 minutes under Slurm"
    " or Kubernetes, then exit code 75.",
)
@click.option("--observe", is_flag=True, help="Only observe; never stop or restart the run.")
@duration_option(
    "--hang-after",
    help="Stop the run after this long without progress, even if it is not proven to be stuck.",
)
@click.option(
    "--no-workarounds", "no_remedies", is_flag=True, help="Retry without changing any settings."
)
@click.option("--allow", type=REMEDIES, default=(), help="Use only these workarounds.")
@click.option("--deny", type=REMEDIES, default=(), help="Never use these workarounds.")
@click.option(
    "--also",
    type=REMEDIES,
    default=(),
    help="Also use these workarounds, though they change the precision or the global batch.",
)
@click.option(
    "--with", "start_with", type=REMEDIES, default=(), help="Start with these workarounds."
)
@click.option(
    "--again",
    "retry_crashed",
    is_flag=True,
    help="Also allow settings that have crashed this machine.",
)
@click.option("--anyway", is_flag=True, help="Start even if the doctor finds that it cannot work.")
@click.option(
    "--find-cause",
    is_flag=True,
    help="If it gives up because of an operation: rocsteady probe, for at most 30 minutes.",
)
@click.option(
    "--notify",
    metavar="URL",
    default="",
    help="Send incidents and the end to ntfy, Slack, Discord, or another webhook.",
)
@click.option("--plain", is_flag=True, help="No colors; begin each line with 'rocsteady: '.")
@click.option("--detach", is_flag=True, help="Run in the background, detached from this terminal.")
@click.option(
    "--plan",
    type=click.IntRange(1),
    metavar="N",
    help="Run option N of the last plan; fall back to the options after it.",
)
@click.option("--yes", is_flag=True, help="Skip all confirmations.")
@click.option(WITHOUT_TERMINAL, is_flag=True, hidden=True)
@click.option("--ranks", type=int, hidden=True)
@click.option("--several-hosts", is_flag=True, hidden=True)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, /, **chosen: Any) -> None:  # noqa: ANN401 - RunOptions has types
    """Run COMMAND, watch its progress, and restart it when it hangs or crashes.

    rocsteady run -- python train.py. Without COMMAND, runs the command in rocsteady.toml.
    """
    options = RunOptions(**chosen, from_scratch=chosen["resume"] == NEVER_RESUME)
    _check(options)
    tasks = _tasks(ctx, options)
    if tasks and tasks.task.several_hosts:
        leads = tasks.task.rank == 0
        options = msgspec.structs.replace(options, several_hosts=True, first_host=leads)
    options = _allowed(options)
    folder = _folder(options)
    typed = bool(options.command)
    if options.plan is not None:
        options = msgspec.structs.replace(options, command=command_of(folder, options.command))
    _check_job(folder, options)
    _stop_first(options)
    place = _place(folder, options)
    memory, journal = Memory(place), Journal(place)
    code, unexplained = PERSON_NEEDED, ""
    try:
        journal.flush()  # within its bound; what reads the journal from here on has none
        job = _notified(_job(folder, options, journal), options.notify)
        if options.plan is not None:
            job, option, after = planned(folder, job, options.plan)
            options = msgspec.structs.replace(
                options,
                plan=option.number,
                strategy=option.strategy,
                stop=stop_of(folder, option.number),
                fallbacks=after,
            )
        turns = turns_of(job, journal, options.name)
        if not turns:
            _check_free(options.name, journal)
        first = next((turn.job for turn in turns if not turn.done_by), job)
        examination = Examination(first.command, then=load_for_failures)
        launcher = RunLauncher(
            folder=folder,
            options=options,
            journal=journal,
            memory=memory,
            choice=_choice(options, typed=typed),
            screen=RunScreen(plain=options.plain),
            examination=examination,
            tasks=tasks,
        )
        launcher = launcher.chosen(first)
        code = _launch(job, turns, launcher, ctx.meta[WORDS])
        if options.find_cause and code not in (0, RETRY, INTERRUPTED):
            unexplained = _failed_in_operation(journal)
    except NotRecordedError as error:
        tell(f"rocsteady: {error}. Nothing was started.")
    finally:
        written = journal.close()
        memory.close()
    if not written:
        tell("rocsteady: the last journal entries could not be written.")
    if unexplained:
        _explain(unexplained, options)
    ctx.exit(tasks.end(code) if tasks else code)


def _tasks(ctx: click.Context, options: RunOptions) -> HostTasks | None:
    """Lead the other tasks that srun or mpirun started here, or obey the one that leads."""
    inside = options.without_terminal or options.ranks is not None or keeper.RUN in os.environ
    task = None if inside else task_here(os.environ)
    if task is None:
        return None
    if options.detach:
        raise click.UsageError("--detach cannot be combined with one task for each rank")
    if task.local:
        ctx.exit(follow(task, options.command))
    tasks = HostTasks(task, options.command)
    ctx.call_on_close(tasks.close)
    return tasks


def _failed_in_operation(journal: Journal) -> str:
    """Name the run of this process, if an operation of torch is what it failed in."""
    own = [line.run for line in journal.runs() if line.run.process == journal.here.process]
    last = max(own, key=lambda run: run.id, default=None)
    failures = journal.story(last.name).failures if last else ()
    kind = load_failures().kinds.get(failures[-1].failure.kind) if failures else None
    return last.name if last and kind and is_of_operation(kind) else ""


def _explain(name: str, options: RunOptions) -> None:
    """Look for the operation; whatever comes of it, the run keeps its exit code."""
    from rocsteady.cli.find_cause import CauseOptions, find_cause  # noqa: PLC0415 - seldom

    tell(f"rocsteady: rocsteady probe {name}")
    try:
        find_cause(CauseOptions(run=name, yes=options.yes))
    except (RocsteadyError, click.ClickException) as error:
        tell(f"rocsteady: the cause was not looked for: {error}")


def _launch(job: Job, turns: tuple[Turn, ...], launcher: RunLauncher, words: list[str]) -> int:
    """Carry out the run, here or in the background, or the stages that are left of it."""
    options = launcher.options
    if turns and are_done(turns):
        return 0
    if options.resumed_run is not None and launcher.is_done(options.resumed_run):
        tell(f"rocsteady: {options.resumed_run} is done; there is nothing to resume.")
        return 0
    if options.resume == AUTO and (name := launcher.done_before(job)):
        typed = shown_command(job.command)
        tell(f"rocsteady: {name} is done. To train again: rocsteady run --resume never -- {typed}")
        return 0
    if not options.without_terminal:
        launcher.ask_doctor(job)
    if options.detach and not options.without_terminal:
        answered = []  # what this account agreed to is kept; another process is not told it again
        if options.resume is None and launcher.choice.existing is not None:
            answered += ["--resume", CHOICES[launcher.choice.existing]]
        detach([*answered, *words], launcher.folder, launcher.journal)
        return 0
    if turns:
        return carry_out_stages(turns, launcher.carry_out)
    return launcher.carry_out(job, options.name)[0]


def _folder(options: RunOptions) -> Path:
    here = Path.cwd()
    if options.command:  # as it was typed, here
        check_interpreter(options.command, here)
        if not shutil.which(options.command[0]) and _is_missing(here / options.command[0]):
            tell(f"rocsteady: {options.command[0]}: No such file or directory")
            raise click.exceptions.Exit(NOT_FOUND)
        return here
    resumes = options.resumed_run is not None
    return enter(find_project(here) if resumes else find_job_folder(here))


def _is_missing(program: Path) -> bool:
    try:
        program.stat()
    except OSError as error:  # what may not be looked at is refused when it is started
        return not isinstance(error, PermissionError)
    return False


def _check_job(folder: Path, options: RunOptions) -> None:
    """Refuse a run of nothing, before a journal is created for it."""
    resumed = options.resumed_run
    if resumed is not None and not existing_places(folder):
        find_run(None, resumed)
    if resumed is None and not options.command and not os.path.lexists(folder / FILE):
        raise click.UsageError(f"name a command: {as_typed(after=EXAMPLE)}")


def _stop_first(options: RunOptions) -> None:
    """Stop the run to resume if it is still going, once its user has confirmed that."""
    name = options.resumed_run
    if name is None or options.without_terminal:
        return
    with open_journal(name) as journal:
        line = find_run(journal, name)
        if not line.alive or line.run.ended is not None or journal is None:
            return
        if not can_resume(line.run, journal):
            raise RocsteadyError(
                f"{name} was not stopped: its script cannot resume, and a restart would lose its"
                f" progress. To stop it: rocsteady stop {name}"
            )
    if not options.yes:
        still = f"{name} is still running"
        if not at_a_terminal():
            raise RocsteadyError(
                f"{still}. To stop and resume it: rocsteady run --resume {name} --yes"
            )
        click.confirm(f"{still}. Stop it, and resume it here?", abort=True, err=True)
    stop(name)


def _place(folder: Path, options: RunOptions) -> Place:
    """Return where the run is recorded: one that is resumed where it was before."""
    here = find_place(folder)
    if options.resumed_run is None:
        return here
    with open_journal(options.resumed_run) as journal:
        before = journal.place if journal else None
    return (
        msgspec.structs.replace(
            here, folder=before.folder, database=before.database, wal=before.wal
        )
        if before
        else here
    )


def _check(options: RunOptions) -> None:
    own = (options.command, options.name, options.plan)
    if options.resumed_run is not None and any(own):
        raise click.UsageError("--resume RUN uses that run's own command and name; leave yours out")
    if options.plan is not None and options.start_with:
        raise click.UsageError("--plan has its own settings and cannot be combined with --with")
    named = {"allow": options.allow, "also": options.also, "with": options.start_with}
    for name, wanted in named.items():
        if wanted and options.no_remedies and name != "with":  # "with" is a start, not a remedy
            raise click.UsageError(f"--{name} cannot be combined with --no-workarounds")
        for each in wanted:
            if each in options.deny:
                raise click.UsageError(f"--{name} and --deny both name {each}; leave out one")


def _allowed(options: RunOptions) -> RunOptions:
    """Return the options as the administrator's policy allows them."""
    policy = read_policy()
    if not policy.path:
        return options
    known, allowed = load_remedies(), policy.workarounds
    for each in allowed or ():
        if each not in known:
            raise JobError(f"{policy.path}: workarounds: {no_such('workaround', each, known)}")
    if allowed is None:
        allowed = tuple(known)
    if policy.mode is not Mode.FULL:
        allowed = (SAME_AGAIN,)
        if options.plan is not None:
            raise click.UsageError(f"--plan is not allowed here by {policy.path}")
    for each in (*options.start_with, *options.also):
        if each not in allowed:
            raise click.UsageError(f"{each} is not allowed here by {policy.path}")
    if not options.without_terminal:
        tell(f"rocsteady: policy {policy.path}: {policy.words}")
    # A policy permits; that a workaround may change numbers is for the user to say.
    harmless = tuple(each for each in allowed if known[each].changes is None)
    chosen = tuple(each for each in options.allow or harmless if each in allowed)
    return msgspec.structs.replace(
        options,
        observe=options.observe or policy.mode is Mode.OBSERVE,
        no_remedies=options.no_remedies or not chosen,
        allow=chosen,
        follows_plan=policy.mode is Mode.FULL,
    )


def _check_free(name: str | None, journal: Journal) -> None:
    if name is not None and any(line.run.name == name for line in journal.runs()):
        raise click.UsageError(
            f"a run named {name!r} already exists. Choose another --name, or continue that run:"
            f" rocsteady run --resume {name}"
        )


def _choice(options: RunOptions, *, typed: bool) -> Choice:
    existing = {AUTO: Existing.CONTINUE, NEVER_RESUME: Existing.FRESH}.get(options.resume or "")
    unasked = options.yes or options.without_terminal or options.ranks is not None
    asks = not unasked and at_a_terminal()
    return Choice(existing=existing, typed=typed, ask=ask_existing if asks else None)


def _job(folder: Path, options: RunOptions, journal: Journal) -> Job:
    if options.resumed_run is not None:
        run = find_run(journal, options.resumed_run).run
        job = job_of_run(run, folder, journal, yes=options.yes)
    else:
        job = job_here(
            folder,
            options.command,
            yes=options.yes,
            of_ranks=options.ranks is not None,
        )
    if options.resume_trainer or _resumed_trainer(job, journal):
        job = msgspec.structs.replace(job, resume_trainer=True)
    return msgspec.structs.replace(job, stages=()) if options.command else job


def _notified(job: Job, webhook: str) -> Job:
    if not webhook:
        return job
    notify = msgspec.structs.replace(job.notify or Notify(), webhook=webhook)
    for _, problem in notify_problems(notify):
        raise click.UsageError(f"--notify {problem}")
    return msgspec.structs.replace(job, notify=notify)


def _resumed_trainer(job: Job, journal: Journal) -> bool:
    """Return whether this account chose --resume-trainer for the last run of the same command."""
    last = journal.last_run(job.command)
    if last is None or not last.job.get("resume_trainer"):
        return False
    return journal.orders(last.name).chosen


RECORD_WITHIN = 20.0  # seconds for it to write its run down
POLL_EVERY = 0.1
COMPLAINT_BYTES = 64 * 1024  # bytes of what it had to say


def detach(words: Sequence[str], folder: Path, journal: Journal) -> None:
    """Start it, wait until its first attempt begins, and say how to follow it."""
    output = journal.place.folder / OUTPUT
    offset = output.stat().st_size if output.exists() else 0
    before = {line.run.name: line.attempts for line in journal.runs()}
    command = [*ITSELF, "run", WITHOUT_TERMINAL, *words]
    since, started = time.time(), start_detached(command, os.environ, folder, output)
    deadline = time.monotonic() + RECORD_WITHIN
    name, begun = "", False
    while time.monotonic() < deadline and not begun:
        ended = has_ended(started.child)
        time.sleep(POLL_EVERY)
        line = _run_of(started, since, journal)
        name = line.run.name if line else ""
        begun = line is not None and _has_begun(line, before.get(name, 0), journal)
        refused = line is not None and line.run.outcome not in (RunOutcome.NONE, RunOutcome.DONE)
        if refused or (ended and not begun):
            with open_regular(output) as stream:
                stream.seek(offset)
                tell(read_exactly(stream, COMPLAINT_BYTES).decode(errors="replace").rstrip("\n"))
            raise RocsteadyError("the process ended before the run started")
    if not name:
        why = (
            f"process {started.child.pid} did not start within {RECORD_WITHIN:.0f} s; see {output}"
        )
        raise RocsteadyError(why)
    logout = "" if started.survives_logout else " It may not survive logout on this system."
    tell(f"rocsteady: {name} is running in the background (pid {started.child.pid}).{logout}")
    tell(f"rocsteady: to follow it: rocsteady logs -f {name}; to stop it: rocsteady stop {name}")


def _has_begun(line: RunLine, attempts: int, journal: Journal) -> bool:
    """Return whether a later attempt is watched: a command that cannot be started never is."""
    if line.run.outcome is RunOutcome.DONE or line.attempts <= attempts:
        return line.run.outcome is RunOutcome.DONE
    progress = journal.story(line.run.name).progress
    return any(bucket.attempt == line.attempts for bucket in progress)


def _run_of(started: Detached, since: float, journal: Journal) -> RunLine | None:
    for line in journal.runs():
        is_over = line.run.ended is not None and line.run.ended < since
        if not is_over and line.run.process.split(":")[1:2] == [str(started.child.pid)]:
            return line
    return None
