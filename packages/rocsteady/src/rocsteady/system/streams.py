"""Which stream of the child is a pty and which a pipe: whatever ours are.

Streams of ours that are one and the same file get one pty or pipe in the child too, so that what
it prints to both stays in order.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from rocsteady.system.bounded_output import OutputBuffer
from rocsteady.system.child_end import TerminalUse
from rocsteady.system.logfile import Lines, LogFile
from rocsteady.system.terminal_handover import (
    Terminal,
    copy_modes,
    copy_size,
    open_pty,
    special_keys,
)

if sys.platform != "win32":
    import fcntl

PIPE_SIZE = 1024 * 1024
F_SETPIPE_SZ = 1031  # Linux; without it the pipe is smaller


class FileIdentity(NamedTuple):
    terminal: bool
    device: int
    inode: int = 0


@dataclass(kw_only=True, eq=False)
class OutputWire:
    """Something that the child writes to: its end, our end, and the place of ours it goes to."""

    given: int
    descriptor: int
    pty: bool
    output_buffer: OutputBuffer | None = None
    lines: Lines = field(default_factory=Lines)

    def show_on(self, ours: int | None) -> None:
        """Carry it to a descriptor of ours, unless it is carried already or none can be written."""
        if self.output_buffer is None and ours is not None and _is_writable(ours):
            self.output_buffer = OutputBuffer(ours, notice=_notice if self.pty else None)


@dataclass(kw_only=True)
class Wiring:
    given: list[int] = field(default_factory=list)  # its stdin, stdout and stderr
    sources: dict[FileIdentity | None, OutputWire] = field(default_factory=dict)
    terminal: Terminal | None = None  # ours, if the child reads from it
    keys: int | None = None  # our end of the pty that its keys go to
    complaints: OutputBuffer | None = None  # the place of our stderr
    _nothing: int | None = None  # the child's stdin, if it has none

    def close_given(self) -> None:
        """Close our copies of the child's ends, once it has them."""
        opened = [source.given for source in self.sources.values()]
        if self._nothing is not None:
            opened.append(self._nothing)
        for descriptor in opened:
            os.close(descriptor)

    def close(self) -> None:
        for source in self.sources.values():
            os.close(source.descriptor)

    def give_stdin(self, ours: int | None) -> None:
        """Give the child a pty if ours is a terminal; anything else is handed on as it is."""
        identity = _identity(ours)
        if ours is None or identity is None:
            self._nothing = os.open(os.devnull, os.O_RDONLY)
            self.given.append(self._nothing)
        elif identity.terminal:
            source = self._source(identity, ours)
            self.keys = source.descriptor
            self.given.append(source.given)
        else:
            self.given.append(ours)

    def give_output(self, ours: int | None) -> None:
        """Give the child a stream to write to; the last one given is its stderr."""
        self.given.append(self._source(_identity(ours), ours).given)

    def connect(self, use: TerminalUse) -> None:
        """Show what the child writes, and let it have our terminal's modes as they are now."""
        if self.keys is not None and use.stdin is not None:
            self.terminal = Terminal(use.stdin)
            self.sources[_identity(use.stdin)].show_on(use.stdin)
        for ours in (use.stdout, use.stderr):
            source = self.sources[_identity(ours)]
            source.show_on(ours)
            self.complaints = source.output_buffer
            if source.pty and ours is not None:
                copy_modes(ours, source.descriptor)

    def is_silent(self) -> bool:
        """Whether the child has written nothing that was not carried yet."""
        poll = select.poll()
        for source in self.sources.values():
            poll.register(source.descriptor, select.POLLIN)
        return not any(event & select.POLLIN for _, event in poll.poll(0))

    def _source(self, identity: FileIdentity | None, ours: int | None) -> OutputWire:
        if identity not in self.sources:
            if ours is not None and identity is not None and identity.terminal:
                master, slave = open_pty(ours)
                made = OutputWire(given=slave, descriptor=master, pty=True)
            else:
                read, write = _open_pipe()
                made = OutputWire(given=write, descriptor=read, pty=False)
            self.sources[identity] = made
        return self.sources[identity]


