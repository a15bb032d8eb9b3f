"""Colours say in which state something is, and nothing else; none without a terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

RED, GREEN, YELLOW, DIM, BOLD = "red", "green", "yellow", "dim", "bold"
_CODES = {RED: "31", GREEN: "32", YELLOW: "33", DIM: "2", BOLD: "1"}


def takes_colour(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether colours are welcome: on a terminal, and unless the user wants none."""
    plain = "NO_COLOR" in environment or environment.get("TERM") == "dumb" or os.name == "nt"
    return stream.isatty() and not plain


def coloured(text: str, style: str) -> str:
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"
