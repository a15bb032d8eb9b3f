"""Matrix products by hipBLAS instead of hipBLASLt: AMD's own advice for training on RDNA4."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import (
    built_by_amd,
    gfx_names,
    half_crashes,
    setting,
    torch_fits,
    without_rocm,
)
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

VARIABLE = "TORCH_BLAS_PREFER_HIPBLASLT"
PREFERRING = ("gfx90a", "gfx942", "gfx950", "gfx1200", "gfx1201")  # hipBLASLt is their default
PREFERRING_BY_AMD = ("gfx1100", "gfx1101", "gfx1102", "gfx1150", "gfx1151")  # in AMD's own builds

REMEDY = Remedy(
    id="hipblaslt-off",
    title="Matrix products without hipBLASLt",
    answers=(
        "gpu-reset",
        "gpu-ring-timeout",
        "gpu-mes-failure",
        "gpu-hang",
        "gpu-launch-failure",
        "memory-access-fault",
        "abort",
        "blas-error",
        "blas-not-supported",
        "hang-in-backward",
        "hang-in-sync",
        "nan-loss",
        "machine-went-down",
    ),
    cost="slower matrix products",
    rank=40,
    sources=(
        "ROCm/TheRock#7699",
        "ROCm/ROCm#5581",
        "ROCm/ROCm#6413",
        "pytorch/pytorch#138067",
        "pytorch/pytorch#194447",
        "ROCm/rocm-libraries#5706",
        "ROCm/pytorch#2741",
        "ROCm/pytorch#3207",
        "ROCm/pytorch#3448",
        "ROCm/TheRock#2591",
    ),
    evidence=(
        "AMD's own advice for RX 9070 and R9700; a maintainer's for the stall on gfx12; mixed"
        " results elsewhere"
    ),
    when_not=(
        "gfx1100 with torch 2.8 for ROCm 6.3, where the other path crashes; torch 2.6 to 2.8, which"
        " ignore it; GPUs for which hipBLASLt is not the default (for RDNA3 it is in AMD's own"
        " builds only)."
    ),
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it where torch obeys it and would use hipBLASLt."""
    why = without_rocm(situation) or _against(situation)
    return Refused(why=why) if why else setting(situation, VARIABLE, "0")


def _against(situation: Situation) -> str:
    names = gfx_names(situation)
    if half_crashes(situation):
        return "on gfx1100 with torch 2.8 for ROCm 6.3 the other path, rocBLAS, crashes"
    if torch_fits(situation, ">=2.6,<2.9"):
        return "torch 2.6 to 2.8 ignore the variable"
    if not names:
        return "the GPU model is unknown"
    # 2.4 and 2.5 asked for it on every GPU, and some builds took it for an error where it is not.
    refused = situation.failure.kind in ("blas-error", "blas-not-supported")
    preferring = {*PREFERRING, *(PREFERRING_BY_AMD if built_by_amd(situation) else ())}
    if not set(names) & preferring and not (refused and torch_fits(situation, ">=2.4,<2.6")):
        return f"hipBLASLt is not the default on {', '.join(names)}"
    return ""
