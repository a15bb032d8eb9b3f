"""Makes a plan: a planner with or without trials, its options in order, and what to keep of it."""

from __future__ import annotations

import time
from datetime import date
from pathlib import Path

from msgspec.structs import replace

from rocsteady import __version__
from rocsteady.job.values import Job
from rocsteady.journal.journal import Journal
from rocsteady.journal.machine_history import Memory
from rocsteady.plan import Basis, Option, Plan
from rocsteady.planner.advice import take
from rocsteady.planner.circumstances import Circumstances
from rocsteady.planner.estimates import CLOUD, Measured
from rocsteady.planner.planner import Goal, Planner
from rocsteady.planner.ranking import ranked
from rocsteady.planner.trial_result import observation
from rocsteady.workflows.plan_trials import PlanTrials
from rocsteady.workflows.trials import Trials

UNTRIED = (
    "No recommendation: nothing was tried on this machine, so its options cannot be compared. To"
    " measure them: rocsteady plan"
)
UNMEASURED = (
    "No recommendation: no trial was long enough to measure a speed, so the options cannot be"
    " compared. To allow more time: rocsteady plan --within 15m"
)
NOTHING_WORKS = (
    "No recommendation: nothing that was tried here works, so no speed is known and the options"
    " cannot be compared. To see why: rocsteady plan --explain all"
)
EXPORTED = ("wsl2", "container")  # options that have a file of their own name


def measured_planner(job: Job, here: Circumstances, goal: Goal, trials: PlanTrials) -> Planner:
    """Make a planner that has tried what there is time for."""
    planner = Planner(job, here, goal, trials.run, today=_today(), say=trials.say)
    planner.work()
    return planner


def untried_planner(
    job: Job,
    here: Circumstances,
    goal: Goal,
    base: Measured | None = None,
    why: str = "--no-trials was given",
) -> Planner:
    """Make a planner that tries nothing, and scales from a base if there is one."""
    planner = Planner(job, here, goal, lambda *_: (), today=_today(), say=lambda _: None, base=base)
    planner.work()
    planner.not_tried = [replace(option, rests_on=(why,)) for option in planner.not_tried]
    return planner


def make_plan(job: Job, folder: Path, here: Circumstances, goal: Goal, planner: Planner) -> Plan:
    """Put the options in order, number them, and say which to take."""
    now = time.time()
    options = ranked(planner.options, budget=goal.budget)
    numbered = tuple(_numbered(option, number) for number, option in enumerate(options, start=1))
    plan = Plan(
        rocsteady=__version__,
        made=now,
        command=job.command,
        folder=str(folder),
        software=here.software,
        total=job.total.count if job.total and job.total.count else planner.total,
        left=planner.left,
        deadline=goal.by,
        budget=goal.budget,
        options=numbered,
        ruled_out=tuple(planner.ruled_out),
        not_tried=tuple(planner.not_tried),
        limits=planner.limits,
    )
    if numbered and not any(it.pace or it.basis is Basis.TRIAL for it in numbered):
        return replace(plan, take=_nothing_to_compare(planner))
    return replace(plan, take=take(plan) if planner.observed else UNTRIED)


def _nothing_to_compare(planner: Planner) -> str:
    if not planner.observed:
        return UNTRIED
    return UNMEASURED if planner.not_tried else NOTHING_WORKS


def with_trials(plan: Plan, trials: Trials) -> Plan:
    """Say in a plan what its trials took, and what they changed."""
    changed = trials.changed()
    warnings = plan.warnings
    if changed:
        some = ", ".join(changed[:5])
        warnings = (*warnings, f"The trials changed files in this folder: {some}.")
    return replace(plan, trials=trials.count, trial_seconds=trials.seconds, warnings=warnings)


def _numbered(option: Option, number: int) -> Option:
    if option.basis is Basis.TRIAL:
        do = f"rocsteady run --plan {number}"
    elif option.id.startswith(CLOUD):
        do = f"rocsteady plan --export skypilot --option {number}"
    elif option.id in EXPORTED:
        do = f"rocsteady plan --export {option.id} --option {number}"
    else:
        do = ""
    return replace(option, number=number, do=do)


def remember(planner: Planner, here: Circumstances, memory: Memory, journal: Journal) -> None:
    """Keep what the trials showed, as observations of this machine."""
    for option, result in planner.observed:
        seen = observation(result, option, software=here.software, at=time.time())
        memory.observed(journal.here.machine, seen)


def _today() -> date:
    return date.today()  # noqa: DTZ011 - the user's own day
