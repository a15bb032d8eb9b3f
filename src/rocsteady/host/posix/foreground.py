"""The foreground of a terminal: who is in it, who waits for keys, how each takes a signal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import signal
import struct
import termios
from collections.abc import Iterable
from pathlib import Path

TIOCGPTN = 0x80045430  # the number of a pty, Linux
READ = {"x86_64": "0", "aarch64": "63"}.get(platform.machine(), "")  # the system call
READS_KEYS = ("n_tty_read", "wait_woken")  # kernel functions, where the call may not be seen
LOCAL = 3  # in what tcgetattr gives


def in_group(group: int) -> list[int]:
    """Return the processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and os.getpgid(int(entry.name)) == group:
                found.append(int(entry.name))
    return found


def taken(pids: Iterable[int], number: signal.Signals) -> dict[int, str]:
    """Tell how each process takes a signal: "ignored", "caught", or "" for the default."""
    return {pid: how for pid in pids if (how := _taken(pid, number)) is not None}


def waits_for_keys(master: int) -> bool:
    """Tell whether somebody in the foreground of a pty waits for what is typed.

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
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        masks = {
            name: int(mask, 16)
            for name, _, mask in (line.partition(":") for line in lines)
            if name in ("SigIgn", "SigCgt")
        }
    except (OSError, ValueError):
        return None
    bit = 1 << (number - 1)
    if masks.get("SigIgn", 0) & bit:
        return "ignored"
    return "caught" if masks.get("SigCgt", 0) & bit else ""


def _reads(pid: int, names: tuple[str, ...]) -> bool:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False
    return any(_thread_reads(pid, thread, names) for thread in threads)


def _thread_reads(pid: int, thread: Path, names: tuple[str, ...]) -> bool:
    try:
        words = (thread / "syscall").read_text().split()
    except OSError:  # we may not trace it
        return _may_read(pid, thread, names)
    if len(words) < 2 or words[0] != READ:  # noqa: PLR2004 - the call and its first argument
        return False
    return _is_on(pid, int(words[1], 16), names)


def _may_read(pid: int, thread: Path, names: tuple[str, ...]) -> bool:
    try:
        return (thread / "wchan").read_text() in READS_KEYS and _is_on(pid, 0, names)
    except OSError:
        return False


def _is_on(pid: int, descriptor: int, names: tuple[str, ...]) -> bool:
    try:
        return str(Path(f"/proc/{pid}/fd/{descriptor}").readlink()) in names
    except OSError:
        return False
