"""Our own terminal while a child runs: raw, so that every key reaches the child's pty as a byte.

Output processing stays on: the child's pty has it off, so bytes are processed once, by the same
terminal that would have done it without us.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import signal
import struct
import sys
import threading
from collections.abc import Iterable

from rocsteady.system import procfs

if sys.platform != "win32":
    import fcntl
    import termios

INPUT, OUTPUT, CONTROL, LOCAL, CHARACTERS = 0, 1, 2, 3, 6  # in what tcgetattr gives


class Terminal:
    """The terminal that we were started on; its modes are put back however we end."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.raw = False
        self._found = termios.tcgetattr(descriptor)
        self._lock = threading.Lock()

    def is_ours(self) -> bool:
        """Whether we may read and set it: we are not in the background."""
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
        with self._lock:
            if not self.raw:
                return
            self.raw = False
            atexit.unregister(self.leave)
            if self.is_ours():
                with contextlib.suppress(termios.error):
                    termios.tcsetattr(self.descriptor, termios.TCSANOW, self._found)


def can_fill_screen() -> bool:
    """Whether a full-screen program can run: on a UTF-8 terminal, in its foreground."""
    if not (os.isatty(0) and os.isatty(1)) or os.environ.get("TERM", "") in ("", "dumb"):
        return False
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return utf8 and Terminal(0).is_ours()


def open_pty(like: int) -> tuple[int, int]:
    """Make a pty with the modes and size of a terminal, but no output processing."""
    master, slave = os.openpty()
    try:
        copy_modes(like, master)
    except BaseException:
        os.close(master)
        os.close(slave)
        raise
    os.set_blocking(master, False)
    return master, slave


def copy_modes(like: int, master: int) -> None:
    """Set the modes and size of a terminal on a pty, but no output processing."""
    modes = termios.tcgetattr(like)
    modes[OUTPUT] &= ~termios.OPOST
    termios.tcsetattr(master, termios.TCSANOW, modes)
    copy_size(like, master)


def copy_size(like: int, master: int) -> None:
    """Set the size of a terminal on a pty; the kernel tells the child if that is a change."""
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(like, termios.TIOCGWINSZ, b"\0" * 8)
        if fcntl.ioctl(master, termios.TIOCGWINSZ, b"\0" * 8) != size and any(
            struct.unpack("4H", size)
        ):
            fcntl.ioctl(master, termios.TIOCSWINSZ, size)


def special_keys(master: int) -> tuple[bytes, bytes]:
    """Return the keys that interrupt and suspend on this pty now; empty if they are plain bytes."""
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
    for pid in in_group(os.getpgrp()):
        with contextlib.suppress(OSError):
            if pid != os.getpid():
                os.kill(pid, signal.SIGTSTP)
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def is_orphaned() -> bool:
    """Whether no shell would continue us: the kernel's own rule for ^Z."""
    pid, group = os.getpid(), os.getpgrp()
    with contextlib.suppress(OSError):
        while pid > 1:
            pid = procfs.stat(pid).parent
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


TIOCGPTN = 0x80045430  # the number of a pty, Linux
READ = {"x86_64": "0", "aarch64": "63"}.get(platform.machine(), "")  # the system call
READS_KEYS = ("n_tty_read", "wait_woken")  # kernel functions, where the call may not be seen


def in_group(group: int) -> list[int]:
    found = []
    for pid in procfs.living():
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == group:
                found.append(pid)
    return found


def taken(pids: Iterable[int], number: signal.Signals) -> dict[int, str]:
    """Return how each process takes a signal: "ignored", "caught", or "" for the default."""
    return {pid: how for pid in pids if (how := _taken(pid, number)) is not None}


def waits_for_keys(master: int) -> bool:
    """Whether somebody in the foreground of a pty waits for what is typed.

    A line editor takes each key as it comes: the pty is not in line mode then. Whoever asks for a
    whole line is blocked in a read of it.
    """
    try:
        if not termios.tcgetattr(master)[LOCAL] & termios.ICANON:
            return True
        number = struct.unpack("I", fcntl.ioctl(master, TIOCGPTN, b"\0" * 4))[0]
        front = os.tcgetpgrp(master)
    except (OSError, termios.error):
        return False
    names = (f"/dev/pts/{number}", "/dev/tty")
    return any(_reads(pid, names) for pid in in_group(front))


def _taken(pid: int, number: signal.Signals) -> str | None:
    try:
        fields = procfs.fields(f"/proc/{pid}/status")
        ignored, caught = (int(fields.get(name, "0"), 16) for name in ("SigIgn", "SigCgt"))
    except (OSError, ValueError):
        return None
    bit = 1 << (number - 1)
    return "ignored" if ignored & bit else "caught" if caught & bit else ""


def _reads(pid: int, names: tuple[str, ...]) -> bool:
    with contextlib.suppress(OSError):
        for thread in procfs.numbers(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                descriptor = _read_from(f"/proc/{pid}/task/{thread}")
                if descriptor and procfs.link(f"/proc/{pid}/fd/{descriptor}") in names:
                    return True
    return False


def _read_from(thread: str) -> str:
    """Return the descriptor that a thread is blocked in a read of; "" if it is not."""
    try:
        words = procfs.text(f"{thread}/syscall").split()
    except OSError:  # we may not trace it
        return "0" if procfs.text(f"{thread}/wchan") in READS_KEYS else ""
    return str(int(words[1], 16)) if words[1:] and words[0] == READ else ""
