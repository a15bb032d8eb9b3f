"""Let collectives use the plain protocol only."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import gfx_names, setting, without_rocr
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="nccl-simple",
    title="Collectives by the simple protocol",
    answers=(
        "hang-in-collective",
        "collective-timeout",
    ),
    cost="slower small messages",
    rank=69,
    sources=("ROCm/ROCR-Runtime#355",),
    evidence=("one report on two R9700 names it as one of the settings that made collectives work"),
    when_not="GPUs other than gfx1200 and gfx1201, and runs with one rank.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it where the other protocol was seen to hang."""
    why = without_rocr(situation) or _against(situation)
    return Refused(why=why) if why else setting(situation, "NCCL_PROTO", "Simple")


def _against(situation: Situation) -> str:
    if situation.ranks < 2:  # noqa: PLR2004 - alone, nobody is talked to
        return "there is one rank"
    known = set(gfx_names(situation)) & {"gfx1200", "gfx1201"}
    return "" if known else "it is known to help only on gfx1200 and gfx1201"
