"""``rocsteady probe -- python train.py``: some steps of the user's own script, and no traces."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from rocsteady.attempts.injection import claim
from rocsteady.attempts.settings import Settings
from rocsteady.errors import NotRecordedError, RocsteadyError
from rocsteady.job.values import Job
from rocsteady.journal.journal import Journal
from rocsteady.journal.location import find_place
from rocsteady.model import Observation, Value
from rocsteady.probes.script import StepCount, observed
from rocsteady.sandbox.folder_tree import differences, read_folder_tree
from rocsteady.sandbox.scratch import remove
from rocsteady.user_folders import state_folder
from rocsteady.workflows.sandbox_run import (
    ON_STDERR,
    SandboxRun,
    lay_out_scratch,
    make_root,
    name_for,
)
from rocsteady.workflows.supervision import SupervisorFactory, Surroundings

NAME = "probe"  # of the run


class ScriptResult(Value, frozen=True, kw_only=True):
    """What came of some steps of a script."""

    observation: Observation
    stopped: bool  # by the user
    changed: tuple[str, ...] | None  # paths of the user's folder; None: could not be looked over


def probe_script(command: tuple[str, ...], steps: int, folder: Path) -> ScriptResult:
    """Make some steps, and say what came of them. Nothing is written in the folder."""
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
    before = read_folder_tree(folder)
    scratch, environment, _ = lay_out_scratch(folder, root, before)
    run = SandboxRun(
        name=NAME,
        scratch=scratch,
        surroundings=Surroundings(terminal=ON_STDERR, environment=environment),
        settings=Settings(max_attempts=1, remedies=False, quick_crash=timedelta(0)),
        factory=SupervisorFactory(folder=folder, journal=journal, memory=None),
    )
    began, count = time.time(), StepCount(steps)
    supervisor, _ = run.carry_out(Job(command=command), count)
    over = supervisor.observed
    seen = observed(journal.story(NAME), made=count.made, is_over=over.is_over, at=began)
    after = read_folder_tree(folder)
    return ScriptResult(
        observation=replace(seen, evidence=str(root)) if seen.bad else seen,
        stopped=over.stopped_by_user,
        changed=differences(before, after) if before.whole and after.whole else None,
    )


def _root(folder: Path) -> Path:
    """Make the folder for all that this writes; what an earlier one left is removed."""
    state = state_folder() / "probes" / "scripts"
    inside = "this folder itself; change to the script's folder first"
    busy = "another probe is using it"
    return make_root(state / name_for(folder), folder, inside=inside, busy=busy)
