"""``rocsteady init``: write the job file by watching a short run of the script."""

from __future__ import annotations

import os
import shutil
from datetime import datetime
from pathlib import Path

import click

from rocsteady.cli.main import DOCS
from rocsteady.cli.options import interpreter_in
from rocsteady.cli.project import find_journal_place
from rocsteady.doctor.knowledge.reader import load_knowledge
from rocsteady.doctor.machine.machine import examined
from rocsteady.errors import RocsteadyError
from rocsteady.exit_codes import INTERRUPTED
from rocsteady.model import Strategy
from rocsteady.plan import saved_plan
from rocsteady.plan.job_file_text import Draft, going_on, how_much, job_text, seen
from rocsteady.plan.trials import Bounds, TrialResult, Trials
from rocsteady.probe.folders import changes_in_words
from rocsteady.run.checkpoints.resume_detection import ResumeSign, detect_resume
from rocsteady.run.checkpoints.script_facts import read_facts, script_in, scripts_here
from rocsteady.run.job import FILE
from rocsteady.run.job.job_file import parse_job, read_job
from rocsteady.run.job.trust import trust
from rocsteady.run.job.values import Job
from rocsteady.screens.job_questions import ask_about_paths, check_command
from rocsteady.screens.screen import ProgressLine, progress, show, show_json, tell
from rocsteady.store.machine_history import Memory
from rocsteady.store.redaction import shown_command
from rocsteady.system.atomic_file import write_whole
from rocsteady.wording import duration

WRITTEN, FAILED = 0, 1
SECONDS = 10
AT_MOST, TIMES = 300.0, 3.0  # seconds in all, or so many times those that are wanted
MODE = 0o644  # a job file that others may write to is doubted
JSON_VERSION = 1
NO_INPUT = "EOFError"


