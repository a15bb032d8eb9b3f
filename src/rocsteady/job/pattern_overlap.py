"""Whether two patterns for files can both match one file: two runs would then share it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

_MARKS = re.compile(r"\[[!^]?\]?[^]]*\]|.", re.DOTALL)  # a set of characters is one mark


def overlap(first: Sequence[str], second: Sequence[str]) -> str:
    """Return the pattern of the first that overlaps with one of the second; "" if none does."""
    both = ((one, _parts(one), _parts(other)) for one in first for other in second)
    return next((one for one, a, b in both if _meet(a, b, "**", _same_name)), "")


def _parts(pattern: str) -> tuple[str, ...]:
    """Split a pattern into the names of its path, from the present folder."""
    return Path(os.path.abspath(pattern)).parts  # noqa: PTH100 - with .. taken out


def _same_name(one: str, other: str) -> bool:
    return _meet(tuple(_MARKS.findall(one)), tuple(_MARKS.findall(other)), "*", _same_mark)


def _same_mark(one: str, other: str) -> bool:
    """Tell whether two marks may stand for one character; a set may stand for any."""
    return one == other or any(mark == "?" or len(mark) > 1 for mark in (one, other))


def _meet(
    one: tuple[str, ...], other: tuple[str, ...], many: str, same: Callable[[str, str], bool]
) -> bool:
    """Tell whether something matches both; ``many`` stands for any number of elements."""

    @cache
    def meet(a: int, b: int) -> bool:
        if a < len(one) and one[a] == many:
            return meet(a + 1, b) or (b < len(other) and meet(a, b + 1))
        if b < len(other) and other[b] == many:
            return meet(a, b + 1) or (a < len(one) and meet(a + 1, b))
        if a == len(one) or b == len(other):
            return (a, b) == (len(one), len(other))
        return same(one[a], other[b]) and meet(a + 1, b + 1)

    return meet(0, 0)
