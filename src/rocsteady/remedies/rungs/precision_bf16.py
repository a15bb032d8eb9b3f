"""Mixed precision in bfloat16 instead of float16: its range is that of float32."""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="precision-bf16",
    title="Autocast in bfloat16",
    answers=("nan-loss",),
    cost="precision, and speed on GPUs without bfloat16 units",
    rank=61,
    sources=("unslothai/unsloth#3385", "unslothai/unsloth#3588"),
    evidence="suggested against overflow; on gfx1151 the second thread went the other way",
    when_not="A script that computes in float32 or bfloat16, or casts its model itself.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Change the type that autocast uses."""
    if situation.strategy.precision in ("bf16", "fp32"):
        return Refused(why=f"autocast already uses {situation.strategy.precision}")
    if situation.precision == "fp32":
        return Refused(why="the script computes in float32, whose range is the same")
    if situation.precision == "bf16":
        return Refused(why="the script already computes in bfloat16")
    return msgspec.structs.replace(situation.strategy, precision="bf16")
