"""Whether a run could go on from a checkpoint."""

from __future__ import annotations

from rocsteady.journal.journal import Journal
from rocsteady.journal.location import RUNS
from rocsteady.journal.values import Run
from rocsteady.knowledge.resume_arguments import resume_argument
from rocsteady.supervisor.script_resume import kept


def can_resume(run: Run, journal: Journal) -> bool:
    """Tell whether a run could go on from a checkpoint: by its job, by itself, or as it told."""
    records = journal.place.folder / RUNS / run.name
    told = kept(records) is not None
    return bool(run.job.get("resume")) or told or bool(resume_argument(run.command))
