"""For which GPUs the installed torch has code.

Beside a card, the processor's own graphics do not count: they are to be hidden, not trained on.
An override within a family that leads to code the wheel has is a risk of its own, told elsewhere;
it is not the same as having no code.
"""

from __future__ import annotations

from typing import NamedTuple

from rocsteady.doctor.condition_match import CannotTell
from rocsteady.doctor.facts import Facts
from rocsteady.doctor.gfx_override import effect, has_code, overridden
from rocsteady.doctor.training_gpus import trainable
from rocsteady.knowledge.gpu_names import gfx_of
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.machine import Machine


class Code(NamedTuple):
    """Architectures of this machine, each once."""

    there: tuple[str, ...]
    lacking: tuple[str, ...]


def gpu_code(machine: Machine, facts: Facts, knowledge: Knowledge) -> Code:
    """Compare every GPU one would train on with the list of targets that torch was built for."""
    for name in ("gpu.gfx", "torch.build", "torch.arches"):
        if facts.why_unknown(name):
            raise CannotTell(name)
    arches = {str(arch) for arch in facts.values("torch.arches")}
    there: dict[str, None] = {}
    lacking: dict[str, None] = {}
    for gpu in trainable(machine):
        gfx, told = gfx_of(gpu, knowledge), overridden(machine, gpu)
        if gfx is None:
            continue
        passes = told in arches and effect(gfx, told, knowledge) == "within-family"
        (there if passes or has_code(gfx, arches, knowledge) else lacking)[gfx] = None
    return Code(there=tuple(there), lacking=tuple(lacking))
