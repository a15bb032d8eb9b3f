"""What a rule is: a condition over facts, and what a person should know when it holds.

A condition is data. Its leaves compare one named fact; ``all``, ``any`` and ``none`` combine them.
Where data cannot say it, a leaf names a check, a function of ``doctor/checks.py``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from rocsteady.doctor.knowledge.values import (
    Area,
    Confidence,
    Effect,
    Fix,
    KnowledgeEntry,
    Severity,
    Slug,
    Sources,
    Text,
)
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


class Rule(KnowledgeEntry, frozen=True, kw_only=True):
    """One thing that is known to go wrong on some machines."""

    id: Slug
    title: Text  # one line, for lists
    severity: Severity
    area: Area = Area.GPU  # the reader fills it in, by the file
    when: Condition
    summary: Text  # one or two sentences; {fact}, {seen} (by checks), {set} (variables) are filled
    why: Text  # the whole story
    fix: Fix
    confidence: Confidence
    sources: Sources
    confirmed_on: tuple[str, ...]  # hardware on which we saw it ourselves; empty is "no"
    effect: Effect | None = None  # of the variables in ``when``, where it is not that they harm
    example: dict[str, Scalar | tuple[Scalar, ...]] = msgspec.field(default_factory=dict)
    # facts of a machine on which it holds, where no recorded machine has it; the rest is not known
    leads_to: tuple[str, ...] = ()  # failures of failures.toml that it can be the cause of
    training_hung: bool = False  # training that nothing blocks was seen to hang on these machines


# What makes a condition well formed. Whether one holds is the doctor's question.


PLACEHOLDER = re.compile(r"\{([\w.:-]+)\}")
GROUPS = ("all", "any", "none")
OPERATORS = Condition.__struct_fields__[Condition.__struct_fields__.index("fact") + 1 :]


def operator_of(leaf: Condition) -> str:
    return next(name for name in OPERATORS if getattr(leaf, name) is not None)


def leaves(condition: Condition) -> Iterator[Condition]:
    """Yield every comparison and check of a condition."""
    parts = next((parts for name in GROUPS if (parts := getattr(condition, name))), None)
    if parts is None:
        yield condition
    else:
        for part in parts:
            yield from leaves(part)


def problems(
    condition: Condition,
    *,
    facts: Collection[str] | None,
    checks: Collection[str] | None,
    families: Collection[str],
    field: str = "when",
) -> Iterator[tuple[str, str]]:
    groups = [name for name in GROUPS if getattr(condition, name) is not None]
    operators = [name for name in OPERATORS if getattr(condition, name) is not None]
    heads = [*groups, *(head for head in ("check", "fact") if getattr(condition, head) is not None)]
    if len(heads) != 1:
        yield field, "exactly one of all, any, none, check or fact"
    elif condition.fact is not None:
        yield from _leaf_problems(condition, operators, facts, families, field)
    elif operators:
        yield field, f"{heads[0]} takes no {operators[0].rstrip('_')}"
    elif condition.check is not None:
        if checks is not None and condition.check not in checks:
            yield f"{field}.check", f"{condition.check!r} is not a check"
    else:
        parts: tuple[Condition, ...] = getattr(condition, groups[0])
        if not parts:
            yield f"{field}.{groups[0]}", "empty"
        for index, part in enumerate(parts):
            deeper = f"{field}.{groups[0]}[{index}]"
            yield from problems(part, facts=facts, checks=checks, families=families, field=deeper)


def _leaf_problems(
    leaf: Condition,
    operators: list[str],
    facts: Collection[str] | None,
    families: Collection[str],
    field: str,
) -> Iterator[tuple[str, str]]:
    if len(operators) != 1:
        names = ", ".join(name.rstrip("_") for name in OPERATORS)
        yield field, f"a fact takes exactly one of {names}"
    if facts is not None and leaf.fact not in facts:
        yield f"{field}.fact", f"{leaf.fact!r} is not a fact"
    for name in ("one_of", "family", "version", "contains", "starts_with"):
        if getattr(leaf, name) in ("", ()):
            yield f"{field}.{name}", "empty"
    if leaf.version is not None and not is_range(leaf.version):
        yield f"{field}.version", f"{leaf.version!r} is not a version range"
    for family in leaf.family or ():
        if family not in families:
            yield f"{field}.family", f"{family!r} is not a family of gpus.toml"


@lru_cache(maxsize=4096)
def is_range(text: str) -> bool:
    """Return whether a text is a version range as pip writes it."""
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return True
