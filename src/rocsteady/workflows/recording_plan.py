"""A plan for a recorded machine: nothing is tried, and every row is an estimate.

Paces are scaled from the trials of the last plan of this folder, if it was for the same command and
for the software that is here now. Without one there are no paces, and the plan says so.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from rocsteady.doctor.diagnosis import doctors_knowledge
from rocsteady.errors import RocsteadyError
from rocsteady.job.values import Job
from rocsteady.knowledge.values import Severity
from rocsteady.machine.machine import examine, software_of
from rocsteady.machine.root import Root
from rocsteady.plan import Basis, Option, Plan, Risk
from rocsteady.planner.advice import take
from rocsteady.planner.bottleneck import own_share
from rocsteady.planner.candidates import CPU, GPU
from rocsteady.planner.circumstances import Circumstances
from rocsteady.planner.estimates import Measured, on_recorded
from rocsteady.planner.planner import Goal, Planner
from rocsteady.workflows import saved_plan
from rocsteady.workflows.plan_inputs import card_of, facts_of
from rocsteady.workflows.plans import make_plan, untried_planner
from rocsteady.workflows.supervision import examined

NOTHING_TRIED = "nothing was tried on the recorded machine"
NO_PACE = (
    "No recommendation: there are no trials of this command to scale, so no speed is known and"
    " the options cannot be compared. To measure it on this machine first: rocsteady plan"
)
OTHER_CPU = "the speed of the recorded machine's processor is not known"


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
        plan = saved_plan.kept(folder)
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