def wire(use: TerminalUse) -> Wiring:
    """Make the streams of a child; ``connect`` them once it is to be seen."""
    wiring = Wiring()
    try:
        wiring.give_stdin(use.stdin)
        wiring.give_output(use.stdout)
        wiring.give_output(use.stderr)
    except BaseException:
        wiring.close_given()
        wiring.close()
        raise
    return wiring


def _open_pipe() -> tuple[int, int]:
    read, write = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(read, F_SETPIPE_SZ, PIPE_SIZE)
    os.set_blocking(read, False)
    return read, write


def _identity(descriptor: int | None) -> FileIdentity | None:
    """Return what a descriptor is open on; None if it is not open."""
    if descriptor is None:
        return None
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    if os.isatty(descriptor):
        return FileIdentity(terminal=True, device=found.st_rdev)
    return FileIdentity(terminal=False, device=found.st_dev, inode=found.st_ino)


def _is_writable(descriptor: int) -> bool:
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:
        return False


def _notice(count: int) -> bytes:
    return b"\nrocsteady: %d bytes were not shown; the log has what fits into it\n" % count


TICK = 1.0  # seconds between looks at what nothing tells us of
CHUNK = 64 * 1024  # bytes; larger ones cost a new mapping each
PTY_CHUNK = 4096  # a terminal never gives more at once
BATCH = 32  # reads of one stream before the others have their turn
LAST_READS = 0.3  # seconds for what is still in a pipe when the tree is gone


@dataclass(frozen=True, kw_only=True)
class PumpCallbacks:
    """Whom the pump tells. Each is called in its thread."""

    output: Callable[[bytes], None] | None
    status: Callable[[bytes], None]  # what the keeper wrote; empty at its end
    interrupted: Callable[[int], None]  # how often the key was typed
    suspended: Callable[[], None]
    may_suspend: Callable[[], bool]  # whether ^Z is for us, and not for a shell inside


