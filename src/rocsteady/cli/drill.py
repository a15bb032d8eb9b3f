"""``rocsteady drill``: rehearse what may go wrong, before a run is left alone overnight."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import click
import msgspec
import platformdirs

from rocsteady.cli.command_check import check_command
from rocsteady.cli.job_start import course_for, examined, job_here, patience_for
from rocsteady.cli.project import enter, find_job_folder
from rocsteady.cli.sandbox_run import (
    ON_STDERR,
    ask_about_paths,
    job_in,
    lay_out_scratch,
    make_root,
    name_for,
    say_where,
)
from rocsteady.cli.screen import layout, show, show_json
from rocsteady.drills.drill import Rehearsal, read_fired, results
from rocsteady.drills.faults import Fault, not_tried, read_faults
from rocsteady.errors import NotRecordedError, RocsteadyError
from rocsteady.job.done_when import matches
from rocsteady.job.values import Job
from rocsteady.journal.journal import Journal
from rocsteady.journal.memory import Memory
from rocsteady.journal.place import Place, find_place
from rocsteady.knowledge.reader import load_knowledge
from rocsteady.knowledge.waits import load_waits
from rocsteady.report.drill import DrillResult, render_drill
from rocsteady.sandbox.folder_tree import differences, look_over
from rocsteady.sandbox.scratch import remove
from rocsteady.supervisor.course import Wanted, as_json
from rocsteady.supervisor.injection import claim
from rocsteady.supervisor.settings import Settings
from rocsteady.supervisor.visible_gpus import visible_to_a_run
from rocsteady.vocabulary import Strategy

SURVIVED, NOT_SURVIVED = 0, 1
NAME = "drill"  # of the run


class Faults(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """What is to go wrong, with commas between."""

    name = "KIND[:PLACE]@STEP[,...]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Fault, ...]:
        """Read them, or say what is wrong with one."""
        if isinstance(value, tuple):
            return value
        try:
            return read_faults(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command("drill", context_settings={"allow_interspersed_args": False})
@click.option(
    "--faults",
    type=Faults(),
    required=True,
    help="Such as hang:backward@200,kill@500 (in that optimizer step), or oom:aten::mm@40 (at that"
    " call of the operator). KIND: hang, oom, fault, kill, segv, abort, nan.",
)
@click.option(
    "--scratch",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the script's output here. Default: your account's state folder.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Skip questions about the job file and about paths outside this folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    faults: tuple[Fault, ...],
    scratch: Path | None,
    yes: bool,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND with faults in it, over this folder and never in it, and say what came of each.

    rocsteady drill --faults hang:backward@200,kill@500 -- python train.py. Without COMMAND,
    rocsteady.toml says what to run. It ends 50 steps after the last fault, or 5 slow ones.

    Exit code: 0 every fault was survived, 1 not every one, 2 wrong usage, 130 on ^C.
    """
    scratch = scratch.absolute() if scratch else None
    folder = Path.cwd() if command else enter(find_job_folder(Path.cwd()))
    root = _root(folder, scratch)
    place = find_place(root)
    memory, journal = Memory(place), Journal(place)
    claim(root, journal.here.process)
    keep = False
    try:
        job = _job(folder, command, memory, yes=yes)
        patterns = job.resume.checkpoints if job.resume else ()
        ask_about_paths((*job.command, *patterns), folder, NAME, yes=yes)
        result, code = _drill(job, faults, folder, root, journal)
        keep = code != SURVIVED or bool(result.changed)
    except NotRecordedError as error:
        raise RocsteadyError(f"{error}. Nothing was started") from None
    finally:
        journal.close()
        memory.close()
        if not keep:
            remove(root)
    if keep:
        result = msgspec.structs.replace(result, kept=str(root))
    result = msgspec.structs.replace(result, next_command=_next(result, command, place))
    _show(result, as_json=as_json)
    ctx.exit(code)


def _drill(
    job: Job, faults: tuple[Fault, ...], folder: Path, root: Path, journal: Journal
) -> tuple[DrillResult, int]:
    before = look_over(folder)
    scratch, environment, marks = lay_out_scratch(folder, root, before, _checkpoints(job, folder))
    say_where(scratch, NAME)
    known = load_knowledge()
    job = msgspec.structs.replace(job_in(scratch, job), deadline=None)  # of the run, not of a drill
    run = journal.begin_run(job.command, job=job, strategy=as_json(Strategy()), name=NAME)
    rehearsal = Rehearsal(
        job,
        run,
        folder=scratch.folder,
        settings=Settings(quick_crash=timedelta(0), patience=patience_for(job.hang_after)),
        journal=journal,
        memory=None,  # what is learnt from faults of ours is not true of this machine
        waits=load_waits(),
        known_variables=frozenset(known.variables),
        course=course_for(Wanted(), job, folder, journal, None, known),
        terminal=ON_STDERR,
        environment=environment,
    )
    code = rehearsal.rehearse(faults, scratch, marks)
    journal.flush()
    story = journal.story(NAME)
    told = results(
        faults,
        read_fired(marks, len(faults)),
        story,
        went_on_from=rehearsal.went_on_from,
        losses=rehearsal.losses,
    )
    after = look_over(folder)
    result = DrillResult(
        command=job.command,
        faults=told,
        can_resume=rehearsal.can_resume,
        ended="ended after the last fault" if rehearsal.is_over else story.run.outcome,
        not_tried=not_tried(faults),
        on_gpu=bool(visible_to_a_run(examined(known), known).gpus),
        changed=differences(before, after) if before.whole and after.whole else None,
    )
    if rehearsal.stopped_by_user:
        return result, code
    return result, SURVIVED if result.all_survived else NOT_SURVIVED


def _root(folder: Path, scratch: Path | None) -> Path:
    """Make the folder for all that this drill writes; what an earlier one left is removed."""
    state = platformdirs.user_state_path("rocsteady", appauthor=False) / "drills"
    own = name_for(folder)
    root = (scratch / f"rocsteady-{own}") if scratch else state / own
    inside = "the folder itself; choose another with --scratch"
    return make_root(root, folder, inside=inside, busy="a drill of this folder is going on")


def _job(folder: Path, command: tuple[str, ...], memory: Memory, *, yes: bool) -> Job:
    example = "rocsteady drill --faults kill@50 -- python train.py"
    job = job_here(folder, command, memory, yes=yes, example=example)
    check_command(job.command, folder)
    return job


def _checkpoints(job: Job, folder: Path) -> Iterable[str]:
    """Name the checkpoints that there are: a drill begins at the beginning."""
    patterns = job.resume.checkpoints if job.resume else ()
    return [str(path) for pattern in patterns for path in matches(folder, pattern)]


def _next(result: DrillResult, typed: tuple[str, ...], place: Place) -> str:
    """Return what to type next: the run itself, or what explains the failure."""
    if result.all_survived:
        return shlex.join(("rocsteady", "run", *(("--", *typed) if typed else ())))
    logs = sorted((place.folder / "runs" / NAME).glob("attempt-*.log"), key=os.path.getmtime)
    return shlex.join(("rocsteady", "explain", str(logs[-1]))) if logs else "rocsteady doctor"


def _show(result: DrillResult, *, as_json: bool) -> None:
    if as_json:
        told = {**msgspec.to_builtins(result), "survived": result.all_survived}
        show_json(told)
        return
    width, colour = layout(sys.stdout)
    show(render_drill(result, width=width, colour=colour))
