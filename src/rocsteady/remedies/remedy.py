"""What a remedy is, and the contract that each file of ``remedies/rungs/`` keeps."""

from __future__ import annotations

from typing import Protocol

from rocsteady.model import Strategy, Value
from rocsteady.remedies.situation import Situation

ANY = "any"  # among what a remedy answers: every kind of failure
ALREADY_TRIED = "already tried"  # why a remedy is refused that this run has had


class Remedy(Value, frozen=True, kw_only=True):
    """What a person wants to know of a remedy before it is used."""

    id: str
    title: str
    answers: tuple[str, ...]  # kinds of failure, of knowledge/data/failures.toml
    cost: str
    rank: int  # cheapest first
    sources: tuple[str, ...]  # such as "ROCm/ROCm#6530"
    evidence: str  # how far these go
    when_not: str
    confirmed_on: tuple[str, ...] = ()  # hardware on which we saw it help; empty is "no"

    def answer_to(self, kind: str) -> bool:
        """Tell whether it is meant for a kind of failure."""
        return ANY in self.answers or kind in self.answers


class Refused(Value, frozen=True, kw_only=True):
    """Why a remedy is not right here; half a sentence."""

    why: str


class Rung(Protocol):
    """One file of ``remedies/rungs/``."""

    REMEDY: Remedy

    def apply(self, situation: Situation) -> Strategy | Refused:
        """Return the strategy with one setting changed, or why that is not right here."""
