"""Take the first fitting convolution kernel instead of searching for the best."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import setting, without_rocm
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="miopen-fast-find",
    title="MIOpen without kernel search",
    answers=("hang-in-kernel-search", "miopen-failure"),
    cost="slower convolutions where its estimates are wrong: Conv3d took twice as long",
    rank=41,
    sources=(
        "multimodal-art-projection/YuE#169",
        "ROCm/rocm-libraries#2218",
        "ROCm/pytorch#433",
        "MIOpen documentation: MIOPEN_FIND_MODE",
        "ROCm/TheRock#5845",
        "ROCm/TheRock#2591",
        "ROCm/rocm-libraries#11727",
    ),
    evidence=(
        "measured in the first thread, 7 s instead of 84 s; named by AMD in the second,"
        " and for Conv3d on Windows in the fifth; the cost was measured in the last two, 2199"
        " instead of 1041 ms a step"
    ),
    when_not=(
        "A search that is just slow: it runs once for each shape, and the result is kept."
        " Conv3d on gfx1201, where this picks slow kernels for the backward pass."
    ),
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set the mode that AMD calls fast."""
    why = without_rocm(situation)
    return Refused(why=why) if why else setting(situation, "MIOPEN_FIND_MODE", "2")
