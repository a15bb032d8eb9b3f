"""``rocsteady drill``: rehearse what may go wrong, before a run is left alone overnight."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import click
import msgspec
import platformdirs

from rocsteady.cli.screen import layout, show
from rocsteady.cli.starting import ask_about, course_for, patience_for
from rocsteady.errors import NotRecordedError, RocsteadyError
from rocsteady.host.child import TerminalUse
from rocsteady.journal.identity import fingerprint, is_alive
from rocsteady.journal.journal import Journal
from rocsteady.journal.memory import Memory
from rocsteady.journal.place import find_place
from rocsteady.knowledge.reader import load_knowledge
from rocsteady.knowledge.waits import load_waits
from rocsteady.report.drill import DrillResult, render_drill
from rocsteady.supervisor.course import Wanted, as_json
from rocsteady.supervisor.done import matches
from rocsteady.supervisor.drill import Rehearsal, read_fired, results
from rocsteady.supervisor.faults import Fault, not_tried, read_faults
from rocsteady.supervisor.injection import OWNER, claim
from rocsteady.supervisor.job import FILE, Job, read_job
from rocsteady.supervisor.offline import offline
from rocsteady.supervisor.scratch import Scratch, make_scratch, outside, remove
from rocsteady.supervisor.settings import Settings
from rocsteady.supervisor.tree import differences, look_over
from rocsteady.vocabulary import Strategy

SURVIVED, NOT_SURVIVED = 0, 1
NAME = "drill"  # of the run
ON_STDERR = TerminalUse(stdin=None, stdout=2, stderr=2)  # stdout is for the table


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
    help="Where to keep what the script writes. Default: the state folder of your account.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Do not ask: neither about a job file that is new, nor about paths outside this folder.",
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
    folder = Path.cwd()
    root = _root(folder, scratch)
    place = find_place(root)
    memory, journal = Memory(place), Journal(place)
    claim(root, journal.here.process)
    keep = False
    try:
        job = _job(folder, command, memory, yes=yes)
        _ask_about_paths(job, folder, yes=yes)
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
    _show(result, as_json=as_json)
    ctx.exit(code)


def _drill(
    job: Job, faults: tuple[Fault, ...], folder: Path, root: Path, journal: Journal
) -> tuple[DrillResult, int]:
    before = look_over(folder)
    trackers, marks = root / "trackers", root / "marks"
    for made in (trackers, marks):
        made.mkdir()
    environment = offline(os.environ, trackers)
    scratch = make_scratch(
        folder, root, before, environment=environment, without=_checkpoints(job, folder)
    )
    if scratch.is_copy:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # beside modules that are not in the copy
    _say_where(scratch)
    known = load_knowledge()
    job = scratch.job(job)
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
        changed=differences(before, after) if before.whole and after.whole else None,
    )
    if rehearsal.stopped_by_user:
        return result, code
    return result, SURVIVED if result.all_survived else NOT_SURVIVED


def _root(folder: Path, scratch: Path | None) -> Path:
    """Make the folder for all that this drill writes; what an earlier one left is removed."""
    state = platformdirs.user_state_path("rocsteady", appauthor=False) / "drills"
    own = f"{folder.name or 'root'}-{fingerprint(str(folder))[:12]}"
    root = (scratch.absolute() / f"rocsteady-{own}") if scratch else state / own
    if Path(os.path.realpath(root)).is_relative_to(os.path.realpath(folder)):
        raise RocsteadyError(f"{root} lies in the folder itself; choose another with --scratch")
    owner = root / OWNER
    if owner.exists() and is_alive(owner.read_text(encoding="utf-8")):
        raise RocsteadyError("a drill of this folder is going on")
    if root.exists():
        remove(root)
    root.mkdir(mode=0o700, parents=True)
    return root


def _job(folder: Path, command: tuple[str, ...], memory: Memory, *, yes: bool) -> Job:
    path = folder / FILE
    if path.exists():
        file = read_job(path)
        ask_about(file, memory, yes=yes)
        job = msgspec.structs.replace(file.job, command=command) if command else file.job
    elif command:
        job = Job(command=command)
    else:
        raise click.UsageError(
            "name a command: rocsteady drill --faults kill@50 -- python train.py"
        )
    if shutil.which(job.command[0]) is None and not (folder / job.command[0]).exists():
        raise click.UsageError(f"{job.command[0]}: not found")
    return job


def _ask_about_paths(job: Job, folder: Path, *, yes: bool) -> None:
    """Name paths that the script would write to as in earnest."""
    patterns = job.resume.checkpoints if job.resume else ()
    found = outside((*job.command, *patterns), folder)
    if not found or yes:
        return
    click.echo(
        f"rocsteady: outside this folder, and not protected: {', '.join(found)}. If the script"
        " writes there, so does the drill.",
        err=True,
    )
    if not sys.stdin.isatty() or not click.confirm("Go on?", err=True):
        raise click.UsageError("nothing was started. Other paths, or --yes.")


def _checkpoints(job: Job, folder: Path) -> Iterable[str]:
    """Name the checkpoints that there are: a drill begins at the beginning."""
    patterns = job.resume.checkpoints if job.resume else ()
    return [str(path) for pattern in patterns for path in matches(folder, pattern)]


def _say_where(scratch: Scratch) -> None:
    if scratch.is_copy:
        where = f"the drill runs in a copy of this folder, {scratch.folder}"
    else:
        where = f"the drill runs over this folder; what it writes goes to {scratch.folder}"
    click.echo(f"rocsteady: {where}.", err=True)


def _show(result: DrillResult, *, as_json: bool) -> None:
    if as_json:
        told = {**msgspec.to_builtins(result), "survived": result.all_survived}
        show(msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n")
        return
    width, colour = layout(sys.stdout)
    show(render_drill(result, width=width, colour=colour))
