"""What the user wants, as signals say it.

The first interrupt goes to the script, as the terminal would send it, and there is no attempt
after it. The second ends everything at once. A request to end ends mildly first. A lost terminal
ends nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int | None


class Wishes:
    """Filled by signal handlers, read by the watching loop."""

    def __init__(self) -> None:
        self.stop: signal.Signals | None = None  # no attempt after this one
        self.patient = False  # the script was asked, and may take its time
        self.at_once = False
        self.pass_on: signal.Signals | None = None  # to the script, next
        self.terminal_lost = False
        self._before: dict[signal.Signals, Handler] = {}

    def listen(self) -> None:
        """Take the signals; only in the main thread."""
        handlers = {signal.SIGINT: self._interrupt, signal.SIGTERM: self._end}
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self._hang_up
        for number, handler in handlers.items():
            self._before[number] = signal.signal(number, handler)

    def stop_listening(self) -> None:
        """Give them back."""
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.at_once = self.stop is not None
        self.stop = signal.Signals(number)
        self.patient = True
        self.pass_on = signal.Signals(number)

    def _end(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.at_once = self.stop is not None
        self.stop = signal.Signals(number)
        self.patient = False

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.terminal_lost = True
