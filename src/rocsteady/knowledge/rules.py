"""What a rule is: a condition over facts, and what a person should know when it holds.

A condition is data. Its leaves compare one named fact; ``all``, ``any`` and ``none`` combine them.
Where data cannot say it, a leaf names a check, which is a file in ``doctor/checks/``.
"""

from __future__ import annotations

from rocsteady.knowledge.values import Confidence, Effect, Fix, Severity
from rocsteady.model import Value

Scalar = bool | int | float | str


class Condition(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"is_": "is"}):
    """One node of a condition. A fact may have several values; a leaf holds if any one fits."""

    all: tuple[Condition, ...] | None = None
    any: tuple[Condition, ...] | None = None
    none: tuple[Condition, ...] | None = None
    check: str | None = None

    fact: str | None = None
    is_: Scalar | None = None
    one_of: tuple[Scalar, ...] | None = None
    family: tuple[str, ...] | None = None  # architecture families: "gfx11_0" holds for gfx1100
    version: str | None = None  # as pip writes it: ">=2.8,<2.12"
    at_least: float | None = None
    below: float | None = None
    contains: str | None = None
    starts_with: str | None = None
    present: bool | None = None
    distinct: int | None = None  # at least so many different values


class Rule(Value, frozen=True, kw_only=True):
    """One thing that is known to go wrong on some machines."""

    id: str
    title: str  # one line, for lists
    severity: Severity
    when: Condition
    summary: (
        str  # one or two sentences; {fact}, {seen} (by checks) and {set} (variables) are filled
    )
    why: str  # the whole story, for --explain
    fix: Fix
    confidence: Confidence
    sources: tuple[str, ...]  # keys of sources.toml
    confirmed_on: tuple[str, ...]  # hardware on which we saw it ourselves; empty is "no"
    effect: Effect | None = None  # of the variables in ``when``, where it is not that they harm
    training_hung: bool = False  # training that nothing blocks was seen to hang on these machines
