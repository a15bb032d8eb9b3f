"""Values whose name stands in a line above: columns below a header, tables of TOML and INI."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rocsteady.store.redaction.secret_names import (
    Kind,
    harmless,
    kind_of,
    like_a_password,
    looks_random,
)
from rocsteady.store.redaction.secret_patterns import REDACTED

BARS = "|\u2502\u2503\u2506\u2551"  # between the cells of a table
_TELLING = re.compile(r"pass|pwd|token|secret|key|sig|auth|cred|cookie|jwt|dsn", re.IGNORECASE)
_CELLS = (
    # this mark between two cells
    *(re.compile(rf"[^{mark}]+") for mark in (BARS, "\t", ",", ";")),
    re.compile(r"\S+(?: \S+)*"),  # two blanks or more
)
_NAME = re.compile(r"[\"']?[A-Za-z][\w.-]{0,40}[\"']?")
_LAST_NAME = re.compile(r"(?:^|.*[\W])([A-Za-z][\w.-]{0,40}[\"']?)")  # a stamp may come before it
_FRAMED = re.compile(rf"\s*[{BARS}][^{BARS}]+[{BARS}]\s*")  # the only column
_RULE = re.compile(r"[\s|:+=\u2500-\u257f-]+")  # below a header
_SECTION = re.compile(r"(?:.{0,200}\W)?\[{1,2}(?P<name>[\w.\"'-]{1,80})\]{1,2}\s*(?:[#;].*)?")
_PAIR = re.compile(r"\s*(?P<name>[\w.-]{1,64})\s*=\s*[\"']?(?P<value>[^\s\"'][^\"']{0,999})")
_SEVERAL = re.compile(r"(?P<indent>[ \t]*)[\"']?(?P<name>[\w.-]{1,64})s[\"']?:\s*")  # "tokens:"
_ONE = re.compile(r"(?P<indent>[ \t]+)[^\s:#-][^:]{0,64}:\s+[\"']?(?P<value>[^\s\"'][^\"']{0,999})")
_MOST_CELLS, _LONGEST_LINE = 64, 2000

StandIn = Callable[[Kind, str], str]


class _Cell(NamedTuple):
    """A value in a line, and the name that stands above it."""

    name: str
    first: int
    last: int
    sure: bool  # it has a name of its own, too


_Finder = Callable[[str], Iterable[_Cell] | None]  # None: the table has ended


def replace_below(text: str, stand_in: StandIn) -> str:
    """Replace what stands in lines below a telling name. The number of lines stays."""
    if "\n" not in text or not _TELLING.search(text):
        return text
    lines = text.split("\n")
    finder: _Finder | None = None
    for number, line in enumerate(lines):
        header = _finder(line)
        cells = finder(line) if finder and not header else None
        if cells is None:
            finder = header
            continue
        for cell in reversed(tuple(cells)):
            line = _replaced(line, cell, stand_in)  # noqa: PLW2901 - from its end on
        lines[number] = line
    return "\n".join(lines)


def names_below(line: str) -> bool:
    """Say whether a line names what stands in the lines below it."""
    return _finder(line) is not None


def _finder(line: str) -> _Finder | None:
    """Return how to find what a line names in those below it, if it is such a line."""
    if len(line) > _LONGEST_LINE or not _TELLING.search(line):
        return None
    section = _SECTION.fullmatch(line)
    if section:
        return _of_section(section["name"].split("."))
    several = _SEVERAL.fullmatch(line)
    if several:
        return _of_mapping(several["name"], len(several["indent"]))
    for cells in _CELLS:
        names = _names([each[0].strip() for each in _cells(cells, line)[-_MOST_CELLS:]])
        if len(names) > 1 or (names and _FRAMED.fullmatch(line)):
            return _of_columns(cells, names)
    return None


def _names(cells: list[str]) -> list[str]:
    """Return the names at the end of a line; other text may stand before the first of them."""
    names: list[str] = []
    for cell in reversed(cells):
        name = _LAST_NAME.fullmatch(cell)
        if name:
            names.append(name[1].strip("\"'"))
        if not _NAME.fullmatch(cell):
            break
    return names[::-1]


def _of_section(above: list[str]) -> _Finder | None:
    parts = [part.strip("\"'") for part in above]
    if not any(map(_kind, (f"{part}_value" for part in parts))):
        return None

    def find(line: str) -> Iterable[_Cell] | None:
        if line.lstrip().startswith("["):
            return None
        pair = _PAIR.match(line)
        if pair is None:
            return ()
        names = [f"{part}_{pair['name']}" for part in parts]
        return [_Cell(name, *pair.span("value"), sure=True) for name in names if _kind(name)][:1]

    return find


def _of_mapping(name: str, indent: int) -> _Finder | None:
    kind = _kind(name)
    if kind is None:
        return None

    def find(line: str) -> Iterable[_Cell] | None:
        one = _ONE.match(line)
        if one is None or len(one["indent"]) <= indent:
            return None
        return [_Cell(name, *one.span("value"), sure=kind is Kind.SECRET)]

    return find


def _of_columns(cells: re.Pattern[str], names: list[str]) -> _Finder | None:
    if not any(map(_kind, names)):
        return None

    def find(line: str) -> Iterable[_Cell] | None:
        if _RULE.fullmatch(line):
            return ()
        found = _cells(cells, line)
        if cells is _CELLS[-1] and len(found) == len(names) + 1:
            del found[0]  # the number of a row
        if len(found) != len(names):
            return None
        named = zip(names, found, strict=True)
        return [_Cell(name, *each.span(), sure=False) for name, each in named if _kind(name)]

    return find


def _cells(cells: re.Pattern[str], line: str) -> list[re.Match[str]]:
    """Return the cells of a line; of one that ends with a bar not what comes before the first."""
    bar = line.rstrip()[-1:]
    first = line.find(bar) if bar and bar in BARS else 0
    return [each for each in cells.finditer(line, max(0, first)) if each[0].strip()]


def _kind(name: str) -> Kind | None:
    kind = kind_of(name)
    return kind if kind in (Kind.SECRET, Kind.LIKELY) else None


def _looks_drawn(word: str) -> bool:
    """Tell a drawn word from names of layers and models, which stand in columns, too."""
    return looks_random(word, least=12, least_digits=1)


def _replaced(line: str, cell: _Cell, stand_in: StandIn) -> str:
    """Replace a cell but for blanks and quotation marks, unless it is plainly no secret."""
    whole = line[cell.first : cell.last]
    value = whole.strip(" \t\"'\r")
    kind = _kind(cell.name)
    if kind is None or not value or REDACTED in value or harmless(kind, cell.name, value):
        return line
    if not cell.sure and (kind is Kind.LIKELY or " " in value):
        tells = like_a_password if kind is Kind.SECRET else _looks_drawn
        if not any(map(tells, value.split())):
            return line
    first = cell.first + whole.index(value)
    return line[:first] + stand_in(kind, value) + line[first + len(value) :]
