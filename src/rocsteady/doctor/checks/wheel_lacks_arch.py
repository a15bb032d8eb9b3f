"""A GPU here for which the installed torch has no code.

Beside a card, the processor's own graphics do not count: they are to be hidden, not trained on.
An override within a family that leads to code the wheel has is a risk of its own, told elsewhere;
it is not the same as having no code.
"""

from __future__ import annotations

from rocsteady.doctor.facts import Facts
from rocsteady.doctor.matching import CannotTell, Seen
from rocsteady.doctor.override import effect, overridden
from rocsteady.knowledge.cards import gfx_of
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.machine import Machine


def check(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    """Compare every GPU with the list of targets that torch was built for."""
    if machine.system.wsl:
        raise CannotTell("gpu.gfx")
    if facts.values("torch.build") == ("cpu",) or facts.values("torch.build") == ("cuda",):
        return ()
    for name in ("torch.build", "torch.arches"):
        if facts.why_unknown(name):
            raise CannotTell(name)
    arches = {str(arch) for arch in facts.values("torch.arches")}
    lacking = []
    cards = [gpu for gpu in machine.gpus.gpus if not gpu.integrated]
    for gpu in cards or machine.gpus.gpus:
        gfx, told = gfx_of(gpu, knowledge), overridden(machine, gpu)
        if gfx is None or _has_code(gfx, arches, knowledge):
            continue
        if told and effect(gfx, told, knowledge) == "within-family" and told in arches:
            continue
        lacking.append(gfx)
    return tuple(dict.fromkeys(lacking))


def _has_code(gfx: str, arches: set[str], knowledge: Knowledge) -> bool:
    arch = knowledge.arches.get(gfx)
    return gfx in arches or (arch is not None and bool(arch.generic) and arch.generic in arches)
