"""Go on from the last checkpoint in a new process, as often as that brings the job further."""

from __future__ import annotations

from rocsteady.model import Strategy
from rocsteady.remedies.remedy import Refused, Remedy
from rocsteady.remedies.situation import Situation

REMEDY = Remedy(
    id="fresh-process",
    title="New process from the last checkpoint",
    answers=(
        "oom-fragmentation",
        "oom-device",
        "oom-while-free",
        "oom-host",
        "blas-handle-failed",
        "hsa-out-of-resources",
        "too-many-open-files",
    ),
    cost="a restart and the steps since the checkpoint, each time it is needed",
    rank=58,
    sources=("pytorch/pytorch#175431", "pytorch/pytorch#138002", "field note D"),
    evidence=(
        "fragmented and leaked memory is freed when its process ends; field note D trained"
        " this way; it is not certain that memory lasts until the next checkpoint"
    ),
    when_not="A script that writes no checkpoint, or fails before it writes the next one.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Return the strategy as it is: the process is what changes."""
    if not situation.can_resume:
        return Refused(why="rocsteady does not know how the script resumes")
    if not situation.checkpoints:
        return Refused(why="there is no checkpoint: every process would start at step 0")
    if any(
        entry.remedy == REMEDY.id and not entry.progressed
        for entry in situation.tried
        if entry.strategy == situation.strategy
    ):
        return Refused(why="the last new process made no progress")
    return situation.strategy
