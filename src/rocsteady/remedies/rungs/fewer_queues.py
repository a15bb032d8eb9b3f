"""Ask the GPU for one hardware queue instead of four."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import setting, without_rocm
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="fewer-queues",
    title="One hardware queue per process",
    answers=("gpu-queues-exhausted",),
    cost="streams of one process no longer overlap",
    rank=59,
    sources=(
        "ROCm/ROCm#5151",
        "ROCm/ROCm#5706",
        "ROCm/clr: rocclr/utils/flags.hpp",
    ),
    evidence=(
        "the runtime's own switch, 4 by default; users report that it reduced what an idle"
        " process holds"
    ),
    when_not="Queues held by other processes: terminate those first.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it on any GPU."""
    why = without_rocm(situation)
    return Refused(why=why) if why else setting(situation, "GPU_MAX_HW_QUEUES", "1")
