"""Leave MIOpen's direct convolutions out, which take longest to compile and to search."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import setting, without_rocm
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="miopen-direct-off",
    title="MIOpen without direct convolutions",
    answers=("hang-in-kernel-search",),
    cost="speed, where the best kernel is a direct one",
    rank=48,
    sources=(
        "ROCm/MIOpen#3383",
        "ROCm/legacy-rocm-build#6034",
    ),
    evidence="users report shorter first runs, and on gfx1151 training without crashes",
    when_not="Models whose convolutions have no other kernel; MIOpen then reports an error.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it on any GPU that MIOpen serves."""
    why = without_rocm(situation)
    return Refused(why=why) if why else setting(situation, "MIOPEN_DEBUG_CONV_DIRECT", "0")
