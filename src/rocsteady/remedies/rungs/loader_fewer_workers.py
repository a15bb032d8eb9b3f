"""Half as many DataLoader workers: each holds memory, files and shared memory of its own."""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="loader-fewer-workers",
    title="Half as many DataLoader workers",
    answers=(
        "oom-host",
        "shm-too-small",
        "too-many-open-files",
        "loader-worker-died",
        "loader-timeout",
    ),
    cost="speed, where loading becomes slower than the step",
    rank=54,
    sources=("pytorch/pytorch#8976", "open-mmlab/mmrotate#501", "cvlab-columbia/zero123#122"),
    evidence="confirmed in threads on host memory; suggested for workers that died",
    when_not=(
        "A hang in the DataLoader, which becomes rarer with fewer workers but does not go away."
    ),
)


def apply(situation: Situation) -> Strategy | Refused:
    """Halve what is in force; one, where that is not known."""
    loader, workers = situation.loader, situation.strategy.workers
    if workers is None:
        workers = loader.workers if loader else 2
    if workers < 2:  # noqa: PLR2004 - half of one is none, which is another remedy
        return Refused(why="there is at most one worker")
    return msgspec.structs.replace(situation.strategy, workers=workers // 2)
