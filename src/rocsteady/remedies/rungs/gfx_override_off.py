"""Let the GPU be what it is: an override gives it code of another one."""

from __future__ import annotations

import re

import msgspec

from rocsteady.machine.gpus import gfx_name
from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import gfx_names, without_rocr
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

VARIABLE = "HSA_OVERRIDE_GFX_VERSION"
_VERSION = re.compile(r"\s*(\d{1,2})\.(\d{1,3})\.(\d{1,3})", re.ASCII)

REMEDY = Remedy(
    id="gfx-override-off",
    title="No HSA_OVERRIDE_GFX_VERSION",
    answers=(
        "memory-access-fault",
        "gpu-hang",
        "gpu-launch-failure",
        "gpu-reset",
        "gpu-ring-timeout",
        "no-code-for-gpu",
        "no-gpu-visible",
        "segfault",
        "abort",
        "blas-error",
        "hang-in-sync",
        "hang-in-backward",
        "hang-in-copy",
        "machine-went-down",
    ),
    cost="nothing, where torch has code for the GPU itself",
    rank=21,
    sources=("ROCm/ROCm#5824", "ROCm/ROCm#5238", "ROCm/ROCm#887"),
    evidence=("AMD calls it a debugging aid; the first thread reports memory faults with it set"),
    when_not="A torch build without code for the GPU, which runs only with the override.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Unset it, the form for one GPU too, where that leaves code to run."""
    why = without_rocr(situation) or _against(situation)
    if why:
        return Refused(why=why)
    ours = situation.strategy.variables
    return msgspec.structs.replace(situation.strategy, variables={**ours, _name(situation): None})


def _name(situation: Situation) -> str:
    return next((name for name in sorted(situation.in_force) if name.startswith(VARIABLE)), "")


def _against(situation: Situation) -> str:
    name = _name(situation)
    if not name:
        return f"{VARIABLE} is not set"
    names, told = gfx_names(situation), _VERSION.fullmatch(situation.in_force[name])
    torch = situation.machine.torch
    arches = situation.arches or (torch.arches if torch else ())
    if told and names:
        major, minor, stepping = map(int, told.groups())
        if {gfx_name(major * 10_000 + minor * 100 + stepping)} == set(names):
            return f"{situation.in_force[name]} is the version of {names[0]} itself"
    if not names or not arches:
        return "it is not known whether torch has code for the GPU itself"
    lacking = [name for name in names if name not in arches]
    return f"torch has no code for {', '.join(lacking)} itself" if lacking else ""
