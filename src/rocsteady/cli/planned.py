"""``run --plan N``: the way of the kept plan that is taken, and those that it may fall to."""

from __future__ import annotations

from pathlib import Path

from rocsteady.cli.kept_plan import kept, way_of
from rocsteady.errors import RocsteadyError
from rocsteady.plan import Basis, Way
from rocsteady.supervisor.job import Job
from rocsteady.supervisor.stages import with_variant
from rocsteady.supervisor.ways import FallTo, ways_after


def planned(folder: Path, job: Job, number: int) -> tuple[Job, Way, tuple[FallTo, ...]]:
    """Return the job of a way of the last plan, the way, and what follows it in the plan."""
    plan = kept(folder)
    way = way_of(plan, number)
    if plan.command != job.command:
        raise RocsteadyError("the plan is of another command: rocsteady plan makes a new one")
    if way.basis is not Basis.TRIAL:
        instead = f": {way.do}" if way.do else ""
        raise RocsteadyError(f"way {number}, {way.title}, cannot be run here{instead}")
    taken = with_variant(job, way.variant) if way.variant else job
    return taken, way, ways_after(plan, way.number)
