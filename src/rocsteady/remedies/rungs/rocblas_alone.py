"""Keep rocBLAS from handing matrix products to hipBLASLt."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import gfx_names, setting, torch_fits, without_rocm
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="rocblas-alone",
    title="rocBLAS without hipBLASLt",
    answers=(
        "hang-in-backward",
        "hang-in-sync",
    ),
    cost="slower matrix products",
    rank=46,
    sources=("ROCm/legacy-rocm-build#5581",),
    evidence="an AMD engineer suggested it for the hipBLASLt stall on gfx12",
    when_not="GPUs other than gfx1200 and gfx1201, and torch before 2.8.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it where the stall is known."""
    why = without_rocm(situation) or _against(situation)
    return Refused(why=why) if why else setting(situation, "ROCBLAS_USE_HIPBLASLT", "0")


def _against(situation: Situation) -> str:
    if not set(gfx_names(situation)) & {"gfx1200", "gfx1201"}:
        return "the stall is known only on gfx1200 and gfx1201"
    return "" if torch_fits(situation, ">=2.8") else "torch before 2.8 does not have the stall"
