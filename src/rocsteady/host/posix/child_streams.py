"""Which stream of the child is a pty and which a pipe: whatever ours are.

Streams of ours that are one and the same file get one pty or pipe in the child too, so that what
it prints to both stays in order.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from dataclasses import dataclass, field
from typing import NamedTuple

from rocsteady.host.child_end import TerminalUse
from rocsteady.host.logfile import Lines
from rocsteady.host.output_buffer import Outlet
from rocsteady.host.posix.terminal import Terminal, open_pty

PIPE_SIZE = 1024 * 1024
F_SETPIPE_SZ = 1031  # Linux; without it the pipe is smaller


class FileIdentity(NamedTuple):
    """What tells one file from another."""

    terminal: bool
    device: int
    inode: int = 0


@dataclass(kw_only=True, eq=False)
class OutputWire:
    """Something that the child writes to: its end, our end, and the place of ours it goes to."""

    given: int
    descriptor: int
    pty: bool
    outlet: Outlet | None = None
    lines: Lines = field(default_factory=Lines)

    def show_on(self, ours: int | None) -> None:
        """Carry it to a descriptor of ours, unless it is carried already or none can be written."""
        if self.outlet is None and ours is not None and _is_writable(ours):
            self.outlet = Outlet(ours, notice=_notice if self.pty else None)


@dataclass(kw_only=True)
class Wiring:
    """All streams of a child."""

    given: list[int] = field(default_factory=list)  # its stdin, stdout and stderr
    sources: dict[FileIdentity | None, OutputWire] = field(default_factory=dict)
    terminal: Terminal | None = None  # ours, if the child reads from it
    keys: int | None = None  # our end of the pty that its keys go to
    complaints: Outlet | None = None  # the place of our stderr
    _nothing: int | None = None  # the child's stdin, if it has none

    def close_given(self) -> None:
        """Let go of the child's ends, once it has them."""
        opened = [source.given for source in self.sources.values()]
        if self._nothing is not None:
            opened.append(self._nothing)
        for descriptor in opened:
            os.close(descriptor)

    def close(self) -> None:
        """Let go of our ends."""
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
            self.terminal, self.keys = Terminal(ours), source.descriptor
            self.given.append(source.given)
        else:
            self.given.append(ours)

    def give_output(self, ours: int | None) -> None:
        """Give the child a stream to write to; the last one given is its stderr."""
        source = self._source(_identity(ours), ours)
        self.complaints = source.outlet
        self.given.append(source.given)

    def _source(self, identity: FileIdentity | None, ours: int | None) -> OutputWire:
        if identity not in self.sources:
            if ours is not None and identity is not None and identity.terminal:
                master, slave = open_pty(ours)
                made = OutputWire(given=slave, descriptor=master, pty=True)
            else:
                read, write = _open_pipe()
                made = OutputWire(given=write, descriptor=read, pty=False)
            self.sources[identity] = made
        self.sources[identity].show_on(ours)
        return self.sources[identity]


def wire(use: TerminalUse) -> Wiring:
    """Open what the child needs."""
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
    """Tell what a descriptor is open on; None if it is not open."""
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
    return b"\nrocsteady: %d bytes were not shown; the log has them\n" % count
