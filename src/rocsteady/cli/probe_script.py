"""``rocsteady probe -- python train.py``: some steps of the user's own script, and no traces."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import platformdirs
from msgspec.structs import replace

from rocsteady.cli.command_check import check_command
from rocsteady.cli.job_start import course_for
from rocsteady.cli.sandbox_run import (
    ON_STDERR,
    ask_about_paths,
    lay_out_scratch,
    make_root,
    name_for,
)
from rocsteady.errors import NotRecordedError, RocsteadyError
from rocsteady.job.values import Job
from rocsteady.journal.journal import Journal
from rocsteady.journal.place import find_place
from rocsteady.knowledge.reader import load_knowledge
from rocsteady.knowledge.waits import load_waits
from rocsteady.probes.script import FewSteps, observed
from rocsteady.sandbox.folder_tree import differences, look_over
from rocsteady.sandbox.scratch import remove
from rocsteady.supervisor.course import Wanted, as_json
from rocsteady.supervisor.injection import claim
from rocsteady.supervisor.settings import Settings
from rocsteady.vocabulary import Observation, Strategy, Value

NAME = "probe"  # of the run


class ScriptResult(Value, frozen=True, kw_only=True):
    """What came of some steps of a script."""

    observation: Observation
    stopped: bool  # by the user
    changed: tuple[str, ...] | None  # paths of the user's folder; None: could not be looked over


def probe_script(command: tuple[str, ...], steps: int, *, yes: bool) -> ScriptResult:
    """Make some steps, and say what came of them. Nothing is written in this folder."""
    folder = Path.cwd()
    check_command(command, folder)
    ask_about_paths(command, folder, NAME, yes=yes)
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
    scratch, environment, marks = lay_out_scratch(folder, root, before)
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
    inside = "this folder itself: go to the script's own folder"
    busy = "a probe of this folder's script is going on"
    return make_root(state / name_for(folder), folder, inside=inside, busy=busy)
