"""Compile in the training process itself, without a pool of workers."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.preconditions import setting
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="compile-one-thread",
    title="torch.compile without worker processes",
    answers=("hang-in-compile",),
    cost="longer compilation",
    rank=39,
    sources=(
        "pytorch/pytorch#121197",
        "PyTorch: torch/_inductor/config.py",
    ),
    evidence=("PyTorch's own switch: 1 disables the pool of workers in which these hangs occur"),
    when_not="A compilation that is just slow.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Set it for any device."""
    return setting(situation, "TORCHINDUCTOR_COMPILE_THREADS", "1")
