"""A variable that nothing reads: one known to be a placebo, or a real one misspelt.

A name we do not know is not accused: our list has no variable that was added after it was made.
Only a name that is one or two letters away from a real one is.
"""

from __future__ import annotations

import difflib

from rocsteady.doctor.facts import Facts
from rocsteady.doctor.matching import CannotTell, Seen
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.machine import Machine
from rocsteady.machine.variables import listed

CLOSE = 0.93  # HSA_ENABLE_SMDA is that near to HSA_ENABLE_SDMA; HIP_PATH is not to HIP_PLATFORM


def check(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    """Return each such variable, with the name that was probably meant."""
    if not facts.variables_known:
        raise CannotTell("variable:names")
    real = [name for name, variable in knowledge.variables.items() if variable.read_by]
    seen = []
    for name in (variable.name for variable in machine.variables):
        known = knowledge.variables.get(name)
        if known is not None and not known.read_by:
            seen.append(name)
        elif not listed(name, knowledge.variables):
            meant = difflib.get_close_matches(name, real, n=1, cutoff=CLOSE)
            seen += [f"{name} (did you mean {meant[0]}?)"] if meant else []
    return tuple(seen)
