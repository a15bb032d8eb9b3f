"""No mixed precision."""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import half_crashes, without_rocm
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="precision-fp32",
    title="Autocast off",
    answers=("nan-loss", "segfault", "blas-error", "no-code-for-gpu"),
    cost="speed and memory: up to twice as much, more on gfx1201",
    rank=75,
    sources=(
        "pytorch/pytorch#194447",
        "ROCm/TheRock#3044",
        "ROCm/TheRock#2662",
        "ROCm/rocm-libraries#10861",
    ),
    evidence=(
        "confirmed in the first thread for crashes of rocBLAS in half precision on gfx1100 with"
        " torch 2.8 for ROCm 6.3; suggested in the others; the last says what it costs on gfx1201"
    ),
    when_not="A script without autocast, or one that casts its model itself: no effect.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Turn autocast off; for crashes only where half precision is known to crash."""
    if situation.strategy.precision == "fp32":
        return Refused(why="autocast is already off")
    if situation.failure.kind == "nan-loss" and situation.precision == "fp32":
        return Refused(why="the script already computes in float32")
    if situation.failure.kind in ("segfault", "blas-error") and not half_crashes(situation):
        return Refused(why="only gfx1100 with torch 2.8 for ROCm 6.3 is known to crash in this way")
    if situation.failure.kind == "no-code-for-gpu" and (why := without_rocm(situation)):
        return Refused(why=why)
    return msgspec.structs.replace(situation.strategy, precision="fp32")
