"""One OpenMP thread: many threads in each of many processes can starve each other."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import setting
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="omp-threads",
    title="One OpenMP thread per process",
    answers=("hang-in-loader", "loader-timeout"),
    cost="speed of CPU work outside the loader workers",
    rank=57,
    sources=("pytorch/pytorch#33296", "field note C"),
    evidence="reported to help in the thread; two threads did not help in field note C",
    when_not="Training on the CPU.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it where the GPU does the work."""
    if not situation.gpus or situation.strategy.device == "cpu":
        return Refused(why="the training itself runs on the CPU")
    if situation.ranks > 1:
        return Refused(why="torchrun gives each rank one thread anyway")
    return setting(situation, "OMP_NUM_THREADS", "1")
