"""Ask the driver for each tensor: other memory lies beside it, and faults were seen to go."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import gfx_names, rocm_fits, setting, without_rocm
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="allocator-off",
    title="No caching allocator",
    answers=("memory-access-fault",),
    cost=("every allocation waits for the driver; in the one report the run took about as long"),
    rank=47,
    sources=("ROCm/legacy-rocm-build#6647",),
    evidence=(
        "one report on gfx1200 with ROCm 7.14: 7 of 7 runs faulted without it, 3 of 3 finished"
        " with it"
    ),
    when_not=(
        "GPUs other than gfx1200 and gfx1201, ROCm before 7.2, and scripts that capture graphs."
    ),
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it where page faults in training are known."""
    why = without_rocm(situation) or _against(situation)
    return Refused(why=why) if why else setting(situation, "PYTORCH_NO_HIP_MEMORY_CACHING", "1")


def _against(situation: Situation) -> str:
    if not set(gfx_names(situation)) & {"gfx1200", "gfx1201"}:
        return "it is known to help only on gfx1200 and gfx1201"
    return "" if rocm_fits(situation, ">=7.2") else "these faults are known only since ROCm 7.2"