@click.command("init", context_settings={"allow_interspersed_args": False})
@click.option("--yes", is_flag=True, help="Skip the question about paths outside this folder.")
@click.option("--force", is_flag=True, help="Overwrite an existing rocsteady.toml.")
@click.option(
    "--seconds",
    type=click.IntRange(1, 3600),
    metavar="N",
    default=SECONDS,
    show_default=True,
    help="How long to observe the training.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    yes: bool,
    force: bool,
    seconds: int,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Observe a short run of COMMAND and write rocsteady.toml.

    rocsteady init -- python train.py. Without COMMAND, runs the only train*.py or main.py here.
    What cannot be observed is a comment in the file. Writes nothing else to this folder.

    Exit code: 0 written, 1 the script failed or the file could not be written, 2 incorrect usage,
    130 on ^C.
    """
    folder = Path.cwd()
    _check_place(folder / FILE, force=force)
    words = command or _command_here(folder)
    check_command(words, folder)
    ask_about_paths(words, folder, "short run", yes=yes)
    _say(f"observing {shown_command(words)} for {seconds} s of training.")
    # Nothing is made in the user's folder.
    memory = Memory(find_journal_place(saved_plan.home(folder)))
    trials = Trials(folder, memory, tell)
    try:
        with trials:
            bounds = Bounds(wanted=seconds, within=max(AT_MOST, TIMES * seconds))
            with progress(lambda elapsed: _progress(elapsed, trials.measured, seconds)):
                found = trials.run(Job(command=words), Strategy(), bounds)
        if trials.stopped:
            raise KeyboardInterrupt  # noqa: TRY301 - wherever ^C is pressed, the same is said
        if not found:
            raise RocsteadyError(f"{words[0]} could not be started. Nothing was written")
        one = found[-1]
        if trials.changes:
            _say(f"{changes_in_words(trials.changes)}.")
        failed = _why_not(one)
        text = "" if failed else _text(words, one, folder)
        if text:
            _write(folder / FILE, text)
    except (KeyboardInterrupt, click.Abort):
        _say(f"interrupted. {FILE} was not written, and {changes_in_words(trials.changes)}.")
        ctx.exit(INTERRUPTED)
    finally:
        memory.close()
    if as_json:
        job = parse_job(text) if text else None
        about = {"version": JSON_VERSION, "command": words, "written": bool(text)}
        show_json({**about, "text": text, "job": job, "tried": one})
    if failed:
        _tell_failure(one, failed)
        ctx.exit(FAILED)
    resumes = detect_resume(words, folder).how is not ResumeSign.UNKNOWN
    _tell(one, "" if as_json else text, resumes=resumes)


def _check_place(path: Path, *, force: bool) -> None:
    """Refuse before anything is run, if nothing could be written afterwards."""
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise RocsteadyError(f"{path.parent} is not writable, so {FILE} cannot be created")
    if os.path.lexists(path) and not force:
        raise click.UsageError(
            f"{FILE} already exists and was not changed. Use --force to overwrite it."
        )


def _progress(elapsed: float, measured: float, wanted: int) -> ProgressLine:
    if not measured:
        return ProgressLine(f"waiting for the first step, {elapsed:.0f} s so far")
    done = min(measured, wanted)
    return ProgressLine(f"{done:.0f} of {wanted} s of training", done / wanted)


def _why_not(one: TrialResult) -> str:
    if not one.failure:
        return ""
    place = f" at {one.place}" if one.place else ""
    return f"the script failed after {duration(one.seconds)}: {one.failure}{place}. {one.title}"


def _tell_failure(one: TrialResult, failed: str) -> None:
    _say(f"{failed.rstrip('.')}. Nothing was written.")
    tail = one.watched.printed.tail
    if any(NO_INPUT in line for line in tail):
        _say("the script reads from stdin, which is not available in an unattended run.")
    tell("\n".join(f"  {line}" for line in tail))
    if one.failure.startswith("hang"):
        _say(f"next: fix that line, or write {FILE} by hand: {DOCS}/reference/job-file.md")
        return
    _say("next: fix the error and run rocsteady init again. To check the machine: rocsteady doctor")


def _text(words: tuple[str, ...], one: TrialResult, folder: Path) -> str:
    """Put the job file together, and see to it that it can be read."""
    facts = read_facts(script_in(words, folder))
    draft = Draft(
        command=words,
        day=f"{datetime.now().astimezone():%Y-%m-%d}",
        seen=tuple(seen(one)),
        work=how_much(words, one, facts, folder),
        going_on=going_on(one, facts, detect_resume(words, folder)),
        models=one.watched.models if one.finished else (),
    )
    text = job_text(draft)
    parse_job(text)
    return text


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text.encode())
        path.chmod(MODE)
    except (OSError, UnicodeEncodeError) as error:
        why = error.reason if isinstance(error, UnicodeEncodeError) else error.strerror
        raise RocsteadyError(f"{FILE} could not be written: {why}") from None
    trust(read_job(path))


def _tell(one: TrialResult, text: str, *, resumes: bool) -> None:
    if text:
        show(text)
    _say(f"wrote {FILE}.")
    if one.finished:
        without = "" if one.step else ", and no step was observed"
        took = duration(one.seconds)
        _say(f"the script finished in {took}{without}. Is this the training script?")
    elif not one.step:
        _say(
            f"no step was observed in {duration(one.seconds)}. If the script was still loading or"
            " compiling, use --force --seconds 900 to observe it longer."
        )
    if text and not resumes and parse_job(text).resume is None:
        _say(f"does not resume by itself: {FILE} says why, and what would help")
    _say("next: rocsteady run, or rocsteady plan to compare the options first")


def _say(sentence: str) -> None:
    tell(f"rocsteady: {sentence}")


def _command_here(folder: Path) -> tuple[str, ...]:
    """Return what trains here: the one script that looks so."""
    scripts = scripts_here(folder)
    python = _python(folder)
    if len(scripts) == 1 and python:
        return (python, scripts[0])
    here = f"{', '.join(scripts)} are here" if scripts else "there is no train*.py and no main.py"
    if len(scripts) == 1:
        here = "no Python environment with torch was found"
    raise click.UsageError(f"{here}; name a command: rocsteady init -- python train.py")


def _python(folder: Path) -> str:
    """Name the Python of the active environment as a person would, or by its path."""
    found = examined(load_knowledge()).python
    if found is None:
        return ""
    path = interpreter_in(Path(found.prefix))
    if path is None:
        return ""
    for name in ("python", "python3"):
        first = shutil.which(name)
        if first and Path(first).parent == path.parent:
            return name
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
