"""Convolutions in the layout that MIOpen knows best on Radeon."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import gfx_names, rocm_fits, setting, without_rocm
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="nhwc-off",
    title="Convolutions without channels_last",
    answers=(
        "hang-in-kernel-search",
        "miopen-failure",
    ),
    cost="none on Radeon; on Instinct channels_last is the faster layout",
    rank=44,
    sources=(
        "pytorch/pytorch#170947",
        "ROCm/legacy-rocm-build#5674",
        "ROCm/TheRock#2485",
    ),
    evidence=("AMD names it for ROCm 7.0 and 7.1 on Radeon; the default was changed back later"),
    when_not=("Instinct cards, and builds for other ROCm releases, where the default is right."),
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it for the builds that have the wrong default."""
    why = without_rocm(situation) or _against(situation)
    return Refused(why=why) if why else setting(situation, "PYTORCH_MIOPEN_SUGGEST_NHWC", "0")


def _against(situation: Situation) -> str:
    if not rocm_fits(situation, ">=7.0,<7.2"):
        return "only builds for ROCm 7.0 and 7.1 have the wrong default"
    radeon = [name for name in gfx_names(situation) if name.startswith(("gfx10", "gfx11", "gfx12"))]
    return "" if radeon else "channels_last is right on Instinct cards"
