"""A variable that nothing reads: one known to be a placebo, one that is gone, or a misspelt one.

A name that a real ROCm library holds is real, whether or not our list has it. A name that nobody
knows is not accused, for a library that was not looked at may read it; only a name that is one or
two letters away from a real one is.
"""

from __future__ import annotations

from rocsteady.doctor.condition_match import CannotTell, Seen
from rocsteady.doctor.facts import Facts
from rocsteady.doctor.nearest_names import gone_from, nearest
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.machine import Machine
from rocsteady.machine.variables import listed

CLOSE = 0.93  # HSA_ENABLE_SMDA is that near to HSA_ENABLE_SDMA; HIP_PATH is not to HIP_PLATFORM


def check(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    """Return each such variable, with the name that was probably meant."""
    if not facts.variables_known:
        raise CannotTell("variable:names")
    spoken = (_spoken(variable.name, knowledge) for variable in machine.variables)
    return tuple(name for name in spoken if name)


def _spoken(name: str, knowledge: Knowledge) -> str:
    known = knowledge.variables.get(name)
    if known is not None and not known.read_by:
        return name
    if listed(name, knowledge.variables):
        return ""
    gone = gone_from(name)
    if gone is not None:
        return f"{name} (gone from {gone})" if gone else ""
    meant = nearest(name, knowledge, CLOSE)
    return f"{name} (did you mean {meant}?)" if meant else ""
