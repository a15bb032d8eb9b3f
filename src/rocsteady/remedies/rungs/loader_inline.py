"""No DataLoader workers: batches are loaded in the training process."""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="loader-inline",
    title="No DataLoader worker processes",
    answers=(
        "hang-in-loader",
        "loader-worker-died",
        "loader-timeout",
        "shm-too-small",
        "too-many-open-files",
        "oom-host",
    ),
    cost="speed: the step waits while a batch is loaded",
    rank=55,
    sources=(
        "pytorch/pytorch#1355",
        "2U1/Phi3-Vision-Finetune#10",
        "open-edge-platform/geti#5204",
        "field note C",
    ),
    evidence=(
        "confirmed in the second thread for workers that died; weak for hangs: none yet in the"
        " first, none in 904 batches of note C, which proves little, and one froze in the third"
    ),
    when_not="Datasets that load fast enough only in parallel.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Take the workers away."""
    loader, strategy = situation.loader, situation.strategy
    if strategy.workers == 0 or (strategy.workers is None and loader and not loader.workers):
        return Refused(why="there are no workers")
    return msgspec.structs.replace(strategy, workers=0)
