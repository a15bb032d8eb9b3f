"""What a new run does about checkpoints that it did not write: continue, start fresh, or refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocsteady.errors import RocsteadyError
from rocsteady.model import RunOutcome
from rocsteady.run.checkpoints.resume import (
    Origin,
    Stamp,
    find_checkpoints,
    whole_checkpoints,
)
from rocsteady.run.checkpoints.script_resume import checkpoint_folders
from rocsteady.run.job.values import Existing, Job, Resume
from rocsteady.store.account_records import kept
from rocsteady.store.values import RunLine


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was asked for on the command line."""

    existing: Existing | None = None  # --resume auto or never
    typed: bool = False  # the command: it runs as it is
    ask: Callable[[str, Existing], Existing] | None = None  # a person; None: there is none


def choose(
    job: Job, folder: Path, lines: Sequence[RunLine], choice: Choice
) -> tuple[Origin, str, Choice]:
    """Return which checkpoints a new run may use, what to say, and the choice that was made."""
    if choice.existing is Existing.FRESH and job.resume is None:
        _refuse_what_resumes_by_itself(job, folder, lines)
    before = find_checkpoints(job.resume, folder)
    usual, why, foreign = _usual(job, lines, before, choice)
    origin = Origin(before=before, foreign=foreign)
    newest = next(whole_checkpoints(job, folder), None)
    if newest is None:
        return origin, "", choice
    made = choice.existing or (job.resume.existing if job.resume and not choice.typed else None)
    found = f"there are checkpoints of earlier runs (newest: {newest.path})"
    if made is None and choice.ask is not None and not choice.typed:
        made = choice.ask(f"{found[:1].upper()}{found[1:]}.", usual)
        choice = Choice(existing=made, typed=choice.typed)
    if made is Existing.REFUSE:
        raise RocsteadyError(
            f"{found}; {job.command[-1]} was not started, because the job file refuses to. Use"
            " --resume auto to continue from them, or --resume never to ignore them"
        )
    if made is None:
        made = usual
    else:
        why, foreign = "", before if made is Existing.FRESH else frozenset()
        origin = Origin(before=before, foreign=foreign)
    if made is Existing.CONTINUE:
        return origin, f"continuing from {newest.path}{why} (--resume never: start over)", choice
    return origin, f"ignoring {newest.path}{why} (--resume auto: continue from it)", choice


def _refuse_what_resumes_by_itself(job: Job, folder: Path, lines: Sequence[RunLine]) -> None:
    """Refuse to call a start fresh that is none: such a script finds its checkpoints itself."""
    same = (line.run for line in lines if line.run.command == job.command)
    resumes = next((found for run in same if (found := kept(Resume, Path(run.folder)))), None)
    if resumes is not None and find_checkpoints(resumes, folder):
        raise RocsteadyError(
            "--resume never has no effect: the script itself resumes from"
            f" {checkpoint_folders(resumes)}. Give the script another folder"
        )


def _usual(
    job: Job, lines: Sequence[RunLine], before: frozenset[Stamp], choice: Choice
) -> tuple[Existing, str, frozenset[Stamp]]:
    """Continue only what the last run of this same job has left unfinished."""
    if choice.typed:
        return Existing.FRESH, ": the command runs as typed", before
    same = (line for line in lines if line.run.command == job.command)
    last = next(
        (line for line in same if line.run.outcome is not RunOutcome.NOT_STARTED and line.attempts),
        None,
    )
    if last is None:
        return Existing.FRESH, ": no earlier run of this job wrote them", before
    if last.run.outcome is RunOutcome.DONE:
        return Existing.FRESH, f": the last run of this job, {last.run.name}, is done", before
    its = kept(Origin, Path(last.run.folder))
    why = f", left unfinished by {last.run.name}"
    return Existing.CONTINUE, why, before & its.foreign if its else frozenset()
