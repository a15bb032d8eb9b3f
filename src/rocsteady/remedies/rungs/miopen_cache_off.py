"""Compile convolutions anew instead of reading a cache that cannot be used."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import setting, without_rocm
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="miopen-cache-off",
    title="MIOpen without its cache",
    answers=("miopen-cache",),
    cost="convolutions are compiled again at each start",
    rank=49,
    sources=(
        "ROCm/MIOpen#1878",
        "MIOpen documentation: MIOPEN_DISABLE_CACHE",
    ),
    evidence="MIOpen's own switch; that it avoids a damaged or locked cache is our inference",
    when_not="A cache that is just slow.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it on any GPU that MIOpen serves."""
    why = without_rocm(situation)
    return Refused(why=why) if why else setting(situation, "MIOPEN_DISABLE_CACHE", "1")
