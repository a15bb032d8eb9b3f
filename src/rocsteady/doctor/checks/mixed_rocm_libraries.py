"""A wheel that brings its own ROCm, and another ROCm that would be loaded in its place."""

from __future__ import annotations

from rocsteady.doctor.condition_match import CannotTell, Seen
from rocsteady.doctor.facts import Facts
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.machine import Machine


def check(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    """Look for ROCm libraries in LD_LIBRARY_PATH while torch bundles its own."""
    del knowledge
    if not facts.variables_known:
        raise CannotTell("variable:LD_LIBRARY_PATH")
    if not machine.library_shadows:
        return ()
    if machine.torch is None:
        raise CannotTell("torch.build")
    if not machine.torch.bundles_rocm:
        return ()
    return tuple(f"{shadow.folder} ({shadow.libraries[0]})" for shadow in machine.library_shadows)
