"""Wait for the GPU by polling: an interrupt that is lost is then not missed."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import setting, without_rocr
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="interrupts-off",
    title="Wait for the GPU without interrupts",
    answers=("hang-lost-interrupt", "hang-in-sync", "hang-in-backward", "hang-in-copy"),
    cost="one CPU core, busy all the time",
    rank=42,
    sources=("ROCm/ROCm#6530", "ROCm/ROCT-Thunk-Interface#56"),
    evidence=(
        "measured in the first thread on gfx1151: 16 of 16 runs instead of 4 of 6; proposed by a"
        " KFD developer and no help in the second"
    ),
    when_not="Machines short of CPU cores: waiting uses up one core.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it where ROCr reads it."""
    why = without_rocr(situation)
    return Refused(why=why) if why else setting(situation, "HSA_ENABLE_INTERRUPT", "0")
