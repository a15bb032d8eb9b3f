"""``rocsteady probe -- COMMAND`` and ``probe RUN``: which operation fails, and what cures it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import click
import msgspec

from rocsteady.cli.options import open_root
from rocsteady.cli.project import enter, find_journal_place, find_project, find_run, open_journal
from rocsteady.doctor.diagnosis import diagnose, doctors_knowledge
from rocsteady.doctor.knowledge.reader import load_knowledge
from rocsteady.doctor.machine.machine import Machine, examine, software_of
from rocsteady.errors import RocsteadyError
from rocsteady.exit_codes import INTERRUPTED
from rocsteady.hangs.looking.kernel_log import read_kernel_log
from rocsteady.model import Value
from rocsteady.probe.builds import environment_of, interpreter_of, make_environment
from rocsteady.probe.cause_search import Cause, Search, requested
from rocsteady.probe.experiment import Limits, ScriptTries, Setup, TryGuard
from rocsteady.run.attempt.symptoms import KERNEL_WITHIN
from rocsteady.run.context import Services
from rocsteady.run.job.values import Job, Resume
from rocsteady.run.recovery.machine import run_machine
from rocsteady.run.telling.announcer import Announcer
from rocsteady.screens.cause_search import render_cause
from rocsteady.screens.doctor import render_paste
from rocsteady.screens.job_questions import (
    ask_about_paths,
    check_command,
    job_here,
    job_of_run,
)
from rocsteady.screens.screen import page_here, show, show_json, tell, without_secrets
from rocsteady.screens.upstream import Surroundings, render_report, upstream_of
from rocsteady.store.account_records import kept
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import Memory
from rocsteady.store.redaction import redactor_here
from rocsteady.store.user_folders import state_folder
from rocsteady.system import procfs
from rocsteady.system.bounded_call import ask
from rocsteady.wording import rough_duration

NOTHING_WRONG, SOMETHING_WRONG = 0, 1
STAGED = "ROCSTEADY_STAGED_FAULT"  # set where a fault is put below torch, for a rehearsal
ASKED_WITHIN, ANSWER = timedelta(seconds=120), 256 * 1024  # of what a report asks; bytes
REPRODUCTION, INPUTS = "repro.py", "inputs.pt"


class CauseOptions(Value, frozen=True, kw_only=True):
    command: tuple[str, ...] = ()
    run: str = ""
    python: str | None = None  # another environment, to try the reproduction in
    tries: tuple[str, ...] = ()  # NAME=VALUE
    numbers: bool = False
    within: timedelta = timedelta(minutes=30)
    hang_after: timedelta = timedelta(seconds=60)
    report: Path | None = None
    yes: bool = False
    again: bool = False  # also what took this machine down
    as_json: bool = False


def find_cause(options: CauseOptions) -> int:
    try:
        setups = requested(options.tries)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--try") from None
    if options.python:
        setups = (*setups, Setup(name=options.python, python=options.python))
    folder, job, step = _work(options)
    python = _python(job)
    setups = tuple(_with_build(setup, python, yes=options.yes) for setup in setups)
    ask_about_paths(job.command, folder, "probe", yes=options.yes)
    limits = Limits(
        hang_after=options.hang_after.total_seconds(),
        within=options.within.total_seconds(),
        last_step=step,
    )
    tell(
        f"rocsteady: runs {shlex.join(job.command)} up to 3 times over this folder, kernels"
        " serialized; then the operation alone, 5 times; then what may cure it, one at a time."
        f" At most {rough_duration(limits.within)}; an operation hangs after"
        f" {rough_duration(limits.hang_after)}."
    )
    root = open_root(None, python)
    here, _ = examine(root, load_knowledge().variables)
    place = find_journal_place(state_folder() / "probes")
    memory, journal = Memory(place), Journal(place)
    software, since = software_of(here), time.time()
    guard = TryGuard(
        journal,
        memory,
        job.command,
        software=software,
        screens=here.gpus.screens,
        again=options.again,
    )
    try:
        with guard:
            guard.recover(tell)
            with ScriptTries(folder, job, limits, guard, tell) as tries:
                cause = _searched(tries, job, python, setups, options)
                target = _keep(cause, tries)
    except KeyboardInterrupt:
        tell("rocsteady: interrupted.")
        return INTERRUPTED
    cause = msgspec.structs.replace(
        cause, software=software, seconds=time.time() - since, changed=tries.changes
    )
    if options.report is not None:
        if cause.reproducing.failed:
            _write_report(cause, here, python, since, options.report)
        else:
            tell("rocsteady: it did not fail, so there is nothing to report.")
    _show(cause, target, options)
    return SOMETHING_WRONG if cause.reproducing.failed else NOTHING_WRONG


def _searched(
    tries: ScriptTries,
    job: Job,
    python: str,
    setups: tuple[Setup, ...],
    options: CauseOptions,
) -> Cause:
    with closing(Announcer()) as announcer:
        services = Services(journal=tries.journal, announcer=announcer)
        search = Search(
            tries,
            run_machine(services, job.command, tries.folder),
            python=python,
            numbers=options.numbers,
            say=lambda line: tell(f"rocsteady: {line}"),
        )
        cause = search.find(setups, job.command, options.run)
    return msgspec.structs.replace(cause, staged=bool(os.environ.get(STAGED)))


def _work(options: CauseOptions) -> tuple[Path, Job, int | None]:
    """Return what is run, where, and the step at which a run of it failed."""
    if not options.run:
        folder = Path.cwd()
        job = job_here(folder, options.command, yes=options.yes)
        check_command(job.command, folder)
        return folder, job, None
    folder = enter(find_project(Path.cwd()))
    with open_journal(options.run) as journal:
        run = find_run(journal, options.run).run
        if journal is None:  # there is one with that run in it
            raise RocsteadyError(f"{options.run}: its journal is gone")
        job = job_of_run(run, folder, journal, yes=options.yes)
        if job.resume is None:
            job = msgspec.structs.replace(job, resume=kept(Resume, Path(run.folder)))
        story = journal.story(options.run)
    steps = [each.failure.fingerprint.step for each in story.failures]
    return folder, job, max((step for step in steps if step is not None), default=None)


def _with_build(setup: Setup, python: str, *, yes: bool) -> Setup:
    """Give a build of torch its interpreter; one that is not there yet is made, once agreed to."""
    if not setup.build:
        return setup
    found = interpreter_of(setup.build)
    if not found:
        tell(
            f"rocsteady: {setup.build} is installed into {environment_of(setup.build)} and kept"
            " there. The download may have several GB, and take up to 20 GiB of disk."
        )
        if not yes and not (sys.stdin.isatty() and click.confirm("Download it?", err=True)):
            raise click.UsageError(f"{setup.build} was not downloaded. To allow it: --yes")
        found = make_environment(setup.build, python)
    return msgspec.structs.replace(setup, python=found)


def _python(job: Job) -> str:
    """Return the interpreter that the reproduction runs in: the script's own."""
    program = job.command[0]
    found = shutil.which(program)
    if found and Path(program).name.startswith("python"):
        return found
    beside = Path(found).with_name("python") if found else None  # torchrun, accelerate
    if beside is not None and beside.exists():
        return str(beside)
    raise click.UsageError(f"{program}: cannot tell which Python it runs in; begin with `python`")


