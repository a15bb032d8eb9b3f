"""Where output goes: how wide it may be, whether it may have colour, and a reader who left."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import TextIO

PLAIN_WIDTH = 80  # of output that is not on a terminal


def layout(stream: TextIO, environment: Mapping[str, str] = os.environ) -> tuple[int, bool]:
    """Return the width to lay out for, and whether colour is welcome."""
    if not stream.isatty():
        return PLAIN_WIDTH, False
    plain = "NO_COLOR" in environment or environment.get("TERM") == "dumb" or os.name == "nt"
    return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns, not plain


def silence_stdout() -> None:
    """Keep Python from trying once more, at exit, to write what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show(text: str) -> None:
    """Write to stdout. A pipe that was closed by its reader costs nothing: the answer stands."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    except UnicodeEncodeError:
        sys.stdout.write(text.encode("ascii", "backslashreplace").decode("ascii"))
