"""Keep large blocks of GPU memory whole: pieces of them are what cannot be used again."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.allocator import with_key
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="allocator-no-split",
    title="Do not split large memory blocks",
    answers=("oom-fragmentation",),
    cost="more driver calls, and some memory that stays unused",
    rank=31,
    sources=("PyTorch documentation, CUDA semantics: max_split_size_mb", "pytorch/pytorch#138002"),
    evidence="suggested by PyTorch's documentation as a last resort",
    when_not="A device that is really full: this needs more memory, not less.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Add the key with the size that is usual."""
    return with_key(situation, "max_split_size_mb", "128")
