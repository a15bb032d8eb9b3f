"""Train on the processor: slow, and certain."""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import without_gpu
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="cpu",
    title="Train on the CPU",
    answers=(
        "hang-in-attention",
        "hang-in-backward",
        "hang-in-sync",
        "hang-lost-interrupt",
        "hang-in-allocator",
        "hang-in-copy",
        "hang-in-kernel-search",
        "gpu-ring-timeout",
        "gpu-reset",
        "gpu-mes-failure",
        "gpu-hang",
        "gpu-launch-failure",
        "gpu-queues-exhausted",
        "memory-access-fault",
        "hip-invalid-value",
        "hsa-out-of-resources",
        "no-code-for-gpu",
        "segfault",
        "abort",
        "blas-handle-failed",
        "blas-error",
        "blas-not-supported",
        "miopen-failure",
        "oom-device",
        "oom-fragmentation",
        "oom-while-free",
        "machine-went-down",
    ),
    cost="most of the speed: ten to twenty times slower, often more",
    rank=90,
    sources=("field note A", "field note E"),
    evidence="both notes give figures; without a GPU, no GPU failure can occur",
    when_not=("Several ranks that communicate over GPUs, or a script that selects a GPU by name."),
)


def apply(situation: Situation) -> Strategy | Refused:
    """Hide every GPU."""
    asked_for = not situation.failure.kind  # by a person, who may be right
    why = "" if asked_for else without_gpu(situation)
    one = situation.strategy.gpus is not None and len(situation.strategy.gpus) == 1
    if not why and situation.ranks > 1 and not one:
        why = f"{situation.ranks} ranks communicate over GPUs"
    return Refused(why=why) if why else msgspec.structs.replace(situation.strategy, device="cpu")
