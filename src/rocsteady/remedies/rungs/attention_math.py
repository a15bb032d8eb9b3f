"""Attention by plain matrix products instead of a fused kernel."""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="attention-math",
    title="Attention without fused kernels",
    answers=(
        "hang-in-attention",
        "hang-in-backward",
        "hang-in-sync",
        "hip-invalid-value",
        "gpu-launch-failure",
        "nan-loss",
    ),
    cost=(
        "slower attention, and memory that grows with the square of the sequence length: up to 16"
        " times as much"
    ),
    rank=62,
    sources=(
        "pytorch/pytorch#186174",
        "pytorch/pytorch#194498",
        "Dao-AILab/flash-attention#1591",
        "huggingface/transformers#30056",
        "unslothai/unsloth#8821",
        "field note A",
    ),
    evidence=(
        "confirmed in the first two threads on gfx1100 and for NaN in the next two; the cost was"
        " measured in the fifth; did not help against the hang of field note A"
    ),
    when_not="Runs that are short of memory: the whole score matrix is kept.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Take the one kernel that is not fused."""
    if situation.strategy.attention == "math":
        return Refused(why="attention is already not fused")
    return msgspec.structs.replace(situation.strategy, attention="math")