class Pump:
    def __init__(self, wiring: Wiring, status: int, log: LogFile, callbacks: PumpCallbacks) -> None:
        self._wiring = wiring
        self._status = status
        self._log = log
        self._callbacks = callbacks
        self._poll = select.poll()
        self._open = {source.descriptor: source for source in wiring.sources.values()}
        self._hung: list[OutputWire] = []  # ptys that nobody in the child has open
        self._keys = bytearray()  # typed, and not yet taken by the child's terminal
        self._key_source: int | None = None  # where keys are read from now
        self._forget = False
        self._ending: float | None = None  # when to read no longer
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        for descriptor in (*self._open, status, self._woken):
            self._poll.register(descriptor, select.POLLIN)
        if wiring.terminal is not None:
            wiring.terminal.enter()  # before anyone can type
        self._thread = threading.Thread(target=self._run, name="rocsteady-pump", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look at once at size and terminal. May be called in a signal handler."""
        with contextlib.suppress(OSError):
            os.write(self._wake, b"\0")

    def forget_terminal(self) -> None:
        """Read no keys any more: the terminal is gone."""
        self._forget = True
        self.wake()

    def finish(self, within: float) -> bool:
        """Read what is left and end; False if the thread did not."""
        self._ending = time.monotonic() + LAST_READS
        self.wake()
        self._thread.join(within)
        if self._thread.is_alive():
            return False
        os.close(self._woken)
        os.close(self._wake)
        return True

    def _run(self) -> None:
        self._tick()
        due = time.monotonic() + TICK
        while self._ending is None or (self._open and time.monotonic() < self._ending):
            ready = self._poll.poll(1000 * (TICK if self._ending is None else LAST_READS / 4))
            for descriptor, _ in ready:
                if descriptor in self._open:
                    self._read_output(self._open[descriptor])
            for descriptor, event in ready:
                self._serve(descriptor, event)
            if time.monotonic() >= due:
                self._tick()
                due = time.monotonic() + TICK
        for source in self._wiring.sources.values():
            self._log.finish(source.lines)

    def _serve(self, descriptor: int, event: int) -> None:
        if descriptor == self._status:
            self._read_status()
        elif descriptor == self._woken:
            os.read(self._woken, 4096)
            self._tick()
        elif descriptor == self._wiring.keys and event & select.POLLOUT:
            self._pass_keys()
        elif self._wiring.terminal and descriptor == self._wiring.terminal.descriptor:
            self._read_keys(descriptor)

    def _tick(self) -> None:
        """See to what does not announce itself."""
        if self._forget:
            self._drop_terminal()
        for source in self._wiring.sources.values():
            self._log.tick(source.lines)
        while self._hung:
            source = self._hung.pop()
            self._open[source.descriptor] = source
            self._poll.register(source.descriptor, select.POLLIN)
        terminal, keys = self._wiring.terminal, self._wiring.keys
        if terminal is not None and keys is not None:
            terminal.enter()
            copy_size(terminal.descriptor, keys)
        for source in self._wiring.sources.values():
            if source.pty and source.descriptor != keys and source.output_buffer is not None:
                copy_size(source.output_buffer.descriptor, source.descriptor)
        self._watch_keys()

    def _read_output(self, source: OutputWire) -> None:
        chunks = []
        ended = False
        size = PTY_CHUNK if source.pty else CHUNK
        for _ in range(BATCH if source.pty else 1):
            try:
                chunk = os.read(source.descriptor, size)
            except BlockingIOError:
                break
            except OSError:  # a pty says the end this way
                chunk = b""
            if not chunk:
                ended = True
                break
            chunks.append(chunk)
        if chunks:
            self._carry(source, b"".join(chunks))
        if ended:
            self._poll.unregister(source.descriptor)
            del self._open[source.descriptor]
            if source.pty and self._ending is None:
                self._hung.append(source)  # someone may open it again

    def _carry(self, source: OutputWire, chunk: bytes) -> None:
        if self._callbacks.output is not None:
            with contextlib.suppress(Exception):  # who counts bytes must not stop them
                self._callbacks.output(chunk)
        self._log.add(source.lines, chunk)
        if source.output_buffer is not None:
            source.output_buffer.put(chunk)

    def _read_status(self) -> None:
        report = os.read(self._status, 4096)
        if not report:
            self._poll.unregister(self._status)
        for source in list(self._open.values()):  # what was printed before comes before
            self._read_output(source)
        self._callbacks.status(report)

    def _read_keys(self, descriptor: int) -> None:
        assert self._wiring.keys is not None
        try:
            typed = os.read(descriptor, 4096)
        except OSError:  # the terminal is gone, or we are in the background
            typed = b""
        if not typed:
            self._drop_terminal()
            return
        interrupt, suspend = special_keys(self._wiring.keys)
        if interrupt and interrupt in typed:
            self._callbacks.interrupted(typed.count(interrupt))
        if suspend and suspend in typed and self._callbacks.may_suspend():
            before, _, typed = typed.partition(suspend)
            self._keys += before
            self._pass_keys()
            self._callbacks.suspended()
        self._keys += typed
        self._pass_keys()

    def _drop_terminal(self) -> None:
        if self._wiring.terminal is not None:
            self._wiring.terminal.leave()
        self._wiring.terminal = None
        self._watch_keys()

    def _pass_keys(self) -> None:
        assert self._wiring.keys is not None
        with contextlib.suppress(OSError):  # it takes no more now, or nobody has it open
            while self._keys:
                del self._keys[: os.write(self._wiring.keys, self._keys)]
        self._watch_keys()

    def _watch_keys(self) -> None:
        """Read keys while we are in the foreground and those before them were taken."""
        if self._wiring.keys in self._open:
            wanted = select.POLLIN | (select.POLLOUT if self._keys else 0)
            self._poll.modify(self._wiring.keys, wanted)
        terminal = self._wiring.terminal
        source = None
        if terminal is not None and terminal.raw and not self._keys:
            source = terminal.descriptor
        if source != self._key_source:
            if self._key_source is not None:
                self._poll.unregister(self._key_source)
            if source is not None:
                self._poll.register(source, select.POLLIN)
            self._key_source = source
