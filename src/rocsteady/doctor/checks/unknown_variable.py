"""A variable that nothing reads: one known to be a placebo, one that is gone, or a misspelt one.

A name that a real ROCm library holds is real, whether or not our list has it. A name that nobody
knows is not accused, for a library that was not looked at may read it; only a name that is one or
two letters away from a real one is.
"""

from __future__ import annotations

import difflib

from rocsteady.doctor.facts import Facts
from rocsteady.doctor.matching import CannotTell, Seen
from rocsteady.knowledge.reader import Knowledge
from rocsteady.knowledge.seen import load_seen
from rocsteady.machine.machine import Machine
from rocsteady.machine.variables import listed

CLOSE = 0.93  # HSA_ENABLE_SMDA is that near to HSA_ENABLE_SDMA; HIP_PATH is not to HIP_PLATFORM


def check(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    """Return each such variable, with the name that was probably meant."""
    if not facts.variables_known:
        raise CannotTell("variable:names")
    told = (_told(variable.name, knowledge) for variable in machine.variables)
    return tuple(name for name in told if name)


def _told(name: str, knowledge: Knowledge) -> str:
    known = knowledge.variables.get(name)
    if known is not None and not known.read_by:
        return name
    if listed(name, knowledge.variables):
        return ""
    seen = load_seen()
    if name in seen.names:
        gone = seen.gone_from(name)
        return f"{name} (gone from {gone})" if gone else ""
    real = [each for each, variable in knowledge.variables.items() if variable.read_by]
    meant = difflib.get_close_matches(name, {*real, *seen.names}, n=1, cutoff=CLOSE)
    return f"{name} (did you mean {meant[0]}?)" if meant else ""
