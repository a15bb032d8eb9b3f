"""A drill: the job over the user's folder with faults in it, and what came of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rocsteady.doctor.facts import visible_to_a_run
from rocsteady.doctor.knowledge.reader import load_knowledge
from rocsteady.plan.sandbox.folder_tree import differences, read_folder_tree
from rocsteady.plan.sandbox_run import (
    ON_STDERR,
    SandboxRun,
    lay_out_scratch,
    make_root,
    name_for,
    where,
)
from rocsteady.probe.drill import FaultInjection, read_fired, results
from rocsteady.probe.faults import Fault, not_tried
from rocsteady.run.job.done_when import matches
from rocsteady.run.job.values import Job
from rocsteady.run.options import RunOptions, Timing
from rocsteady.run.strategy_history import examined
from rocsteady.screens.probe import DrillResult
from rocsteady.store.journal import Journal
from rocsteady.store.user_folders import state_folder

NAME = "drill"  # of the run


@dataclass(frozen=True, kw_only=True)
class Drill:
    """A drill of one folder's job."""

    folder: Path
    root: Path  # for all that it writes
    journal: Journal
    say: Callable[[str], None]

    def carry_out(self, job: Job, faults: tuple[Fault, ...]) -> tuple[DrillResult, int | None]:
        """Return what came of it, and the exit code if the user stopped it."""
        before = read_folder_tree(self.folder)
        scratch, environment, marks = lay_out_scratch(
            self.folder, self.root, before, _checkpoints(job, self.folder)
        )
        for line in where(scratch, NAME):
            self.say(line)
        # What is learnt from faults of ours is not true of this machine: it has no memory.
        run = SandboxRun(
            name=NAME,
            scratch=scratch,
            environment=environment,
            terminal=ON_STDERR,
            options=RunOptions(timing=Timing(quick_crash=timedelta(0))),
            journal=self.journal,
        )
        injection = FaultInjection(faults, marks)
        supervisor, code = run.carry_out(job, injection)
        story = self.journal.story(NAME)
        fault_results = results(
            faults,
            read_fired(marks, len(faults)),
            story,
            went_on_from=injection.went_on_from,
            losses=injection.losses,
        )
        after = read_folder_tree(self.folder)
        known = load_knowledge()
        result = DrillResult(
            command=job.command,
            faults=fault_results,
            can_resume=supervisor.can_resume,
            ended="ended after the last fault"
            if supervisor.observed.is_over
            else story.run.outcome.value,
            not_tried=not_tried(faults),
            on_gpu=bool(visible_to_a_run(examined(known), known).gpus),
            changed=differences(before, after) if before.whole and after.whole else None,
        )
        return result, code if supervisor.observed.stopped_by_user else None


def drill_root(folder: Path, scratch: Path | None) -> Path:
    """Make the folder for all that this drill writes; what an earlier one left is removed."""
    state = state_folder() / "drills"
    own = name_for(folder)
    root = (scratch / f"rocsteady-{own}") if scratch else state / own
    inside = "the folder itself; choose another with --scratch"
    return make_root(root, folder, inside=inside, busy="another drill is using it")


def _checkpoints(job: Job, folder: Path) -> Iterable[str]:
    """Name the checkpoints that there are: a drill begins at the beginning."""
    patterns = job.resume.checkpoints if job.resume else ()
    return [str(path) for pattern in patterns for path in matches(folder, pattern)]
