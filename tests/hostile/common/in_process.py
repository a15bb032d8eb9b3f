"""The command line in this process: hundreds of inputs would take hours otherwise."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

from rocsteady.cli.main import main

ALL = "ROCSTEADY_HOSTILE_ALL"  # set by `nox -s hostile`: the full numbers, in minutes


COUNTS: Counter[tuple[str, str]] = Counter()  # what was tried, and what came of it


def count(what: str, came_of_it: str, number: int = 1) -> None:
    """Add to the numbers that `nox -s hostile` prints."""
    COUNTS[what, came_of_it] += number


class Said(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Said]


def carry_out(*words: str, given: str = "") -> Said:
    out, err, code = io.StringIO(), io.StringIO(), 0
    stdin = io.TextIOWrapper(io.BytesIO(given.encode("utf-8", "surrogatepass")))
    with (
        mock.patch.object(sys, "argv", ["rocsteady", *words]),
        mock.patch.object(sys, "stdin", stdin),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
    return Said(code, out.getvalue(), err.getvalue())


def number(few: int, many: int) -> int:
    """Return how many inputs to try: a few, or all."""
    return many if os.environ.get(ALL) else few
