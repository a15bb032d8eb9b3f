"""A limit for the kept log: its beginning and its end stay, what is between is left out.

A script that prints without end must not fill the disk that its checkpoints need. The file is
shortened in place, which needs no more room: ::

    the first quarter of the limit
    a line that says how many bytes are left out
    lines with texts that the job looks for, the first of each
    the end: from a quarter to three quarters of the limit
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from functools import lru_cache
from pathlib import Path

from rocsteady.model import Value
from rocsteady.system.atomic_file import open_own
from rocsteady.system.bounded_output import OutputBuffer

LOG_BYTES = 200_000_000  # bytes of an attempt
LEAST_LOG_BYTES = 1_000_000  # bytes; less would keep next to nothing
CHUNK = 1024 * 1024  # bytes that are moved or searched at a time
CONTEXT_BYTES = 200  # bytes of a line that are kept on either side of a text


class LogRules(Value, frozen=True, kw_only=True):
    limit: int = LOG_BYTES
    keep: tuple[str, ...] = ()  # texts, of which the first line stays in any case


class LogLimit:
    """Shortens one log, in the thread that writes it."""

    def __init__(self, descriptor: int, rules: LogRules) -> None:
        """Limit what is written from now on; the descriptor reads, and writes anywhere."""
        self._file = descriptor
        self._quarter = rules.limit // 4
        self._start = self._size = os.lseek(descriptor, 0, os.SEEK_END)
        self._due = self._start + rules.limit
        self._limit = rules.limit
        self._head = 0  # where what is left out begins; 0: nothing is
        self._between = 0  # bytes of what stands there instead
        self._wanted = {text.encode("utf-8", "surrogateescape") for text in rules.keep if text}
        self._lines: list[bytes] = []  # lines
        self.left_out = 0  # bytes

    def wrote(self, count: int) -> None:
        self._size += count
        if self._size >= self._due:
            with contextlib.suppress(OSError):  # a disk that fails: tried again a little later
                self._shorten()
            self._due = max(self._start + self._limit, self._size + self._quarter)

    def _shorten(self) -> None:
        self._size = os.fstat(self._file).st_size
        if not self._head:
            self._head = self._after_line(self._start + self._quarter)
        first = self._head + self._between
        last = self._after_line(self._size - self._quarter)
        if last - first < self._quarter:  # someone else has shortened it
            return
        self._search(first, last)
        self.left_out += last - first
        text = b"rocsteady: %d bytes are left out here: the log of an attempt is limited to" % (
            self.left_out
        )
        text += b" %d MB (log_limit in rocsteady.toml)\n" % (self._limit // 1_000_000)
        text += b"".join(self._lines)
        self._put(self._head, text)
        self._between = len(text)
        target = self._head + len(text)
        for at in range(last, self._size, CHUNK):
            piece = self._get(at, min(CHUNK, self._size - at))
            self._put(target, piece)
            target += len(piece)
        os.ftruncate(self._file, target)
        self._size = target

    def _after_line(self, at: int) -> int:
        """Return where the next line begins; in the middle of one that is very long."""
        end = self._get(at, CHUNK // 16).find(b"\n")
        return at if end < 0 else at + end + 1

    def _search(self, first: int, last: int) -> None:
        window = b""
        for at in range(first, last, CHUNK):
            if not self._wanted:
                return
            window += self._get(at, min(CHUNK, last - at))
            for text in [text for text in self._wanted if text in window]:
                place = window.find(text)
                begin = max(window.rfind(b"\n", 0, place) + 1, place - CONTEXT_BYTES)
                after = place + len(text)
                end = window.find(b"\n", after)
                end = min(len(window) if end < 0 else end, after + CONTEXT_BYTES)
                self._lines.append(window[begin:end] + b"\n")
                self._wanted.discard(text)
            window = window[-(CONTEXT_BYTES + max(map(len, self._wanted), default=0)) :]

    def _get(self, at: int, count: int) -> bytes:
        os.lseek(self._file, at, os.SEEK_SET)
        return os.read(self._file, count)

    def _put(self, at: int, content: bytes) -> None:
        os.lseek(self._file, at, os.SEEK_SET)
        while content:
            content = content[os.write(self._file, content) :]


THIN = 1.0  # seconds between two redraws that are kept
NO_RULES = LogRules()
HELD_LIMIT = 4096  # bytes of a redraw that may wait
TEXT_STAMP = re.compile(r"(?m)^\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)(\.\d{3})Z ")
STAMP = re.compile(TEXT_STAMP.pattern.encode())


@lru_cache(maxsize=1)
def _whole_second(second: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()


def timestamp(now: float) -> bytes:
    """Spell a moment as ``2026-11-15T01:02:03.456Z`` and a space, cheaply."""
    return _whole_second(int(now)) + b".%03dZ " % int(now % 1 * 1000)


class Lines:
    """One stream of a command, turned into stamped lines; it remembers half a line's state only."""

    def __init__(self) -> None:
        self.open = False  # the last line in the log has no end yet
        self._return = False  # the last byte was a carriage return, and a newline may follow
        self._held: bytes | None = None  # the latest redraw, if it is too early to keep it
        self._drawn = 0.0  # when a redraw was last kept

    def feed(self, chunk: bytes, stamp: bytes, now: float) -> bytes:
        if b"\r" in chunk or self._return or self._held is not None:
            return self._feed_redraws(chunk, stamp, now)
        return self._feed_lines(chunk, stamp)

    def tick(self, stamp: bytes, now: float) -> bytes:
        """Return a redraw that was held back long enough."""
        if self._held is None or now - self._drawn < THIN:
            return b""
        return self._keep_held(stamp, now)

    def interrupt(self) -> bytes:
        """End a line that is open, because another stream has something to say."""
        ended, self.open = self.open, False
        return b"\n" if ended else b""

    def finish(self, stamp: bytes, now: float) -> bytes:
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
        if self._held is not None and (now - self._drawn >= THIN or len(self._held) > HELD_LIMIT):
            out += self._keep_held(stamp, now)
        return out

    def _keep_held(self, stamp: bytes, now: float) -> bytes:
        held, self._held = self._held or b"", None
        if not held:
            return b""
        self._drawn = now
        return self.interrupt() + self._feed_lines(held, stamp)


