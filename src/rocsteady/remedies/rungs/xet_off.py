"""Download from Hugging Face without Xet, whose transfers are known to stall."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import setting
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="xet-off",
    title="Downloads without Xet",
    answers=("hang-in-download",),
    cost="slower downloads",
    rank=22,
    sources=(
        "huggingface/xet-core#293",
        "huggingface/xet-core#883",
    ),
    evidence="confirmed by users in the threads: downloads that stalled at 0 B went through",
    when_not="Downloads that do not come from Hugging Face; nothing else reads the variable.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it; what does not use Xet does not notice."""
    return setting(situation, "HF_HUB_DISABLE_XET", "1")
