"""Attention without the kernels that AOTriton calls experimental on this GPU."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import gfx_names, setting, without_rocm
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

EXPERIMENTAL = {
    "gfx1100",
    "gfx1101",
    "gfx1102",
    "gfx1103",
    "gfx1150",
    "gfx1151",
    "gfx1152",
    "gfx1200",
}

REMEDY = Remedy(
    id="aotriton-off",
    title="Attention without experimental kernels",
    answers=(
        "nan-loss",
        "hang-in-attention",
    ),
    cost="slower attention that needs more memory",
    rank=63,
    sources=(
        "ROCm/aotriton#183",
        "ROCm/aotriton: tags 0.10b to 0.13b",
    ),
    evidence="AOTriton's authors report NaN on gfx1150, and advised against 0.11 on gfx1100",
    when_not="GPUs that AOTriton does not treat as experimental, where it changes nothing.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it where a script may have switched them on."""
    why = without_rocm(situation) or _against(situation)
    return (
        Refused(why=why)
        if why
        else setting(situation, "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL", "0")
    )


def _against(situation: Situation) -> str:
    return (
        ""
        if set(gfx_names(situation)) & EXPERIMENTAL
        else "AOTriton is not experimental on this GPU"
    )
