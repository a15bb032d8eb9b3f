"""How a script goes on that resumes by itself: it has told where its checkpoints lie.

That is as good as a [resume] in a job file, and is used in the same way. It is kept beside the
records of the run, so that it is known when the run is taken over.
"""

from __future__ import annotations

import contextlib
import glob
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from rocsteady_train.inside import wire
from rocsteady_train.untrusted_file import read_regular

from rocsteady.doctor.knowledge.resume_arguments import resume_argument
from rocsteady.hangs.heartbeat_pages import Resumes
from rocsteady.run.checkpoints.resume_detection import How
from rocsteady.run.checkpoints.resume_trial import saved_method
from rocsteady.run.job.values import CHECKPOINT, Resume
from rocsteady.store.journal import Journal
from rocsteady.store.location import RUNS
from rocsteady.store.values import Run
from rocsteady.system.atomic_file import write_whole

RESUME_FILE = "resumes.json"
RESUME_FILE_LIMIT = 64 * 1024  # bytes


def resume_of(reported: Iterable[Resumes], folders: Sequence[Path]) -> Resume:
    """Return how to resume. A place in one of ``folders`` is named from there."""
    patterns = dict.fromkeys(_checkpoint_pattern(each, folders) for each in reported)
    return Resume(environment={wire.RESUME_FROM: CHECKPOINT}, checkpoints=tuple(patterns))


def can_resume(run: Run, journal: Journal) -> bool:
    """Return whether a run could go on from a checkpoint: by its job, by itself, or as it told."""
    records = journal.place.folder / RUNS / run.name
    reported, detected = saved_resume(records) is not None, saved_method(records)
    known = detected is not None and detected.method.how is not How.UNKNOWN
    return bool(run.job.get("resume")) or reported or known or bool(resume_argument(run.command))


def checkpoint_folders(resume: Resume) -> str:
    """Name the folders of the checkpoints to a person."""
    return ", ".join(dict.fromkeys(f"{Path(each).parent}/" for each in resume.checkpoints))


def save_resume(resume: Resume, records: Path) -> None:
    """Keep it with the records of a run; where that is not possible, the run goes on without."""
    with contextlib.suppress(OSError):
        write_whole(records / RESUME_FILE, msgspec.json.encode(resume))


def saved_resume(records: Path) -> Resume | None:
    """Return what an earlier supervisor of a run has kept."""
    try:
        return msgspec.json.decode(
            read_regular(records / RESUME_FILE, RESUME_FILE_LIMIT), type=Resume
        )
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError):
        return None


def _checkpoint_pattern(reported: Resumes, folders: Sequence[Path]) -> str:
    place = Path(reported.folder)
    for folder in folders:
        if place.is_relative_to(folder):
            near = str(place.relative_to(folder))
            if not near.startswith("-"):  # it could be taken for an option
                return f"{glob.escape(near)}/{reported.pattern}"
    return f"{glob.escape(reported.folder)}/{reported.pattern}"
