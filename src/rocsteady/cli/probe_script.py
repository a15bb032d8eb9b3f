"""``rocsteady probe -- python train.py``: some steps of the user's own script, and no traces."""

from __future__ import annotations

import os
import shutil
import sys
import time
from datetime import timedelta
from pathlib import Path

import click
import platformdirs
from msgspec.structs import replace

from rocsteady.cli.starting import course_for
from rocsteady.errors import NotRecordedError, RocsteadyError
from rocsteady.host.child import TerminalUse
from rocsteady.journal.identity import fingerprint, is_alive
from rocsteady.journal.journal import Journal
from rocsteady.journal.place import find_place
from rocsteady.knowledge.reader import load_knowledge
from rocsteady.knowledge.waits import load_waits
from rocsteady.probes.script import FewSteps, observed
from rocsteady.supervisor.course import Wanted, as_json
from rocsteady.supervisor.injection import OWNER, claim
from rocsteady.supervisor.job import Job
from rocsteady.supervisor.offline import offline
from rocsteady.supervisor.scratch import make_scratch, outside, remove
from rocsteady.supervisor.settings import Settings
from rocsteady.supervisor.tree import differences, look_over
from rocsteady.vocabulary import Observation, Strategy, Value

NAME = "probe"  # of the run
ON_STDERR = TerminalUse(stdin=None, stdout=2, stderr=2)  # stdout is for what came of it


class ScriptResult(Value, frozen=True, kw_only=True):
    """What came of some steps of a script."""

    observation: Observation
    stopped: bool  # by the user
    changed: tuple[str, ...] | None  # paths of the user's folder; None: could not be looked over


def probe_script(command: tuple[str, ...], steps: int, *, yes: bool) -> ScriptResult:
    """Make some steps, and say what came of them. Nothing is written in this folder."""
    folder = Path.cwd()
    if shutil.which(command[0]) is None and not (folder / command[0]).exists():
        raise click.UsageError(f"{command[0]}: not found")
    _ask_about_paths(command, folder, yes=yes)
    root = _root(folder)
    journal = Journal(find_place(root))
    claim(root, journal.here.process)
    keep = False
    try:
        result = _carried_out(command, steps, folder, root, journal)
        keep = result.observation.bad
    except NotRecordedError as error:
        raise RocsteadyError(f"{error}. Nothing was started") from None
    finally:
        journal.close()
        if not keep:
            remove(root)
    return result


def _carried_out(
    command: tuple[str, ...], steps: int, folder: Path, root: Path, journal: Journal
) -> ScriptResult:
    before = look_over(folder)
    trackers, marks = root / "trackers", root / "marks"
    for made in (trackers, marks):
        made.mkdir()
    environment = offline(os.environ, trackers)
    scratch = make_scratch(folder, root, before, environment=environment, without=())
    if scratch.is_copy:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # beside modules that are not in the copy
    known = load_knowledge()
    job = Job(command=command)
    run = journal.begin_run(command, job=job, strategy=as_json(Strategy()), name=NAME)
    began = time.time()
    script = FewSteps(
        job,
        run,
        folder=scratch.folder,
        settings=Settings(max_attempts=1, remedies=False, quick_crash=timedelta(0)),
        journal=journal,
        memory=None,  # a few steps teach nothing about the whole
        waits=load_waits(),
        known_variables=frozenset(known.variables),
        course=course_for(Wanted(), job, folder, journal, None, known),
        terminal=ON_STDERR,
        environment=environment,
    )
    script.steps = steps
    script.rehearse((), scratch, marks)
    journal.flush()
    story = journal.story(NAME)
    seen = observed(story, made=script.made, is_over=script.is_over, at=began)
    after = look_over(folder)
    return ScriptResult(
        observation=replace(seen, evidence=str(root)) if seen.bad else seen,
        stopped=script.stopped_by_user,
        changed=differences(before, after) if before.whole and after.whole else None,
    )


def _root(folder: Path) -> Path:
    """Make the folder for all that this writes; what an earlier one left is removed."""
    state = platformdirs.user_state_path("rocsteady", appauthor=False) / "probes" / "scripts"
    root = state / f"{folder.name or 'root'}-{fingerprint(str(folder))[:12]}"
    if Path(os.path.realpath(root)).is_relative_to(os.path.realpath(folder)):
        raise RocsteadyError(f"{root} lies in this folder itself: go to the script's own folder")
    owner = root / OWNER
    if owner.exists() and is_alive(owner.read_text(encoding="utf-8")):
        raise RocsteadyError("a probe of this folder's script is going on")
    if root.exists():
        remove(root)
    root.mkdir(mode=0o700, parents=True)
    return root


def _ask_about_paths(command: tuple[str, ...], folder: Path, *, yes: bool) -> None:
    """Name paths that the script would write to as in earnest."""
    found = outside(command, folder)
    if not found or yes:
        return
    click.echo(
        f"rocsteady: outside this folder, and not protected: {', '.join(found)}. If the script"
        " writes there, so does the probe.",
        err=True,
    )
    if not sys.stdin.isatty() or not click.confirm("Go on?", err=True):
        raise click.UsageError("nothing was started. Other paths, or --yes.")
