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

from rocsteady.model import Value

LIMIT = 200_000_000  # bytes of an attempt
LEAST = 1_000_000  # bytes; less would keep next to nothing
LEFT_OUT = b" bytes are left out here: "  # in the line that stands for them
CHUNK = 1024 * 1024  # bytes that are moved or searched at a time
AROUND = 200  # bytes of a line that are kept on either side of a text


class LogRules(Value, frozen=True, kw_only=True):
    """How much of a log is kept."""

    limit: int = LIMIT
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
        self._kept: list[bytes] = []  # lines
        self.left_out = 0  # bytes

    def wrote(self, count: int) -> None:
        """Take into account that the log has grown."""
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
        text = b"rocsteady: %d%bthe log of an attempt is limited to" % (self.left_out, LEFT_OUT)
        text += b" %d MB (log_limit in rocsteady.toml)\n" % (self._limit // 1_000_000)
        text += b"".join(self._kept)
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
        """Keep the first line of each text that is wanted."""
        window = b""
        for at in range(first, last, CHUNK):
            if not self._wanted:
                return
            window += self._get(at, min(CHUNK, last - at))
            for text in [text for text in self._wanted if text in window]:
                place = window.find(text)
                begin = max(window.rfind(b"\n", 0, place) + 1, place - AROUND)
                after = place + len(text)
                end = window.find(b"\n", after)
                end = min(len(window) if end < 0 else end, after + AROUND)
                self._kept.append(window[begin:end] + b"\n")
                self._wanted.discard(text)
            window = window[-(AROUND + max(map(len, self._wanted), default=0)) :]

    def _get(self, at: int, count: int) -> bytes:
        os.lseek(self._file, at, os.SEEK_SET)
        return os.read(self._file, count)

    def _put(self, at: int, content: bytes) -> None:
        os.lseek(self._file, at, os.SEEK_SET)
        while content:
            content = content[os.write(self._file, content) :]
