r"""A pattern that a person wrote, made safe to apply to every line that a script prints.

Python's engine goes back over a line for each way in which a pattern could match it, and cannot be
interrupted meanwhile. So the ways are counted beforehand, from the parsed pattern. A repeat adds
none if what follows cannot begin as the repeat goes on: ``\d+/`` has one way, ``.*/`` as many as
the line has places. The more ways, the less of a line is looked at; and a pattern with too many, as
one with a repeat inside a repeat, is refused.
"""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from math import factorial
from typing import Any, NamedTuple

LONGEST = 200  # characters of a pattern
LINE = 2048  # characters of a line that are looked at, at most
LEAST_OF_A_LINE = 80  # with fewer, a pattern is refused
STEPS = 4e6  # of the engine, for one line; 0.13 s where it was slowest in 4,700 made-up ones

Letters = frozenset[int]  # ASCII, and OTHER for all the rest; none: nothing follows that can fail
Items = Iterable[tuple[Any, Any]]  # operations of a parsed pattern, each with its arguments
OTHER = 128
END = 129  # of a line or a word: nothing that is matched, and it can fail
_ALL = frozenset(range(OTHER + 1))
_CLASSES = {
    f"CATEGORY_{name}": frozenset(
        code for code in range(OTHER) if re.fullmatch(letter, chr(code), re.ASCII)
    )
    for name, letter in (("DIGIT", r"\d"), ("SPACE", r"\s"), ("WORD", r"\w"))
}
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


class SafePattern(NamedTuple):
    """A compiled pattern, and how much of a line it may be applied to."""

    pattern: re.Pattern[str]
    characters: int


class _Ways(NamedTuple):
    """In how many ways a pattern can match: ``forks``, times the length of a line ``places``."""

    forks: int = 1
    places: int = 0

    def and_(self, other: _Ways) -> _Ways:
        return _Ways(self.forks * other.forks, self.places + other.places)


def safe_pattern(text: str) -> SafePattern:
    """Compile a pattern, or raise ValueError with a sentence that says what is wrong with it."""
    if len(text) > LONGEST:
        raise ValueError(f"longer than {LONGEST} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pattern = re.compile(text, re.ASCII)
            parser = "re._parser" if sys.version_info >= (3, 11) else "sre_parse"
            parsed = importlib.import_module(parser).parse(text, re.ASCII)
    except (re.error, ArithmeticError, RecursionError, Warning) as error:
        raise ValueError(f"not a pattern: {error}") from None
    _, ways = _walk(parsed, frozenset())
    characters = _bearable(ways)
    if characters < LEAST_OF_A_LINE:
        raise ValueError(
            r"it can match a line in too many ways; say what may stand there, as \D* in place of .*"
        )
    return SafePattern(pattern, characters)


def _bearable(ways: _Ways) -> int:
    """Return how long a line may be so that the engine takes no more than its steps.

    It begins at each place of a line and goes on to the end from there, for each way.
    """
    power = ways.places + 2
    return min(LINE, int((STEPS * factorial(power) / ways.forks) ** (1 / power)))


def _walk(items: Items, follow: Letters) -> tuple[Letters, _Ways]:
    """Return with what items can begin, given what follows them, and the ways to match them."""
    first, ways = follow, _Ways()
    for operation, arguments in reversed(list(items)):
        name = str(operation)
        more = _Ways()
        if name == "SUBPATTERN":
            first, more = _walk(arguments[-1], first)
        elif name == "ATOMIC_GROUP":
            first, more = _walk(arguments, first)
        elif name == "BRANCH":
            first, more = _branch(arguments[1], first)
        elif name in _REPEATS:
            first, more = _repeat(arguments[0], arguments[1], arguments[2], first)
        elif name == "AT":
            first |= {END}
        else:
            first = _letters(name, arguments)
        ways = ways.and_(more)
    return first, ways


def _branch(alternatives: Iterable[Items], follow: Letters) -> tuple[Letters, _Ways]:
    walked = [_walk(items, follow) for items in alternatives]
    first = frozenset[int]().union(*(each for each, _ in walked))
    apart = sum(len(each) for each, _ in walked) == len(first)
    forks = max(ways.forks for _, ways in walked) * (1 if apart else len(walked))
    return first, _Ways(forks, max(ways.places for _, ways in walked))


def _repeat(least: int, most: int, body: Items, follow: Letters) -> tuple[Letters, _Ways]:
    first, ways = _walk(body, follow)
    if most > 1 and any(_choices(body)):
        raise ValueError("a repeat or a choice inside a repeat can take forever; write it flat")
    if least != most and first & follow:
        many = most - least >= LINE
        ways = ways.and_(_Ways(places=1) if many else _Ways(forks=most - least + 1))
    if least == 0:  # it can be left out
        first = first | follow if follow else follow
    return first, ways


def _choices(items: Items) -> Iterator[str]:
    """Yield the operations that can match in more than one way."""
    for operation, arguments in items:
        name = str(operation)
        if name == "BRANCH" or (name in _REPEATS and arguments[0] != arguments[1]):
            yield name
        elif name in _REPEATS or name == "SUBPATTERN":
            yield from _choices(arguments[-1])
        elif name == "ATOMIC_GROUP":
            yield from _choices(arguments)


def _letters(name: str, arguments: Any) -> Letters:  # noqa: ANN401 - as the parser has it
    """Return what one operation can match; more rather than less where case does not count."""
    if name == "ANY":
        return _ALL
    if name == "NOT_LITERAL":
        return (_ALL - _codes("LITERAL", arguments)) | {OTHER}
    if name != "IN":
        return _both_cases(_codes(name, arguments))
    negated = str(arguments[0][0]) == "NEGATE"
    each = (_codes(str(operation), rest) for operation, rest in arguments[negated:])
    found = frozenset[int]().union(*each)
    return (_ALL - found) | {OTHER} if negated else _both_cases(found)


def _codes(name: str, arguments: Any) -> Letters:  # noqa: ANN401 - as the parser has it
    if name == "LITERAL":
        return frozenset({min(arguments, OTHER)})
    if name == "RANGE":
        return frozenset(range(min(arguments[0], OTHER), min(arguments[1], OTHER) + 1))
    if name == "CATEGORY":
        plain = str(arguments).replace("NOT_", "")
        return _CLASSES[plain] if plain == str(arguments) else _ALL - _CLASSES[plain]
    raise ValueError("it refers to what it matched, or looks ahead or back; leave that out")


def _both_cases(codes: Letters) -> Letters:
    return codes | {ord(chr(code).swapcase()) for code in codes if code < OTHER}
