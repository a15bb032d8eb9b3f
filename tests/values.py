"""Values that many tests need and of which few fields matter."""

from __future__ import annotations

from typing import Any

from rocsteady.model import Certainty, Decision, Failure, Fingerprint, Next
from rocsteady.store.values import DecisionRecord


def failure(kind: str, **fields: Any) -> Failure:  # noqa: ANN401 - those of Failure
    """Return a certain failure of which nothing but the kind matters, unless ``fields`` differ."""
    usual = {"title": kind, "words": "", "certainty": Certainty.CERTAIN, "seen": ()}
    fingerprint = fields.pop("fingerprint", Fingerprint(kind=kind))
    return Failure(kind=kind, fingerprint=fingerprint, **{**usual, **fields})


def decided(
    remedy: str = "",
    why: str = "",
    *,
    attempt: int = 1,
    at: float = 0.0,
    **fields: Any,  # noqa: ANN401 - those of Decision
) -> DecisionRecord:
    """Return that a remedy, or the same again, follows an attempt, unless ``fields`` differ."""
    decision = Decision(**{"next": Next.AGAIN, "why": why, "remedy": remedy, **fields})
    return DecisionRecord(run=1, attempt=attempt, decision=decision, at=at)
