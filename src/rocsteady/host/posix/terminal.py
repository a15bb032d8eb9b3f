"""Our own terminal while a child runs: raw, so that every key reaches the child's pty as a byte.

Output processing stays on: the child's pty has it off, so bytes are processed once, by the same
terminal that would have done it without us.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import signal
import struct
import termios
import threading
from pathlib import Path

INPUT, OUTPUT, CONTROL, LOCAL, CHARACTERS = 0, 1, 2, 3, 6  # in what tcgetattr gives


class Terminal:
    """The terminal that we were started on; its modes are put back however we end."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.raw = False
        self._found = termios.tcgetattr(descriptor)
        self._lock = threading.Lock()

    def is_ours(self) -> bool:
        """Tell whether we may read and set it: we are not in the background."""
        try:
            return os.tcgetpgrp(self.descriptor) == os.getpgrp()
        except OSError:  # not the terminal of our session: then no job control stops us
            return os.isatty(self.descriptor)

    def enter(self) -> None:
        """Hand every key through, if we are in the foreground; again, if a shell changed that."""
        with self._lock, contextlib.suppress(termios.error):
            if not self.is_ours():
                self.raw = False
                return
            now = termios.tcgetattr(self.descriptor)
            if not self.raw:
                self._found = now
                atexit.register(self.leave)
            self.raw = True
            wanted = _handing_through(self._found)
            if now != wanted:
                termios.tcsetattr(self.descriptor, termios.TCSANOW, wanted)

    def leave(self) -> None:
        """Put the modes back as they were found."""
        with self._lock:
            if not self.raw:
                return
            self.raw = False
            atexit.unregister(self.leave)
            if self.is_ours():
                with contextlib.suppress(termios.error):
                    termios.tcsetattr(self.descriptor, termios.TCSANOW, self._found)


def open_pty(like: int) -> tuple[int, int]:
    """Make a pty with the modes and size of a terminal, but no output processing."""
    master, slave = os.openpty()
    try:
        modes = termios.tcgetattr(like)
        modes[OUTPUT] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        copy_size(like, master)
    except BaseException:
        os.close(master)
        os.close(slave)
        raise
    os.set_blocking(master, False)
    return master, slave


def copy_size(like: int, master: int) -> None:
    """Give a pty the size of a terminal; the kernel tells the child if that is a change."""
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(like, termios.TIOCGWINSZ, b"\0" * 8)
        if fcntl.ioctl(master, termios.TIOCGWINSZ, b"\0" * 8) != size and any(
            struct.unpack("4H", size)
        ):
            fcntl.ioctl(master, termios.TIOCSWINSZ, size)


def special_keys(master: int) -> tuple[bytes, bytes]:
    """Give the keys that interrupt and suspend on this pty now; empty if they are plain bytes."""
    try:
        modes = termios.tcgetattr(master)
    except termios.error:
        return b"", b""
    if not modes[LOCAL] & termios.ISIG:
        return b"", b""
    characters = modes[CHARACTERS]
    interrupt, suspend = characters[termios.VINTR], characters[termios.VSUSP]
    return _enabled(interrupt), _enabled(suspend)


def stop_ourselves() -> None:
    """Stop our process group as ^Z would, and return when continued.

    The rest of the group first, then this thread, so that we surely do not run on.
    """
    group = os.getpgrp()
    for entry in Path("/proc").iterdir():
        pid = int(entry.name) if entry.name.isdigit() else 0
        with contextlib.suppress(OSError):
            if pid and pid != os.getpid() and os.getpgid(pid) == group:
                os.kill(pid, signal.SIGTSTP)
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def is_orphaned() -> bool:
    """Tell whether no shell would continue us: the kernel's own rule for ^Z."""
    pid, group = os.getpid(), os.getpgrp()
    with contextlib.suppress(OSError):
        while pid > 1:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
            pid = int(stat.rpartition(b") ")[2].split()[1])
            if os.getsid(pid) != os.getsid(0):
                return True
            if os.getpgid(pid) != group:
                return False
    return True


def _handing_through(modes: list[int | list[bytes | int]]) -> list[int | list[bytes | int]]:
    raw = list(modes)
    off = {
        INPUT: termios.BRKINT
        | termios.ICRNL
        | termios.IGNCR
        | termios.INLCR
        | termios.INPCK
        | termios.ISTRIP
        | termios.IXON,
        LOCAL: termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG,
        CONTROL: termios.PARENB,
    }
    for field, bits in off.items():
        value = raw[field]
        assert isinstance(value, int)
        raw[field] = value & ~bits
    characters = raw[CHARACTERS]
    assert isinstance(characters, list)
    characters = list(characters)
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    raw[CHARACTERS] = characters
    return raw


def _enabled(key: bytes | int) -> bytes:
    return key if isinstance(key, bytes) and key != b"\0" else b""
