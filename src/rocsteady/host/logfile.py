"""The kept log: everything that a command printed, with the time at the start of each line.

A carriage return begins a new line in the log too, so that each redraw of a progress bar can be
read; of redraws that follow each other within a second only the last one is kept. The time is that
of arrival. Cheap on purpose: most chunks cost one ``bytes.replace``.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from rocsteady.host.log_limit import LogLimit, LogRules
from rocsteady.host.output_buffer import Outlet

THIN = 1.0  # seconds between two redraws that are kept
NO_RULES = LogRules()
HELD_LIMIT = 4096  # bytes of a redraw that may wait
TEXT_STAMP = re.compile(r"(?m)^\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)(\.\d{3})Z ")  # what Timestamp makes
STAMP = re.compile(TEXT_STAMP.pattern.encode())


class Timestamp:
    """``2026-11-15T01:02:03.456Z``, made cheaply."""

    def __init__(self) -> None:
        self._second = -1
        self._text = b""

    def at(self, now: float) -> bytes:
        """Spell a moment, in UTC, with a space behind it."""
        second = int(now)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        return self._text + b".%03dZ " % int((now - second) * 1000)


class Lines:
    """One stream of a command, turned into stamped lines; it remembers half a line's state only."""

    def __init__(self) -> None:
        self.open = False  # the last line in the log has no end yet
        self._return = False  # the last byte was a carriage return, and a newline may follow
        self._held: bytes | None = None  # the latest redraw, if it is too early to keep it
        self._kept = 0.0  # when a redraw was last kept

    def feed(self, chunk: bytes, stamp: bytes, now: float) -> bytes:
        """Give what the log gets for a chunk."""
        if b"\r" in chunk or self._return or self._held is not None:
            return self._feed_redraws(chunk, stamp, now)
        return self._feed_lines(chunk, stamp)

    def tick(self, stamp: bytes, now: float) -> bytes:
        """Give a redraw that was held back long enough."""
        if self._held is None or now - self._kept < THIN:
            return b""
        return self._keep_held(stamp, now)

    def interrupt(self) -> bytes:
        """End a line that is open, because another stream has something to say."""
        ended, self.open = self.open, False
        return b"\n" if ended else b""

    def finish(self, stamp: bytes, now: float) -> bytes:
        """Give what is left at the end."""
        held = b"" if self._held is None else self._keep_held(stamp, now)
        return held + self.interrupt()

    def _feed_lines(self, chunk: bytes, stamp: bytes) -> bytes:
        if not chunk:
            return b""
        start = b"" if self.open else stamp
        self.open = not chunk.endswith(b"\n")
        if self.open:
            return start + chunk.replace(b"\n", b"\n" + stamp)
        return start + chunk[:-1].replace(b"\n", b"\n" + stamp) + b"\n"

    def _feed_redraws(self, chunk: bytes, stamp: bytes, now: float) -> bytes:
        if self._return:
            chunk = b"\r" + chunk
        self._return = chunk.endswith(b"\r")
        chunk = chunk[: len(chunk) - self._return].replace(b"\r\n", b"\n")
        *whole, rest = chunk.split(b"\n")
        out = []
        for line in whole:
            out.append(self._draw(line, stamp, now))
            if self._held is not None:
                out.append(self._keep_held(stamp, now))
            out.append(self._feed_lines(b"\n", stamp))
        out.append(self._draw(rest, stamp, now))
        return b"".join(out)

    def _draw(self, text: bytes, stamp: bytes, now: float) -> bytes:
        first, again, rest = text.partition(b"\r")
        if self._held is not None and first:
            self._held += first
            out = b""
        else:
            out = self._feed_lines(first, stamp)
        if again:
            self._held = rest.rpartition(b"\r")[2]
        if self._held is not None and (now - self._kept >= THIN or len(self._held) > HELD_LIMIT):
            out += self._keep_held(stamp, now)
        return out

    def _keep_held(self, stamp: bytes, now: float) -> bytes:
        held, self._held = self._held or b"", None
        if not held:
            return b""
        self._kept = now
        return self.interrupt() + self._feed_lines(held, stamp)


class LogFile:
    """The file, fed by one thread with chunks of several streams."""

    def __init__(self, path: Path, rules: LogRules = NO_RULES) -> None:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        self._descriptor = os.open(path, flags | os.O_APPEND, 0o600)
        try:
            self._shortened = os.open(path, flags)  # what is appended cannot be moved
        except BaseException:
            os.close(self._descriptor)
            raise
        self._stamp = Timestamp()
        self._outlet = Outlet(
            self._descriptor,
            notice=self._say_missing,
            lasting=True,
            wrote=LogLimit(self._shortened, rules).wrote,
        )
        self._last: Lines | None = None

    @property
    def missed(self) -> int:
        """Bytes of the log that the disk did not take."""
        return self._outlet.missed

    def add(self, lines: Lines, chunk: bytes) -> None:
        """Take a chunk of one stream."""
        now = time.time()
        stamp = self._stamp.at(now)
        out = lines.feed(chunk, stamp, now)
        if out:
            self._put(lines, out)

    def tick(self, lines: Lines) -> None:
        """Write what was held back, if it is time."""
        now = time.time()
        self._put(lines, lines.tick(self._stamp.at(now), now))

    def finish(self, lines: Lines) -> None:
        """Write the end of one stream."""
        now = time.time()
        self._put(lines, lines.finish(self._stamp.at(now), now))

    def flush(self, within: float) -> bool:
        """Wait until all of it is written, as long as the disk moves."""
        return self._outlet.flush(within)

    def close(self, within: float) -> None:
        """Write what waits and close the file, unless the disk is stuck."""
        if self._outlet.close(within):
            os.close(self._descriptor)
            os.close(self._shortened)

    def _put(self, lines: Lines, out: bytes) -> None:
        if not out:
            return
        if self._last is not None and self._last is not lines:
            out = self._last.interrupt() + out
        self._last = lines
        self._outlet.put(out)

    def _say_missing(self, count: int) -> bytes:
        stamp = Timestamp().at(time.time())
        return b"\n%srocsteady: %d bytes are missing here: no room on the disk\n" % (stamp, count)
