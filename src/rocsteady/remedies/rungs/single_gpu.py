"""One GPU and one rank, where several together fail."""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="single-gpu",
    title="One GPU",
    answers=(
        "hang-in-collective",
        "collective-timeout",
        "collective-error",
        "p2p-failure",
        "peer-died",
        "blas-handle-failed",
        "gpu-hang",
        "gpu-launch-failure",
        "gpu-reset",
        "hsa-out-of-resources",
        "memory-access-fault",
        "wrong-device-mask",
    ),
    cost="the other GPUs; the global batch over all ranks shrinks with them",
    rank=80,
    sources=("IAHispano/Applio#126", "QwenLM/Qwen3#873"),
    evidence="confirmed in both threads; the second on NVIDIA",
    when_not="A model that does not fit on one GPU, or a batch that must not change.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Keep one GPU: the first that did not fail by itself."""
    if situation.strategy.device == "cpu":
        return Refused(why="the run does not use GPUs")
    if situation.strategy.gpus is not None and len(situation.strategy.gpus) == 1:
        return Refused(why="the run already uses one GPU")
    if situation.ranks < 2 and situation.gpus < 2:  # noqa: PLR2004 - there is nothing to reduce
        return Refused(why="there is one rank and one GPU at most")
    seen = situation.strategy.gpus or tuple(range(max(situation.gpus, 1)))
    others = [gpu for rank, gpu in enumerate(seen) if rank != situation.failure.rank]
    return msgspec.structs.replace(situation.strategy, gpus=((*others, *seen)[0],))
