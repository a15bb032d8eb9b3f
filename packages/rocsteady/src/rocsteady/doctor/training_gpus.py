"""Which GPUs a training run would use.

ROCR_VISIBLE_DEVICES acts first and renumbers what is left; HIP_VISIBLE_DEVICES, or its CUDA name
where that is not set, then counts from 0 among those. Both stop at the first number that is not
there. Of what they leave one trains on the cards, and on the processor's own only without one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rocsteady.doctor.knowledge.gpu_names import gfx_of
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.gpus import Gpu
from rocsteady.doctor.machine.machine import Machine

READ_FIRST = "ROCR_VISIBLE_DEVICES"
SECOND = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_NUMBER = re.compile(r"-?\d{1,4}", re.ASCII)


def trainable(machine: Machine) -> tuple[Gpu, ...]:
    seen = visible(machine)
    return tuple(gpu for gpu in seen if not gpu.integrated) or seen


def visible(machine: Machine) -> tuple[Gpu, ...]:
    """Return the GPUs that the variables leave; all, where that cannot be told."""
    values = settings(machine)
    gpus = machine.gpus.gpus
    if machine.system.os == "linux":
        gpus = _left(gpus, values.get(READ_FIRST, ""))
    return _left(gpus, values.get(second(values), ""))


def settings(machine: Machine) -> Mapping[str, str]:
    return {each.name: each.value for each in machine.variables if each.value is not None}


def second(values: Mapping[str, str]) -> str:
    """Return which of the two names of the second filter is read."""
    return next((name for name in SECOND if entries(values.get(name, ""))), SECOND[0])


def entries(value: str) -> list[str]:
    return [entry.strip() for entry in value.split(",") if entry.strip()]


def beyond(entry: str, count: int) -> bool:
    """Whether a number is not one of ``count``; an id that is not a number is left alone."""
    return _NUMBER.fullmatch(entry) is not None and not 0 <= int(entry) < count


def _left(gpus: tuple[Gpu, ...], value: str) -> tuple[Gpu, ...]:
    wanted = entries(value)
    if not wanted:
        return gpus  # not set; what an empty list does differs from release to release
    found = []
    for entry in wanted:
        if beyond(entry, len(gpus)):
            break
        gpu = gpus[int(entry)] if _NUMBER.fullmatch(entry) else _named(gpus, entry)
        if gpu is None:
            return gpus  # an id that cannot be compared
        found.append(gpu)
    return tuple(found)


def _named(gpus: tuple[Gpu, ...], entry: str) -> Gpu | None:
    """Find a GPU by the id that ROCm gives it: its serial in hexadecimal."""
    ids = {f"GPU-{int(gpu.serial):016x}": gpu for gpu in gpus if gpu.serial.isdecimal()}
    return ids.get(entry)


# What HSA_OVERRIDE_GFX_VERSION does to each GPU. The runtime applies it to every GPU; the form
# with a node's number at its end is for that one. What it cannot read as a version it refuses,
# and then finds no GPU at all.
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
    return [
        f"{name}={value}" for name, value in settings(machine).items() if name.startswith(VARIABLE)
    ]


def effects(machine: Machine, knowledge: Knowledge) -> list[str]:
    """Return how far from the truth an override is, for each GPU one would train on."""
    found = []
    for gpu in trainable(machine):
        gfx, override = gfx_of(gpu, knowledge), overridden(machine, gpu)
        if override is None and _value(machine, gpu):
            found.append("refused")
        elif gfx and override:
            found.append(effect(gfx, override, knowledge))
    return found


def code_used(machine: Machine, arches: set[str], knowledge: Knowledge) -> list[str]:
    """Return what an override within a family does with the code that torch has, for each GPU.

    ``needed``: torch has code for what it names and none for the GPU. ``instead``: for both.
    ``none``: for what it names it has none.
    """
    found = []
    for gpu in trainable(machine):
        gfx, override = gfx_of(gpu, knowledge), overridden(machine, gpu)
        if not gfx or not override or effect(gfx, override, knowledge) != "within-family":
            continue
        if not has_code(override, arches, knowledge):
            found.append("none")
        else:
            found.append("instead" if has_code(gfx, arches, knowledge) else "needed")
    return found


def has_code(gfx: str, arches: set[str], knowledge: Knowledge) -> bool:
    arch = knowledge.arches.get(gfx)
    return gfx in arches or (arch is not None and bool(arch.generic) and arch.generic in arches)


def effect(gfx: str, override: str, knowledge: Knowledge) -> str:
    if gfx == override:
        return "same"
    is_, as_ = knowledge.arches.get(gfx), knowledge.arches.get(override)
    if is_ is None or as_ is None:
        return "across-families"
    # Vegas differ by a few instructions; LLVM has one generic target for them.
    related = is_.family == as_.family or {is_.generic, as_.generic} == {"gfx9-generic"}
    return "within-family" if related else "across-families"


def _value(machine: Machine, gpu: Gpu) -> str:
    values = settings(machine)
    return values.get(f"{VARIABLE}_{gpu.node}") or values.get(VARIABLE) or ""
