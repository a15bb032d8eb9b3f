"""The same again, once: a first failure is often chance."""

from __future__ import annotations

from itertools import pairwise

from rocsteady.model import Strategy
from rocsteady.remedies.remedy import ALREADY_TRIED, ANY, Refused, Remedy
from rocsteady.remedies.situation import DETERMINISTIC, TRANSIENT, Situation

REMEDY = Remedy(
    id="retry",
    title="Retry without changes",
    answers=(ANY,),
    cost="the steps since the last checkpoint",
    rank=10,
    sources=("pytorch/pytorch#60910", "intelligent-machine-learning/dlrover"),
    evidence=(
        "common practice; DLRover's authors say that a plain restart cures about three faults"
        " in four; according to the first thread, a run that fails before its first step is"
        " not worth retrying"
    ),
    when_not="A failure that recurs at the same step: it is not transient.",
)


def apply(situation: Situation) -> Strategy | Refused:
    """Return the strategy as it is."""
    kind, last = situation.failure.kind, situation.tried[-1]
    why = ""
    if kind == "unknown":
        why = "" if last.progressed else "the cause is not known, and the retry made no progress"
    elif situation.nature == DETERMINISTIC:
        why = "the run would fail in the same way"
    elif _retried(situation):
        why = ALREADY_TRIED
    elif situation.nature != TRANSIENT and not last.steps and not kind.startswith("hang"):
        why = "the script failed before its first step"
    return Refused(why=why) if why else situation.strategy


def _retried(situation: Situation) -> bool:
    """Tell whether this kind has had its retry; for a transient one progress gives another."""
    tried = situation.tried
    if situation.nature == TRANSIENT:
        first = max((at for at, entry in enumerate(tried) if entry.progressed), default=0)
        tried = tried[first:]
    return any(
        after.remedy == REMEDY.id and before.failure.kind == situation.failure.kind
        for before, after in pairwise(tried)
    )
