"""What the user wants, as signals say it.

While there is an attempt, an interrupt goes to the script as the terminal would send it, at once,
and so do signals that schedulers send to warn. A request to end ends mildly first. A lost terminal
ends nothing. ^Z stops the script with us.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

from rocsteady.exit_codes import INTERRUPTED, TERMINATED

SignalHandler = Callable[[int, FrameType | None], object] | int | None


class StopRequests:
    """Filled by signal handlers, read by the watching loop."""

    def __init__(self, *, of_launcher: bool = False) -> None:
        self._of_launcher = of_launcher  # SIGTERM says that a task on another host has failed
        self.stop: signal.Signals | None = None  # no attempt after this one
        self.at_once = False
        self.pass_on: Callable[[signal.Signals], None] | None = None  # to the script, if it runs
        self.terminal_lost = False
        self.suspend = False
        self.reacted: Callable[[], None] = lambda: None  # to be called when acting on ``stop``
        self._before: dict[signal.Signals, SignalHandler] = {}

    @property
    def starts_again(self) -> bool:
        """Whether it is stopped because the launcher starts the job again, on all hosts."""
        return self._of_launcher and self.stop is signal.SIGTERM

    @property
    def code(self) -> int:
        return TERMINATED if self.stop is signal.SIGTERM else INTERRUPTED

    def listen(self) -> None:
        """Take the signals; only in the main thread.

        Those that nohup, or a shell's ``&``, had ignored stay so, for the script too. All but the
        request to end, by which ``rocsteady stop`` speaks to us.
        """
        handlers = {
            "SIGINT": self._interrupt,
            "SIGTERM": self._end,
            "SIGHUP": self._hang_up,
            "SIGTSTP": self._stop_key,
            "SIGQUIT": self._hand_on,
            "SIGUSR1": self._hand_on,
            "SIGUSR2": self._hand_on,
        }
        for name, handler in handlers.items():
            number = getattr(signal, name, None)  # Windows has two of them
            if number is None:
                continue
            if number is signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, handler)

    def stop_listening(self) -> None:
        """Give them back."""
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.pass_on is None or self.stop is not None:
            self.at_once = self.stop is not None
            self.stop = signal.Signals(number)
        if self.pass_on is not None:
            self.pass_on(signal.Signals(number))

    def _end(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.at_once = self.stop is not None
        self.stop = signal.Signals(number)

    def _hand_on(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.pass_on is not None:
            self.pass_on(signal.Signals(number))

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.terminal_lost = True

    def _stop_key(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.suspend = True
