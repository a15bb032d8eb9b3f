"""What a person is told while a run goes: single lines on stderr that start with ``rocsteady:``.

They go through the child's own way to stderr while there is one, so that a reader who is slow
never makes us wait. Each is kept in the journal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rocsteady.journal.journal import Journal
from rocsteady.journal.values import Message

PREFIX = "rocsteady: "


class Announcer:
    """Says things once."""

    def __init__(self, journal: Journal | None = None, run: int | None = None) -> None:
        self._journal = journal
        self._run = run
        self.through: Callable[[str], None] | None = None  # the child's way to stderr

    def say(self, text: str) -> None:
        """Tell one line."""
        line = f"{PREFIX}{' '.join(text.split())}"
        if self.through is not None:
            self.through(line)
        else:
            _to_stderr(line)
        if self._journal is not None:
            self._journal.record(Message(run=self._run, text=text, at=time.time()))


def spelled(seconds: float) -> str:
    """Spell a duration as a person would: 0.9 s, 45 s, 3 min 10 s, 2 h 5 min."""
    if seconds < 10:  # noqa: PLR2004 - below it a digit more says something
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:  # noqa: PLR2004 - two minutes
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def _to_stderr(line: str) -> None:
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # the terminal is gone; the journal has it
        return
