"""Does a condition hold? Yes, no, or it cannot be told; and what the answer rests on.

An unknown fact makes a leaf unknown, not false. ``all`` is no as soon as one part is no; ``any`` is
yes as soon as one part is yes; otherwise one unknown part makes the whole unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from rocsteady.doctor.facts import Facts, Scalar
from rocsteady.knowledge.conditions import operator_of
from rocsteady.knowledge.hardware import Arch
from rocsteady.knowledge.rules import Condition

Seen = tuple[str, ...]


class CannotTell(Exception):  # noqa: N818 - an answer that checks give, not an error
    """What a check raises when a fact it needs is unknown."""

    def __init__(self, fact: str) -> None:
        super().__init__(fact)
        self.fact = fact


class Match(NamedTuple):
    """The answer, the evidence for a yes, and the facts that were missing for it."""

    holds: bool | None
    seen: Seen = ()
    checked: Seen = ()  # the part of the evidence that checks gave
    missing: Seen = ()


class Matcher:
    """Evaluates conditions over the facts of one machine."""

    def __init__(
        self, facts: Facts, checks: Mapping[str, Callable[[], Seen]], arches: Mapping[str, Arch]
    ) -> None:
        self._facts = facts
        self._checks = checks
        self._arches = arches

    def match(self, condition: Condition) -> Match:
        """Evaluate one condition."""
        if condition.all is not None:
            return _all([self.match(part) for part in condition.all])
        if condition.any is not None:
            return _any([self.match(part) for part in condition.any])
        if condition.none is not None:
            inner = _any([self.match(part) for part in condition.none])
            holds = None if inner.holds is None else not inner.holds
            return Match(holds=holds, missing=inner.missing)
        if condition.check is not None:
            try:
                seen = self._checks[condition.check]()
            except CannotTell as unknown:
                return Match(holds=None, missing=(unknown.fact,))
            return Match(holds=bool(seen), seen=seen, checked=seen)
        return self._leaf(condition)

    def _leaf(self, leaf: Condition) -> Match:
        name = leaf.fact or ""
        if self._facts.why_unknown(name):
            return Match(holds=None, missing=(name,))
        values = self._facts.values(name)
        operator = operator_of(leaf)
        if operator == "present":
            return Match(bool(values) is leaf.present, _told(name, values))
        if operator == "distinct":
            return Match(len(set(values)) >= (leaf.distinct or 0), _told(name, values))
        fitting = tuple(value for value in values if self._fits(leaf, operator, value))
        return Match(bool(fitting), _told(name, fitting))

    def _fits(self, leaf: Condition, operator: str, value: Scalar) -> bool:  # noqa: PLR0911 - one line an operator
        wanted = getattr(leaf, operator)
        if operator == "is_":
            return value == wanted and type(value) is type(wanted)
        if operator == "one_of":
            return value in wanted
        if operator == "family":
            arch = self._arches.get(str(value))
            return arch is not None and arch.family in wanted
        if operator == "version":
            return version_fits(str(value), wanted)
        if operator in ("at_least", "below"):
            number = _number(value)
            return number is not None and (number >= wanted) == (operator == "at_least")
        if operator == "contains":
            return wanted in str(value)
        return str(value).startswith(wanted)


def version_fits(text: str, wanted: str) -> bool:
    """Compare a version of any project: 6.8.0-45-generic and 2.9.0.dev20250706 are versions."""
    try:
        version = Version(text)
    except InvalidVersion:
        match = re.match(r"\d+(\.\d+)*", text)
        if match is None:
            return False
        version = Version(match.group())
    return SpecifierSet(wanted).contains(version, prereleases=True)


def _all(parts: list[Match]) -> Match:
    if any(part.holds is False for part in parts):
        return Match(holds=False)
    missing = _joined(part.missing for part in parts if part.holds is None)
    if missing:
        return Match(holds=None, missing=missing)
    return _yes(parts)


def _any(parts: list[Match]) -> Match:
    held = [part for part in parts if part.holds]
    if held:
        return _yes(held)
    missing = _joined(part.missing for part in parts if part.holds is None)
    return Match(holds=None, missing=missing) if missing else Match(holds=False)


def _yes(parts: list[Match]) -> Match:
    return Match(
        holds=True,
        seen=_joined(part.seen for part in parts),
        checked=_joined(part.checked for part in parts),
    )


def _joined(lists: Iterable[Seen]) -> Seen:
    return tuple(dict.fromkeys(entry for entries in lists for entry in entries))


def _told(name: str, values: tuple[Scalar, ...]) -> Seen:
    """Spell evidence the way a person would type it."""
    label = name.removeprefix("variable:")
    joint = "=" if label != name else " is "
    return tuple(f"{label}{joint}{value}" for value in dict.fromkeys(values))


def _number(value: Scalar) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
