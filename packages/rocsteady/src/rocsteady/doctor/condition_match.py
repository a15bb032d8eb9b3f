"""Does a condition hold? Yes, no, or it cannot be told; and what the answer rests on.

An unknown fact makes a leaf unknown, not false. ``all`` is no as soon as one part is no; ``any`` is
yes as soon as one part is yes; otherwise one unknown part makes the whole unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from rocsteady.doctor.facts import Facts, Scalar
from rocsteady.doctor.knowledge.hardware import Arch
from rocsteady.doctor.knowledge.rules import Condition, operator_of
from rocsteady.versions import version_fits

VARIABLE = "variable:"

Seen = tuple[str, ...]


class CannotTell(Exception):  # noqa: N818 - an answer that checks give, not an error
    def __init__(self, fact: str) -> None:
        super().__init__(fact)
        self.fact = fact


class Match(NamedTuple):
    """The answer, the evidence for a yes, and the facts that were missing for it."""

    holds: bool | None
    seen: Seen = ()
    checked: Seen = ()  # the part of the evidence that checks gave
    settings: Seen = ()  # the part that variables gave, as one would type them
    missing: Seen = ()


Answers = dict[tuple[int, tuple[Scalar, ...]], Match]  # by the comparison and the values


class Matcher:
    """``answers`` may be shared by machines: what a comparison says of the same values."""

    def __init__(
        self,
        facts: Facts,
        checks: Mapping[str, Callable[[], Seen]],
        arches: Mapping[str, Arch],
        answers: Answers | None = None,
    ) -> None:
        self._answers: Answers = {} if answers is None else answers
        self._facts = facts
        self._checks = checks
        self._arches = arches

    def match(self, condition: Condition) -> Match:
        if condition.all is not None:
            return self._all(condition.all)
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

    def _all(self, conditions: Iterable[Condition]) -> Match:
        """Stop at the first no: what comes after it may make sense only if it had been a yes."""
        parts = []
        for condition in conditions:
            part = self.match(condition)
            if part.holds is False:
                return part
            parts.append(part)
        missing = _joined(part.missing for part in parts)
        return Match(holds=None, missing=missing) if missing else _yes(parts)

    def _leaf(self, leaf: Condition) -> Match:
        name = leaf.fact or ""
        if self._facts.why_unknown(name):
            return Match(holds=None, missing=(name,))
        values = self._facts.values(name)
        key = (id(leaf), values)
        if key not in self._answers:
            self._answers[key] = self._compared(leaf, name, values)
        return self._answers[key]

    def _compared(self, leaf: Condition, name: str, values: tuple[Scalar, ...]) -> Match:
        operator = operator_of(leaf)
        if operator == "present":
            return _answer(name, values, holds=bool(values) is leaf.present)
        if operator == "distinct":
            return _answer(name, values, holds=len(set(values)) >= (leaf.distinct or 0))
        fitting = tuple(value for value in values if self._fits(leaf, operator, value))
        return _answer(name, fitting, holds=bool(fitting))

    def _fits(self, leaf: Condition, operator: str, value: Scalar) -> bool:  # noqa: PLR0911 - one line an operator
        wanted = getattr(leaf, operator)
        if operator == "is_":
            return _same(value, wanted)
        if operator == "one_of":
            return any(_same(value, each) for each in wanted)
        if operator == "family":
            arch = self._arches.get(str(value))
            return arch is not None and arch.family in wanted
        if operator == "version":
            return version_fits(str(value), wanted)
        if operator == "at_least":
            return _number(value) >= float(wanted)
        if operator == "below":
            return _number(value) < float(wanted)
        if operator == "contains":
            return wanted in str(value)
        return str(value).startswith(wanted)


def _answer(name: str, values: tuple[Scalar, ...], *, holds: bool) -> Match:
    seen = _evidence(name, values) if holds else ()
    return Match(holds=holds, seen=seen, settings=seen if name.startswith(VARIABLE) else ())


def _same(value: Scalar, wanted: Scalar) -> bool:
    """Compare without taking 1 for True."""
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


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
        settings=_joined(part.settings for part in parts),
    )


def _joined(lists: Iterable[Seen]) -> Seen:
    return tuple(dict.fromkeys(entry for entries in lists for entry in entries))


def _evidence(name: str, values: tuple[Scalar, ...]) -> Seen:
    """Spell evidence the way a person would type it."""
    label = name.removeprefix(VARIABLE)
    joint = "=" if label != name else " is "
    return tuple(f"{label}{joint}{value}" for value in dict.fromkeys(values))


def _number(value: Scalar) -> float:
    """Return a number; for what is none, one that compares to nothing."""
    try:
        return float(value)
    except ValueError:
        return math.nan
