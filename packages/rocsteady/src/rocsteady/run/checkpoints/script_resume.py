"""How a script goes on that resumes by itself: it has told where its checkpoints lie.

That is as good as a [resume] in a job file, and is used in the same way. This account keeps it, so
that it is known when the run is taken over.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path

from rocsteady_train.inside import wire

from rocsteady.doctor.knowledge.resume_arguments import resume_argument
from rocsteady.hangs.heartbeat_pages import Resumes
from rocsteady.run.checkpoints.resume_detection import ResumeSign
from rocsteady.run.checkpoints.resume_trial import SavedMethod
from rocsteady.run.job.values import CHECKPOINT, Resume
from rocsteady.store.account_records import kept
from rocsteady.store.journal import Journal
from rocsteady.store.location import RUNS
from rocsteady.store.values import Run


def resume_of(reported: Iterable[Resumes], folders: Sequence[Path]) -> Resume:
    """Return how to resume. A place in one of ``folders`` is named from there."""
    patterns = dict.fromkeys(_checkpoint_pattern(each, folders) for each in reported)
    return Resume(environment={wire.RESUME_FROM: CHECKPOINT}, checkpoints=tuple(patterns))


def can_resume(run: Run, journal: Journal) -> bool:
    """Return whether a run could go on from a checkpoint: by its job, by itself, or as it told."""
    records = journal.place.folder / RUNS / run.name
    reported, detected = kept(Resume, records) is not None, kept(SavedMethod, records)
    known = detected is not None and detected.method.how is not ResumeSign.UNKNOWN
    return bool(run.job.get("resume")) or reported or known or bool(resume_argument(run.command))


def checkpoint_folders(resume: Resume) -> str:
    """Name the folders of the checkpoints to a person."""
    return ", ".join(dict.fromkeys(f"{Path(each).parent}/" for each in resume.checkpoints))


def _checkpoint_pattern(reported: Resumes, folders: Sequence[Path]) -> str:
    place = Path(reported.folder)
    for folder in folders:
        if place.is_relative_to(folder):
            near = str(place.relative_to(folder))
            if not near.startswith("-"):  # it could be taken for an option
                return f"{glob.escape(near)}/{reported.pattern}"
    return f"{glob.escape(reported.folder)}/{reported.pattern}"