def _keep(cause: Cause, tries: ScriptTries) -> Path | None:
    """Copy the reproduction to where it stays: beside the journal, not into the project."""
    if cause.reproduction is None:
        return None
    target = tries.results
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    (target / REPRODUCTION).write_text(cause.reproduction.text, encoding="utf-8")
    if cause.reproduction.values:
        shutil.copyfile(cause.reproduction.values, target / INPUTS)
    return target / REPRODUCTION


def _write_report(cause: Cause, here: Machine, python: str, since: float, target: Path) -> None:
    """Ask the machine what upstream wants to know, and write the draft."""
    texts = [
        ask(words, within=ASKED_WITHIN, environment=os.environ, limit=ANSWER).text
        for words in (("rocminfo", "--support"), (python, "-m", "torch.utils.collect_env"))
    ]
    diagnosis, processor = diagnose(here, doctors_knowledge()), ""
    with suppress(OSError):
        processor = procfs.fields("/proc/cpuinfo", procfs.LARGE).get("model name", "")
    around = Surroundings(
        processor=processor,
        rocminfo=texts[0],
        collect_env=texts[1],
        doctor=render_paste(without_secrets(diagnosis)),
        kernel=read_kernel_log(since, within=KERNEL_WITHIN).lines,
    )
    place, why = upstream_of(cause, here)
    text = render_report(cause, here, around, redactor_here())
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RocsteadyError(f"{target}: {error.strerror}") from None
    tell(
        f"rocsteady: {target} is a draft for {place.value} ({why}). Read it, then send it yourself."
    )


def _show(cause: Cause, target: Path | None, options: CauseOptions) -> None:
    if options.as_json:
        show_json(msgspec.to_builtins(cause))
        return
    text = render_cause(cause, page=page_here())
    if target is not None:
        text += f"reproduction: {target}\n"
    show(text)
