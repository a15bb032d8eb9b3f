"""Raw reads of Linux's /proc: small, bounded, and quick enough to do thousands of times.

Nothing here judges or remembers. A process that is gone, or that we may not see, is an ``OSError``.
Files that take a lock of the process they describe (``mem``, ``environ``, ``maps``) can block for
as long as it is stuck in the kernel: those who read them skip processes in state D.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

PROC = "/proc"
SMALL, LARGE = 4096, 4 * 1024 * 1024  # bytes read at most of a small file, of a table
EXIT_STATUS = 49  # the field of a stat line after the name
KERNEL_THREAD = 0x00200000  # PF_KTHREAD, in the flags of a stat line
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Stat(NamedTuple):
    """One line of /proc/PID/stat or /proc/PID/task/TID/stat. A tuple: made 300 times a tick."""

    name: str
    state: str
    parent: int
    terminal: int  # the device that controls it; 0: none
    flags: int
    cpu: float  # seconds
    threads: int
    start: int  # ticks after boot; with the number it names one process for ever
    rss_bytes: int

    @property
    def dead(self) -> bool:
        """A zombie has ended; one whose first thread has ended while others run has not."""
        return self.state in "ZXx" and self.threads <= 1


def read(path: str, limit: int = SMALL) -> bytes:
    """Return the file's content up to ``limit``; /proc may hand out less than asked for."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        data = os.read(descriptor, limit)
        if limit <= SMALL:  # such files come whole
            return data
        chunks = [data]
        size = len(data)
        while data and size < limit:
            data = os.read(descriptor, limit - size)
            chunks.append(data)
            size += len(data)
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def living() -> set[int]:
    try:
        return set(numbers(PROC))
    except OSError:
        return set()


def text(path: str, limit: int = SMALL) -> str:
    return read(path, limit).decode("utf-8", "replace")


def numbers(folder: str) -> list[int]:
    """Return the names in a folder that are numbers: processes, threads, descriptors."""
    return [int(name) for name in os.listdir(folder) if name.isdecimal()]


def parse_stat(line: bytes) -> Stat:
    """Read a stat line. The name may itself hold blanks and brackets: the last one ends it."""
    name_end = line.rindex(b")")
    rest = line[name_end + 2 :].split(None, 22)  # of about 50
    return Stat(  # by place: this is read for every process of the machine, and names cost time
        line[line.index(b"(") + 1 : name_end].decode("utf-8", "replace"),
        chr(rest[0][0]),
        int(rest[1]),
        int(rest[4]),
        int(rest[6]),
        (int(rest[11]) + int(rest[12])) / _TICKS,
        int(rest[17]),
        int(rest[19]),
        int(rest[21]) * PAGE,
    )


def stat(pid: int, tid: int | None = None) -> Stat:
    folder = f"{PROC}/{pid}" if tid is None else f"{PROC}/{pid}/task/{tid}"
    line = read(f"{folder}/stat")
    if not line:
        raise ProcessLookupError(folder)
    return parse_stat(line)


def command(pid: int) -> tuple[str, ...]:
    """Return the words that a process was started with; () if that is not known."""
    try:
        words = read(f"{PROC}/{pid}/cmdline", LARGE).split(b"\0")
    except OSError:
        return ()
    return tuple(map(os.fsdecode, words[:-1]))


def owner(pid: int) -> str:
    """Return the name of the user that a process belongs to; "" if that is not known."""
    try:
        import pwd  # noqa: PLC0415 - not on Windows

        return pwd.getpwuid(os.stat(f"{PROC}/{pid}").st_uid).pw_name
    except (ImportError, KeyError, OSError):
        return ""


def memory_of_machine() -> tuple[int, int] | None:
    """Return the bytes of memory that are in use, and all of them."""
    try:
        table = fields(f"{PROC}/meminfo")
    except OSError:
        return None
    whole, free = (leading_number(table.get(name, "")) for name in ("MemTotal", "MemAvailable"))
    return ((whole - free) * 1024, whole * 1024) if whole else None


def age(about: Stat) -> float:
    """Return the seconds since a process was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - about.start / _TICKS


def exit_status(pid: int) -> int:
    """Return how a process ended that its parent has not reaped, as ``waitpid`` would."""
    return int(read(f"{PROC}/{pid}/stat").rpartition(b") ")[2].split()[EXIT_STATUS])


def children(pid: int) -> set[int]:
    found: set[int] = set()
    for thread in numbers(f"{PROC}/{pid}/task"):
        found |= set(map(int, read(f"{PROC}/{pid}/task/{thread}/children", LARGE).split()))
    return found


def link(path: str) -> str:
    return os.readlink(path)


def descriptors(pid: int, tid: int | None = None) -> dict[int, str]:
    """Return what each descriptor is: ``pipe:[7]``, a path; those that are gone are left out.

    Raises PermissionError if that is a secret.
    """
    folder, found = f"{PROC}/{pid}/fd" if tid is None else f"{PROC}/{pid}/task/{tid}/fd", {}
    for number in numbers(folder):
        try:
            found[number] = link(f"{folder}/{number}")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def memory(pid: int, address: int, size: int) -> bytes:
    """Read the memory of another process. Takes the right to trace it, and does not stop it."""
    descriptor = os.open(f"{PROC}/{pid}/mem", os.O_RDONLY)
    try:
        os.lseek(descriptor, address, os.SEEK_SET)
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def fields(path: str, limit: int = SMALL) -> dict[str, str]:
    """Read a file of ``name: value`` lines."""
    pairs = (line.partition(":") for line in text(path, limit).splitlines())
    return {name: value.strip() for name, colon, value in pairs if colon}


def leading_number(value: str) -> int:
    """Return the number that a value begins with, 0 if it has none: ``1234 kB`` is 1234."""
    word = value.split(None, 1)[0] if value.strip() else ""
    return int(word) if word.isdecimal() else 0