class LogFile:
    """The file, fed by one thread with chunks of several streams."""

    def __init__(self, path: Path, rules: LogRules = NO_RULES) -> None:
        self._descriptor = open_own(path, os.O_RDWR | os.O_APPEND)
        try:
            self._shortened = open_own(path, os.O_RDWR)  # what is appended cannot be moved
        except BaseException:
            os.close(self._descriptor)
            raise
        self._output_buffer = OutputBuffer(
            self._descriptor,
            notice=self._say_missing,
            lasting=True,
            wrote=LogLimit(self._shortened, rules).wrote,
        )
        self._last: Lines | None = None

    def add(self, lines: Lines, chunk: bytes) -> None:
        now = time.time()
        self._put(lines, lines.feed(chunk, timestamp(now), now))

    def tick(self, lines: Lines) -> None:
        """Write what was held back, if it is time."""
        now = time.time()
        self._put(lines, lines.tick(timestamp(now), now))

    def finish(self, lines: Lines) -> None:
        now = time.time()
        self._put(lines, lines.finish(timestamp(now), now))

    def close(self, within: float) -> None:
        """Write what waits and close the file, unless the disk is stuck."""
        if self._output_buffer.close(within):
            os.close(self._descriptor)
            os.close(self._shortened)

    def _put(self, lines: Lines, out: bytes) -> None:
        if not out:
            return
        if self._last is not None and self._last is not lines:
            out = self._last.interrupt() + out
        self._last = lines
        self._output_buffer.put(out)

    def _say_missing(self, count: int) -> bytes:
        stamp = timestamp(time.time())
        return b"\n%srocsteady: %d bytes are missing here: no room on the disk\n" % (stamp, count)
