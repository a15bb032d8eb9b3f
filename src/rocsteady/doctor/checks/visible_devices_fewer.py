"""A list of devices that ends early: the numbers after one that is not there are not read."""

from __future__ import annotations

from rocsteady.doctor.checks import visible_devices_conflict
from rocsteady.doctor.condition_match import CannotTell, Seen
from rocsteady.doctor.facts import Facts
from rocsteady.doctor.training_gpus import FIRST, beyond, entries, second, settings
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.machine import Machine


def check(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    """Look for a number beyond what is there, after one that is."""
    for fact in (f"variable:{FIRST}", "gpu.count"):
        if facts.why_unknown(fact):
            raise CannotTell(fact)
    if visible_devices_conflict.check(machine, facts, knowledge):
        return ()
    values = settings(machine)
    first = FIRST if machine.system.os == "linux" else ""
    left = len(machine.gpus.gpus)
    seen = []
    for name in (first, second(values)):
        wanted = entries(values.get(name, ""))
        if wanted and not beyond(wanted[0], left) and any(beyond(each, left) for each in wanted):
            seen.append(f"{name}={values[name]}, and {left} to choose from")
        left = min(left, len(wanted)) if wanted else left
    return tuple(seen)
