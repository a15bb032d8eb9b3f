"""Two filters that leave no GPU, or that PyTorch refuses.

It refuses when HIP_VISIBLE_DEVICES names more devices than ROCR_VISIBLE_DEVICES left.
"""

from __future__ import annotations

from rocsteady.doctor.condition_match import CannotTell, Seen
from rocsteady.doctor.facts import Facts
from rocsteady.doctor.training_gpus import FIRST, SECOND, beyond, entries, second, settings
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.machine import Machine


def check(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    """Compare the two lists."""
    del knowledge
    if machine.system.os != "linux":
        return ()
    if facts.why_unknown(f"variable:{FIRST}"):
        raise CannotTell(f"variable:{FIRST}")
    values = settings(machine)
    name = second(values)
    left, wanted = len(entries(values.get(FIRST, ""))), entries(values.get(name, ""))
    if not left or not wanted:
        return ()
    refused = name == SECOND[0] and len(wanted) > left
    if not refused and not beyond(wanted[0], left):
        return ()
    return (f"{FIRST}={values[FIRST]} leaves {left}, and {name}={values[name]} asks for others",)
