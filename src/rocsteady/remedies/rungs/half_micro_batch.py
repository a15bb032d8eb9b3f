"""Train each batch in smaller micro-batches: the same gradient, in less memory."""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="half-micro-batch",
    title="Smaller micro-batches: half as many samples at a time",
    answers=("oom-device", "oom-fragmentation", "oom-host"),
    cost="speed, where a micro-batch does not keep the device busy; the batch size stays the same",
    rank=56,
    sources=("huggingface/accelerate: src/accelerate/utils/memory.py", "field note A"),
    evidence=(
        "less is computed at a time, so less memory is held for the backward pass; Accelerate"
        " halves the whole batch, which changes the training"
    ),
    when_not=(
        "A script that does not train through rocsteady.Loop; or host memory that ran out"
        " while training on a GPU, where loader workers are reduced first."
    ),
)


def apply(situation: Situation) -> Strategy | Refused:
    """Halve what was in force in the attempt that failed."""
    split = situation.batch_split
    if split is None:
        return Refused(why="the script does not train through rocsteady.Loop")
    if split.micro_batch <= 1:
        return Refused(why="the micro-batch is already a single sample")
    return msgspec.structs.replace(situation.strategy, micro_batch=split.micro_batch // 2)
