"""Makes a plan: with trials, without, or for a recorded machine, where every row is an estimate.

For a recorded machine, paces are scaled from the trials of the last plan of this folder, if it was
for the same command and for the software that is here now. Without one there are no paces.
"""

from __future__ import annotations

import time
from datetime import date
from pathlib import Path

from msgspec.structs import replace

from rocsteady import __version__
from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.machine.machine import examine, software_of
from rocsteady.doctor.machine.root import Root
from rocsteady.errors import RocsteadyError
from rocsteady.plan import saved_plan
from rocsteady.plan.bottleneck import own_share
from rocsteady.plan.candidates import CPU, GPU
from rocsteady.plan.circumstances import Circumstances
from rocsteady.plan.estimates import CLOUD, Measured, on_recorded
from rocsteady.plan.plan_inputs import card_of, facts_of
from rocsteady.plan.planner import Goal, Planner
from rocsteady.plan.ranking import ranked, take
from rocsteady.plan.trial_result import observation
from rocsteady.plan.trials import PlanTrials, Trials
from rocsteady.plan.values import Basis, Option, Plan, Risk
from rocsteady.run.job.values import Job
from rocsteady.run.strategy_history import examined
from rocsteady.store.journal import Journal
from rocsteady.store.machine_history import Memory

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
NOTHING_TRIED = "nothing was tried on the recorded machine"
NO_PACE = (
    "No recommendation: there are no trials of this command to scale, so no speed is known and"
    " the options cannot be compared. To measure it on this machine first: rocsteady plan"
)
OTHER_CPU = "the speed of the recorded machine's processor is not known"


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


def recorded_plan(job: Job, folder: Path, root: Root, name: str, goal: Goal) -> Plan:
    """Estimate every option that a recorded machine offers. The plan is not kept."""
    known = doctors_knowledge()
    machine, _ = examine(root, known.variables)
    there = facts_of(machine, known)
    base = _measured_here(job, folder, there)
    planner = untried_planner(job, there, goal, base, NOTHING_TRIED)
    _estimate_local(planner, there, base)
    plan = make_plan(job, folder, there, goal, planner)
    options = tuple(replace(option, do="") for option in plan.options)  # none can be run from here
    plan = replace(plan, machine=name, options=options)
    compared = any(option.pace for option in options)
    return replace(plan, take=take(plan) if compared else NO_PACE)


def _estimate_local(planner: Planner, there: Circumstances, base: Measured | None) -> None:
    """Turn what would be tried on that machine into rows, each with the risks found there."""
    elsewhere, planner.options = planner.options, []
    risks = [each for each in there.findings if each.severity is not Severity.NOTES]
    variants = [option for option in planner.not_tried if option.variant]  # how much faster?
    for option in planner.not_tried:
        if option in variants:
            continue
        cpu = option.id == CPU
        pace, basis = (None, (OTHER_CPU,)) if cpu else on_recorded(base)
        found = () if cpu else tuple(f"{each.rule}: {each.summary}" for each in risks)
        estimated = replace(
            option,
            basis=Basis.ESTIMATE,
            pace=pace,
            setup=(0.0, 0.0),
            risk=Risk.MEDIUM if found else Risk.LOW,
            rests_on=(*option.rests_on, *basis, *found),
        )
        planner.estimate(estimated)
    planner.options += elsewhere
    planner.not_tried = variants


def _measured_here(job: Job, folder: Path, there: Circumstances) -> Measured | None:
    """Return the pace of the last plan's trials, on a GPU before the CPU."""
    try:
        plan = saved_plan.load_plan(folder)
    except RocsteadyError:
        return None
    machine = examined(doctors_knowledge())
    if plan.command != job.command or plan.software != software_of(machine):
        return None
    tried = [each for each in plan.options if each.basis is Basis.TRIAL and not each.variant]
    for on_gpu in (True, False):
        for option in tried:
            if option.pace is not None and _is_on_gpu(option) is on_gpu:
                return Measured(
                    pace=option.pace,
                    on_gpu=on_gpu,
                    card=card_of(machine),
                    own=own_share(plan.limits),
                    recorded=True,
                    target=there.card,
                )
    return None


def _is_on_gpu(option: Option) -> bool:
    return option.id.startswith(GPU)
