"""A place that bytes go to, and that may be slow, stuck or gone, without holding up who sends them.

Bytes wait in a bounded buffer and are written by a thread of their own, which may block for ever.
A place that is slow but moves may hold the sender up a little (``Patience``), because the pipe of a
fast reader must not lose bytes to a hiccup. Beyond that bytes are left out and counted, from the
first that found no room until the place has caught up, so that what is shown has few, long gaps.
"""

from __future__ import annotations

import os
import re
import select
import threading
import time
from collections.abc import Callable

WAITING_BYTES = 8 * 1024 * 1024  # bytes that wait
PIECE = 256 * 1024  # bytes written at once
STRIDE = 64 * 1024  # bytes in one system call, after which progress can be seen
WRITE_RETRY = 0.2  # seconds after a failed write to a place that lasts
GATHER = 0.004  # seconds in which small writes become one
LINE_BYTES = 4096  # bytes of a line that is not ended yet
MOVES = re.compile(rb"\x1b\[[0-9;?]*[A-HJ-ln-z]")  # whatever moves the cursor or clears, no colours


class WritePatience:
    """How long a sender may be held up in all: 2 s, and 5 % of the time that passed."""

    START = 2.0
    TIME_SHARE = 0.05
    STUCK = 0.1  # seconds without a byte written, after which nothing is waited for

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._spent = 0.0

    def left(self) -> bool:
        return self._spent < self.START + self.TIME_SHARE * (time.monotonic() - self._began)

    def spend(self, seconds: float) -> None:
        self._spent += seconds


class OutputBuffer:
    """One place, its buffer and its thread. ``put`` is called by one thread only."""

    def __init__(
        self,
        descriptor: int,
        *,
        notice: Callable[[int], bytes] | None = None,
        lasting: bool = False,
        limit: int = WAITING_BYTES,
        wrote: Callable[[int], None] | None = None,
    ) -> None:
        self.missed = 0  # bytes that were left out
        self.untold = 0  # those of them that no notice in their place speaks of
        self.dead = False  # nothing is written any more
        self.mid_line = False  # the last byte taken did not end a line
        self._line = b""  # since its last end
        self._drawn = b""  # what a terminal shows of it, if it is drawn over and over
        self.descriptor = descriptor
        self._notice = notice  # what to write where bytes are missing
        self._lasting = lasting  # a failed write is not the end of it: a disk, not a reader
        self._limit = limit
        self._wrote = wrote  # is called with each number of bytes, in the thread that writes
        self._waiting = bytearray()
        self._written = 0
        self._gap = 0  # bytes left out since it last caught up
        self._idle = True
        self._closing = False
        self._patience = WritePatience()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="rocsteady-outlet", daemon=True)
        self._thread.start()

    def put(self, chunk: bytes) -> None:
        if self.dead:
            self._miss(len(chunk))
            return
        if len(self._waiting) + len(chunk) > self._limit and not self._gap:
            self._wait_for_room(len(chunk))
        with self._changed:
            if self._gap or len(self._waiting) + len(chunk) > self._limit:
                self._gap += len(chunk)
                self._miss(len(chunk))
                return
            self._waiting += chunk
            self.mid_line = not self._waiting.endswith(b"\n")
            self._draw(chunk)
            if self._idle:
                self._changed.notify()

    def put_line(self, line: bytes) -> None:
        """Put whole lines of our own between those of others.

        On a terminal, a progress bar that is being drawn moves below them and stays a bar.
        """
        drawn = self._drawn
        if not self.mid_line:
            self.put(line)
        elif drawn and os.isatty(self.descriptor):
            self.put(b"\r\x1b[K" + line + drawn)
        else:
            self.put(b"\n" + line)

    def _draw(self, chunk: bytes) -> None:
        """Keep the line that is being redrawn; a progress bar begins with a carriage return."""
        last = (self._line + chunk).rpartition(b"\n")[2][-LINE_BYTES:]
        self._line = last
        drawn = last.rstrip(b"\r").rpartition(b"\r")[2]
        self._drawn = drawn if b"\r" in last and not MOVES.search(drawn) else b""

    def flush(self, within: float) -> bool:
        """Wait until everything is written, as long as something moves."""
        seen, moved = -1, time.monotonic()
        while time.monotonic() - moved < within and not self.dead:
            with self._changed:
                if self._idle and not self._waiting and not self._gap:
                    return True
                if self._written != seen:
                    seen, moved = self._written, time.monotonic()
            time.sleep(0.002)
        return False

    def give_up(self) -> None:
        """Write nothing any more; what waits is counted as missed."""
        with self._changed:
            self.dead = True
            self._miss(len(self._waiting))
            self._waiting.clear()
            self._changed.notify()

    def close(self, within: float) -> bool:
        """Flush and end the thread; one that is stuck is abandoned, and that is False."""
        done = self.flush(within)
        with self._changed:
            self._closing = True
            self._changed.notify()
        if not done:
            self.give_up()
        self._thread.join(2 * WRITE_RETRY)
        return not self._thread.is_alive()

    def _wait_for_room(self, size: int) -> None:
        seen, moved = self._written, time.monotonic()
        while not self.dead and len(self._waiting) + size > self._limit:
            now = time.monotonic()
            if self._written != seen:
                seen, moved = self._written, now
            if now - moved > WritePatience.STUCK or not self._patience.left():
                return
            time.sleep(GATHER / 2)
            self._patience.spend(time.monotonic() - now)

    def _run(self) -> None:
        while (piece := self._next()) is not None:
            before = self._written
            try:
                self._write(piece)
            except OSError:  # the reader is gone, or the disk is full
                lost = len(piece) - (self._written - before)
                with self._changed:
                    self._miss(lost)
                    self._gap += lost
                if not self._lasting:
                    self.give_up()
                    return
                time.sleep(WRITE_RETRY)

    def _next(self) -> bytes | bytearray | None:
        with self._changed:
            while not self.dead and not self._waiting and not self._gap:
                if self._closing:
                    return None
                self._idle = True
                self._changed.wait()
            self._idle = False
            if self.dead:
                return None
            small = len(self._waiting) < PIECE // 4 and not self._closing
        if small:
            time.sleep(GATHER)
        with self._changed:
            if not self._waiting:  # caught up after a gap
                return self._end_gap()
            if len(self._waiting) <= PIECE:
                whole, self._waiting = self._waiting, bytearray()
                return whole
            with memoryview(self._waiting) as view:
                piece = bytes(view[:PIECE])
            del self._waiting[:PIECE]
            return piece

    def _end_gap(self) -> bytes:
        gap, self._gap = self._gap, 0
        if self._notice is None or not gap:
            return b""
        self.untold -= gap
        return self._notice(gap)

    def _miss(self, count: int) -> None:
        self.missed += count
        self.untold += count

    def _write(self, piece: bytes | bytearray) -> None:
        rest = memoryview(piece)
        while rest and not self.dead:
            try:
                count = os.write(self.descriptor, rest[:STRIDE])
            except BlockingIOError:  # someone who shares it made it non-blocking
                select.select([], [self.descriptor], [], 1.0)
                continue
            rest = rest[count:]
            self._written += count
            if self._wrote is not None:
                self._wrote(count)
