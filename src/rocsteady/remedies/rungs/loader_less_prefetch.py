"""One batch ahead in each DataLoader worker: what waits in the queues is memory."""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.loader_start_method import no_workers
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

LEAST = 1  # batch ahead; torch takes no less

REMEDY = Remedy(
    id="loader-less-prefetch",
    title="DataLoader workers load one batch ahead",
    answers=("oom-host", "shm-too-small"),
    cost="speed, where some batches take much longer to load than others",
    rank=52,
    sources=(
        "pytorch/pytorch#97432",
        "pytorch/pytorch#25643",
        "Lightning-AI/litData#141",
        "field note C",
    ),
    evidence=(
        "in the first thread memory went down with the factor; in the second a maintainer says why."
        " In field note C, against a hang, it did not help"
    ),
    when_not="A hang in the DataLoader: nothing shows that fewer batches ahead end it.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Halve what torch has waiting by default, or more where the script asks for more."""
    if no_workers(situation):
        return Refused(why="there are no workers")
    if situation.strategy.prefetch_factor == LEAST:
        return Refused(why="workers already load one batch ahead")
    return msgspec.structs.replace(situation.strategy, prefetch_factor=LEAST)
