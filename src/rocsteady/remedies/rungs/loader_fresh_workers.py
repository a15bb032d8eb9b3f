"""New DataLoader workers in every epoch: what the old ones have piled up goes with them."""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.loader_start_method import no_workers
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="loader-fresh-workers",
    title="New DataLoader workers in each epoch (persistent_workers off)",
    answers=("oom-host",),
    cost="the start of all workers in each epoch; later epochs shuffle in another order",
    rank=53,
    sources=("pytorch/pytorch#62066", "kohya-ss/sd-scripts#140", "field note C"),
    evidence=(
        "growing memory is reported in the first thread, for torch before 1.10 in the second. In"
        " field note C, against a hang, it did not help"
    ),
    when_not=(
        "A hang in the DataLoader: nothing shows that it matters there. A dataset that keeps what"
        " it has read in its workers would read it again in each epoch."
    ),
)


def apply(situation: Situation) -> Strategy | Refused:
    """Switch it off, where a loader was seen to have it on."""
    loader = situation.loader
    if no_workers(situation):
        return Refused(why="there are no workers")
    if loader is None or not loader.persistent or situation.strategy.persistent_workers is False:
        return Refused(why="no DataLoader was seen to keep its workers between epochs")
    return msgspec.structs.replace(situation.strategy, persistent_workers=False)
