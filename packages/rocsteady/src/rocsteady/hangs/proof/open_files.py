"""What a process holds open: by its descriptors, by those of single threads, and by io_urings."""

from __future__ import annotations

import ctypes
import platform
import re
from functools import cache
from typing import NamedTuple

from rocsteady.system import procfs

KCMP = {"x86_64": 312, "aarch64": 272, "arm64": 272}.get(platform.machine(), 0)
KCMP_FILES = 2
MAX_COMPARED = 20_000  # links read of threads whose tables the kernel does not compare
EVENT = "anon_inode:[eventfd]"
RING = "anon_inode:[io_uring]"
_REGISTERED = re.compile(r"^ +[0-9]+: ?(.*)$", re.MULTILINE)
_COUNTED = re.compile(r"^(\w+):\t([0-9]+)$", re.MULTILINE)
_POLLS = re.compile(r"^PollList:\n +op", re.MULTILINE)


class OpenFiles(NamedTuple):
    """What a process holds, by where that stands below /proc/PID."""

    kinds: dict[str, str]  # "fd/7": "pipe:[12]"; of a thread "task/9/fd/7"; of a ring "ring/3/0"
    apart: frozenset[int] = frozenset()  # threads that have a table of their own
    hidden: bool = False  # it may hold anything
    submitted: bool = False  # to an io_uring, which has not done it yet


def open_files(pid: int) -> OpenFiles:
    """Look at a process; one that has ended holds nothing."""
    try:
        about = procfs.stat(pid)
        own = {} if about.state in "ZX" else procfs.descriptors(pid)
        tables = {} if about.threads <= 1 else _tables_apart(pid, own)
        kinds = {f"fd/{number}": kind for number, kind in own.items()}
        for tid, table in tables.items():
            kinds |= {f"task/{tid}/fd/{number}": kind for number, kind in table.items()}
        rings = [place for place, kind in kinds.items() if kind == RING]
        found = OpenFiles(kinds, frozenset(tables))
        for place in rings:
            found = _with_ring(found, place, procfs.text(information(pid, place), procfs.LARGE))
    except PermissionError:
        return OpenFiles({}, hidden=True)
    except (OSError, ValueError, IndexError):
        return OpenFiles({})
    return found


def information(pid: int, place: str) -> str:
    """Return the file in which the kernel describes what is held at a place."""
    return f"{procfs.PROC}/{pid}/{place.replace('fd/', 'fdinfo/')}"


def _tables_apart(pid: int, own: dict[int, str]) -> dict[int, dict[int, str]]:
    """Return the tables of threads that do not have that of the process (``CLONE_FILES``)."""
    apart, compared = {}, 0
    for tid in procfs.numbers(f"{procfs.PROC}/{pid}/task"):
        same = tid == pid or _has_same_table(pid, tid)
        if same or (same is None and compared > MAX_COMPARED):
            continue
        try:
            table = procfs.descriptors(pid, tid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        compared += len(table)
        if same is False or table != own:
            apart[tid] = table
    return apart


def _has_same_table(pid: int, tid: int) -> bool | None:
    """Ask the kernel; None where it does not tell."""
    answer = _libc().syscall(KCMP, pid, tid, KCMP_FILES, 0, 0) if KCMP else -1
    return None if answer < 0 else answer == 0


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _with_ring(found: OpenFiles, place: str, about: str) -> OpenFiles:
    """Add what is registered in an io_uring, as newer kernels name it."""
    told = dict(_COUNTED.findall(about))
    listed = about.partition("UserFiles:")[2].partition("\nUser")[0].partition("\nPoll")[0]
    names = [name for name in _REGISTERED.findall(listed) if name != "<none>"]
    untold = told.get("UserFiles") != "0" and not names
    in_flight = told.get("CachedSqHead") != told.get("CachedCqTail") or _POLLS.search(about)
    return found._replace(
        kinds=found.kinds | {f"ring/{place}/{at}": name for at, name in enumerate(names)},
        hidden=found.hidden or untold or not {"", EVENT}.isdisjoint(names),
        submitted=found.submitted or bool(in_flight),
    )
