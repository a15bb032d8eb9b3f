"""What a person is told while a run goes: single lines on stderr that start with ``rocsteady:``.

They go through the child's own way to stderr while there is one, and through one of our own
otherwise, so that a reader who is slow or stuck never makes us wait. Each is kept in the journal.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable

from rocsteady.colours import coloured, takes_colour
from rocsteady.printable import printable
from rocsteady.store.journal import Journal
from rocsteady.store.values import MessageRecord
from rocsteady.system.output_buffer import OutputBuffer

PREFIX = "rocsteady: "
_HEAD = re.compile(r"[^:.(;]+")
READER_WAIT = 0.5  # seconds without a byte taken, after which a reader is not waited for


class Announcer:
    """Says things once."""

    def __init__(
        self,
        journal: Journal | None = None,
        run: int | None = None,
        *,
        quiet: bool = False,  # only the journal is told
        names_run: bool = True,  # other commands know the run by its name
    ) -> None:
        self._journal = journal
        self._run = run
        self._output_buffer: OutputBuffer | None = None
        self._colour: bool | None = None  # None: not known yet
        self.through: Callable[[str], None] | None = None  # the child's way to stderr
        self.mid_line = False  # the script's last line on stderr has no end
        self.quiet, self.names_run = quiet, names_run
        self.pauses: set[str] = set()  # kinds of them that were announced

    def say(self, text: str, *, style: str = "") -> None:
        """Print one line, and keep it for the report; ``style`` colours how it begins."""
        line = PREFIX + self._styled(printable(" ".join(text.split())), style)
        if self.quiet:
            pass
        elif self.through is not None:
            self.through(line)
        else:
            self._to_stderr(f"\n{line}" if self.mid_line else line)
            self.mid_line = False
        self.note(text)

    def bug(self, effect: str, error: Exception) -> None:
        """Announce that a part of rocsteady failed, and what that costs."""
        self.say(f"this is a bug in rocsteady; {effect}: {type(error).__name__}: {error}")

    def note(self, text: str) -> None:
        """Keep one line for the report only."""
        if self._journal is not None:
            self._journal.record(MessageRecord(run=self._run, text=text, at=time.time()))

    def flush(self) -> None:
        """Let what was said come before what others will write, if its reader lets it."""
        if self._output_buffer is not None:
            self._output_buffer.flush(READER_WAIT)

    def close(self) -> None:
        """Print what is left."""
        if self._output_buffer is not None:
            self._output_buffer.close(READER_WAIT)
            self._output_buffer = None

    def _styled(self, text: str, style: str) -> str:
        """Colour what comes before the first colon, full stop or parenthesis."""
        if self._colour is None:
            try:
                self._colour = takes_colour(sys.stderr)
            except (AttributeError, OSError, ValueError):  # there is none
                self._colour = False
        head = _HEAD.match(text)
        if not (self._colour and style and head):
            return text
        return coloured(head.group(), style) + text[head.end() :]

    def _to_stderr(self, line: str) -> None:
        try:
            if self._output_buffer is None:
                self._output_buffer = OutputBuffer(sys.stderr.fileno())
        except (AttributeError, OSError, ValueError):  # none, or none of the system's
            _write(line)
        else:
            self._output_buffer.put(f"{line}\n".encode(errors="replace"))


def _write(line: str) -> None:
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # it is gone; the journal has it
        return
