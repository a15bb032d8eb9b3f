"""Go on from the checkpoint before the last one: the last may hold what is wrong."""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="checkpoint-back",
    title="Fall back to the previous checkpoint",
    answers=("checkpoint-corrupt", "nan-loss"),
    cost="the steps between the two checkpoints",
    rank=66,
    sources=("open-mmlab/mmdetection#4835", "NVIDIA/Megatron-LM#5281"),
    evidence=(
        "what cannot be read cannot be resumed from; in the second thread a bad checkpoint gave NaN"
        " three steps after each of 44 loads"
    ),
    when_not="A run with only one checkpoint, which would start again at step 0.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Pass over one checkpoint more."""
    if not situation.can_resume:
        return Refused(why="rocsteady does not know how the script resumes")
    back = situation.strategy.checkpoints_back + 1
    if situation.checkpoints <= back:
        return Refused(why="there is no older intact checkpoint")
    return msgspec.structs.replace(situation.strategy, checkpoints_back=back)
