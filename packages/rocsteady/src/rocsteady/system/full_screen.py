"""A full screen: the terminal's second page, keys as they are typed, and all of it put back.

The terminal is restored however we end: by a return, an exception, SIGTERM or SIGHUP; and while we
are stopped by ^Z.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from types import FrameType, TracebackType

from rocsteady.system.terminal import Terminal, is_orphaned, stop_ourselves

# Second page, no cursor, no wrapping of long lines; and back.
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
HOME, REST_OF_LINE, REST_OF_PAGE = "\x1b[H", "\x1b[K", "\x1b[J"
INPUT, OUTPUT = 0, 1
ENDING = (signal.SIGTERM, signal.SIGHUP)
BY_SIGNAL = 128
ESCAPE_WAIT = 0.05  # seconds in which the rest of a key follows its escape
KEYS = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down",
    b"\x1b[5~": "page up", b"\x1b[6~": "page down", b"\x1b": "escape", b"\r": "enter",
    b"\n": "enter", b"\x03": "interrupt", b"\x1a": "suspend", b" ": "page down",
}  # fmt: skip


class FullScreen:
    """A terminal of ours alone, as long as the ``with`` block lasts."""

    def __init__(self) -> None:
        self._terminal = Terminal(INPUT)
        self._before: dict[signal.Signals, object] = {}
        self._drawn = ""
        self._wake: tuple[int, int] = (-1, -1)

    @staticmethod
    def is_possible() -> bool:
        """Tell whether there is a terminal that can do this, and we are in its foreground."""
        if not (os.isatty(INPUT) and os.isatty(OUTPUT)) or os.environ.get("TERM", "") in (
            "",
            "dumb",
        ):
            return False
        return Terminal(INPUT).is_ours()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        try:
            columns, lines = os.get_terminal_size(OUTPUT)
        except OSError:
            return 80, 24
        return columns or 80, lines or 24

    def __enter__(self) -> FullScreen:  # noqa: PYI034 - Python 3.10 has no Self
        self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before = {
            **{number: signal.signal(number, _end) for number in ENDING},
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._noted(b"z")),
            signal.SIGCONT: signal.signal(signal.SIGCONT, self._noted(b"w")),
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, self._noted(b"w")),
        }
        self._show()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # not while this is half done
        try:
            self._hide()
            for number, handler in self._before.items():
                signal.signal(number, handler)  # type: ignore[arg-type] # as it was found
            for descriptor in self._wake:
                os.close(descriptor)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    def draw(self, text: str) -> None:
        """Replace the page, if it has changed. Raises OSError if the terminal is gone."""
        if text == self._drawn:
            return
        self._drawn = text
        *lines, last = text.split("\n")
        # What is old is erased first: after a full line it would take the last character along.
        before = "".join(f"{REST_OF_LINE}{line}\r\n" for line in lines)
        _write(f"{HOME}{before}{REST_OF_PAGE}{last}")

    def key(self, within: float) -> str:
        """Return the next key, or "" after so many seconds, a resize, or ^Z and its end."""
        ready, _, _ = select.select([INPUT, self._wake[0]], [], [], within)
        if self._wake[0] in ready:
            noted = os.read(self._wake[0], 1024)
            if b"z" in noted:
                self._suspend()
            self._terminal.enter()
            self._drawn = ""
            return ""
        if not ready:
            return ""
        typed = os.read(INPUT, 1)
        if not typed:
            raise OSError("the terminal is gone")
        if typed == b"\x1b" and select.select([INPUT], [], [], ESCAPE_WAIT)[0]:
            typed += os.read(INPUT, 7)
        name = KEYS.get(typed, typed.decode("ascii", "replace"))
        if name == "suspend":
            self._suspend()
            return ""
        return name

    def _suspend(self) -> None:
        """Give the terminal back and stop, as ^Z does; go on when we are continued."""
        if is_orphaned():  # no shell would continue us
            return
        self._hide()
        stop_ourselves()
        self._show()

    def _show(self) -> None:
        self._terminal.enter()
        self._drawn = ""
        _write(ENTER)

    def _hide(self) -> None:
        with contextlib.suppress(OSError):  # it is gone
            _write(LEAVE)
        self._terminal.leave()

    def _noted(self, mark: bytes):  # type: ignore[no-untyped-def] # noqa: ANN202 - a handler
        def note(number: int, frame: FrameType | None) -> None:
            del number, frame
            with contextlib.suppress(OSError):  # full: it is noted already
                os.write(self._wake[1], mark)

        return note


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(BY_SIGNAL + number)


def _write(text: str) -> None:
    left = text.encode(errors="replace")
    while left:
        try:
            left = left[os.write(OUTPUT, left) :]
        except BlockingIOError:
            select.select([], [OUTPUT], [], 1.0)
