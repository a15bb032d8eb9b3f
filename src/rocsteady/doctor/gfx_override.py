"""What HSA_OVERRIDE_GFX_VERSION does to each GPU.

The runtime applies it to every GPU; the form with a node's number at its end is for that one. What
it cannot read as a version it refuses, and then finds no GPU at all.
"""

from __future__ import annotations

import re

from rocsteady.doctor.training_gpus import settings, trainable
from rocsteady.knowledge.gpu_names import gfx_of
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.gpus import Gpu
from rocsteady.machine.machine import Machine

VARIABLE = "HSA_OVERRIDE_GFX_VERSION"
_VERSION = re.compile(r"\s*(\d{1,2})\.(\d{1,3})\.(\d{1,3})", re.ASCII)


def overridden(machine: Machine, gpu: Gpu) -> str | None:
    """Return the gfx name that the runtime would take this GPU for, if it is told to."""
    match = _VERSION.fullmatch(_value(machine, gpu))
    if match is None:
        return None
    major, minor, stepping = map(int, match.groups())
    return f"gfx{major}{minor:x}{stepping:x}"


def override_settings(machine: Machine) -> list[str]:
    """Return the variable in its forms, as one would type them."""
    return [
        f"{name}={value}" for name, value in settings(machine).items() if name.startswith(VARIABLE)
    ]


def effects(machine: Machine, knowledge: Knowledge) -> list[str]:
    """Return how far from the truth an override is, for each GPU one would train on."""
    found = []
    for gpu in trainable(machine):
        gfx, told = gfx_of(gpu, knowledge), overridden(machine, gpu)
        if told is None and _value(machine, gpu):
            found.append("refused")
        elif gfx and told:
            found.append(effect(gfx, told, knowledge))
    return found


def code_used(machine: Machine, arches: set[str], knowledge: Knowledge) -> list[str]:
    """Tell what an override within a family does with the code that torch has, for each GPU.

    ``needed``: torch has code for what it names and none for the GPU. ``instead``: for both.
    ``none``: for what it names it has none.
    """
    found = []
    for gpu in trainable(machine):
        gfx, told = gfx_of(gpu, knowledge), overridden(machine, gpu)
        if not gfx or not told or effect(gfx, told, knowledge) != "within-family":
            continue
        if not has_code(told, arches, knowledge):
            found.append("none")
        else:
            found.append("instead" if has_code(gfx, arches, knowledge) else "needed")
    return found


def has_code(gfx: str, arches: set[str], knowledge: Knowledge) -> bool:
    """Tell whether one of these targets runs on an architecture."""
    arch = knowledge.arches.get(gfx)
    return gfx in arches or (arch is not None and bool(arch.generic) and arch.generic in arches)


def effect(gfx: str, told: str, knowledge: Knowledge) -> str:
    """Compare what a GPU is with what it is taken for."""
    if gfx == told:
        return "same"
    is_, as_ = knowledge.arches.get(gfx), knowledge.arches.get(told)
    if is_ is None or as_ is None:
        return "across-families"
    # Vegas differ by a few instructions; LLVM has one generic target for them.
    related = is_.family == as_.family or {is_.generic, as_.generic} == {"gfx9-generic"}
    return "within-family" if related else "across-families"


def _value(machine: Machine, gpu: Gpu) -> str:
    values = settings(machine)
    return values.get(f"{VARIABLE}_{gpu.node}") or values.get(VARIABLE) or ""
