"""No GPU here has code in the installed torch."""

from __future__ import annotations

from rocsteady.doctor.condition_match import Seen
from rocsteady.doctor.facts import Facts
from rocsteady.doctor.gpu_code import gpu_code
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.machine import Machine


def check(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    """Return the architectures that lack code, if none has it."""
    code = gpu_code(machine, facts, knowledge)
    return () if code.there else code.lacking
