"""What a person is told while a run goes: lines on stderr, each kept in the journal.

They go through the child's own way to stderr while there is one, and through one of our own
otherwise, so that a reader who is slow or stuck never makes us wait.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from rocsteady.errors import EXHAUSTED, is_exhausted
from rocsteady.printable import printable
from rocsteady.run.telling.events import Event, Note
from rocsteady.store.journal import Journal
from rocsteady.store.values import MessageRecord
from rocsteady.system.bounded_output import OutputBuffer

PREFIX = "rocsteady: "
READER_WAIT = 0.5  # seconds without a byte taken, after which a reader is not waited for


class Screen(Protocol):
    """Writes events: as lines for a person at this terminal, and as one line to be kept."""

    def lines(self, event: Event) -> Sequence[str]: ...

    def text(self, event: Event) -> str: ...


class PlainScreen:
    """Writes the state only: for runs that nobody watches."""

    def lines(self, event: Event) -> Sequence[str]:
        return [PREFIX + printable(self.text(event))]

    def text(self, event: Event) -> str:
        return " ".join((event.text if isinstance(event, Note) else event.kind.value).split())


class Announcer:
    def __init__(
        self,
        journal: Journal | None = None,
        run: int | None = None,
        *,
        screen: Screen | None = None,
        quiet: bool = False,  # only the journal is told
        names_run: bool = True,  # other commands know the run by its name
    ) -> None:
        self._journal = journal
        self._run = run
        self._screen: Screen = screen or PlainScreen()
        self._output_buffer: OutputBuffer | None = None
        self.through: Callable[[str], None] | None = None  # the child's way to stderr
        self.mid_line = False  # the script's last line on stderr has no end
        self.quiet, self.names_run = quiet, names_run
        self.pauses: set[str] = set()  # kinds of them that were announced

    def show(self, event: Event) -> None:
        """Print an event, and keep it for the report."""
        lines = "\n".join(self._screen.lines(event))
        if self.quiet:
            pass
        elif self.through is not None:
            self.through(lines)
        else:
            self._to_stderr(f"\n{lines}" if self.mid_line else lines)
            self.mid_line = False
        self.keep(event)

    def keep(self, event: Event) -> None:
        """Keep an event for the report only."""
        if self._journal is not None:
            text = self._screen.text(event)
            self._journal.record(
                MessageRecord(run=self._run, text=text, event=event.kind, at=time.time())
            )

    def say(self, text: str) -> None:
        """Print a line that has no state of its own, and keep it."""
        self.show(Note(text=text))

    def note(self, text: str) -> None:
        """Keep such a line for the report only."""
        self.keep(Note(text=text))

    def bug(self, effect: str, error: Exception) -> None:
        """Announce that a part of rocsteady failed, and what that costs."""
        bug = f"internal error; {effect}: {type(error).__name__}: {error}"
        self.say(f"{effect}: {EXHAUSTED}" if is_exhausted(error) else bug)

    def flush(self) -> None:
        """Write what was said before others write, if its reader takes it."""
        if self._output_buffer is not None:
            self._output_buffer.flush(READER_WAIT)

    def close(self) -> None:
        if self._output_buffer is not None:
            self._output_buffer.close(READER_WAIT)
            self._output_buffer = None

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
