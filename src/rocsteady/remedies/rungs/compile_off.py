"""No torch.compile."""

from __future__ import annotations

import msgspec

from rocsteady.model import Strategy
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="compile-off",
    title="No torch.compile",
    answers=("compile-failure", "hang-in-compile"),
    cost="the speed that compilation gains; startup is faster",
    rank=45,
    sources=("ROCm/ROCm#3060", "pytorch/pytorch#121197", "field note B"),
    evidence="confirmed in the first thread and in field note B",
    when_not="A script that compiles nothing: no effect.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Give back what torch.compile was given."""
    if situation.strategy.compile is False:
        return Refused(why="torch.compile is already off")
    return msgspec.structs.replace(situation.strategy, compile=False)
