"""What HSA_OVERRIDE_GFX_VERSION does to each GPU.

The runtime applies it to every GPU; the form with a node's number at its end is for that one.
"""

from __future__ import annotations

import re

from rocsteady.knowledge.cards import gfx_of
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.gpus import Gpu
from rocsteady.machine.machine import Machine

VARIABLE = "HSA_OVERRIDE_GFX_VERSION"
_VERSION = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{1,2})")


def overridden(machine: Machine, gpu: Gpu) -> str | None:
    """Return the gfx name that the runtime would take this GPU for, if it is told to."""
    settings = {variable.name: variable.value for variable in machine.variables}
    value = settings.get(f"{VARIABLE}_{gpu.node}") or settings.get(VARIABLE) or ""
    match = _VERSION.fullmatch(value.strip())
    if match is None:
        return None
    major, minor, stepping = map(int, match.groups())
    return f"gfx{major}{minor:x}{stepping:x}"


def effects(machine: Machine, knowledge: Knowledge) -> list[str]:
    """Return for each GPU that is overridden how far from the truth that is."""
    found = []
    for gpu in machine.gpus.gpus:
        gfx, told = gfx_of(gpu, knowledge), overridden(machine, gpu)
        if gfx and told:
            found.append(effect(gfx, told, knowledge))
    return found


def effect(gfx: str, told: str, knowledge: Knowledge) -> str:
    """Compare what a GPU is with what it is taken for."""
    if gfx == told:
        return "same"
    arches = knowledge.arches
    related = gfx in arches and told in arches and arches[gfx].family == arches[told].family
    return "within-family" if related else "across-families"
