"""Numbers as a row of small bars, and a part of a whole as one long bar."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

BLOCKS, PLAIN = "▁▂▃▄▅▆▇█", "_.-:=+*#"  # from low to high
LONG_BLOCKS, LONG_PLAIN = ("█", "░"), ("#", ".")  # what is done, and what is left


def sparkline(values: Sequence[float], width: int, *, blocks: bool) -> str:
    """Draw values from 0 up; where there are more than columns, each column shows its highest."""
    marks = BLOCKS if blocks else PLAIN
    if not values or width < 1:
        return ""
    columns = min(width, len(values))
    at = [round(n * len(values) / columns) for n in range(columns + 1)]
    highest = [max(values[begin:end]) for begin, end in pairwise(at)]
    top = max(highest) or 1.0
    last = len(marks) - 1
    return "".join(marks[min(last, max(0, round(last * value / top)))] for value in highest)


def long_bar(part: float, width: int, *, blocks: bool) -> str:
    """Draw how much of something is done, from 0 to 1."""
    full, empty = LONG_BLOCKS if blocks else LONG_PLAIN
    filled = int(min(max(part, 0.0), 1.0) * width)  # full only when all of it is done
    return full * filled + empty * (width - filled)
