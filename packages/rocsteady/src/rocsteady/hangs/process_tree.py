"""Which processes belong to an attempt.

All that descend from its command, and all that carry its id in their environment: the children of
one that has since ended are nobody's descendants any more.
"""

from __future__ import annotations

import functools
import os

from rocsteady_train.inside import wire

from rocsteady.errors import ExaminationError
from rocsteady.system import procfs
from rocsteady.system.procfs import Stat

ENVIRONMENT_LIMIT = 2 * 1024 * 1024  # bytes; as much as Linux lets a program be started with
Identity = tuple[int, int]  # pid and start: one process, for ever


def processes(root: int, run_id: str) -> tuple[int, ...]:
    """Return the living processes of an attempt, ``root`` first, then in number order."""
    return _tree(root, run_id).processes()


class Tree:
    """Finds the processes of one attempt again and again.

    What was once ours stays ours, though its parent ends and it writes over its environment (as a
    program does that changes its title). What was once found to be another's is not asked again.
    """

    def __init__(self, root: int, run_id: str) -> None:
        self._root = root
        self._mark = f"{wire.RUN}={run_id}".encode() if run_id else b""
        self._ours: dict[Identity, bool] = {}

    def processes(self) -> tuple[int, ...]:
        """Look through all processes of the machine once."""
        if os.name == "nt":
            raise ExaminationError("the processes of a run cannot be listed on native Windows")
        seen = _all_processes()
        children: dict[int, list[int]] = {}
        for pid, stat in seen.items():
            children.setdefault(stat.parent, []).append(pid)
        found: set[int] = set()
        self._descend(self._root, seen, children, found)
        for pid, stat in seen.items():
            if pid not in found and self._carries_mark(pid, stat):
                self._descend(pid, seen, children, found)
        self._forget_all_but(seen)
        return tuple(sorted(found, key=lambda pid: (pid != self._root, pid)))

    def _descend(
        self, top: int, seen: dict[int, Stat], children: dict[int, list[int]], found: set[int]
    ) -> None:
        pending = [top]
        while pending:
            pid = pending.pop()
            stat = seen.get(pid)
            if stat is None or pid in found:
                continue
            found.add(pid)
            self._ours[pid, stat.start] = True
            pending += children.get(pid, ())

    def _carries_mark(self, pid: int, stat: Stat) -> bool:
        known = self._ours.get((pid, stat.start))
        if known is not None:
            return known
        if not self._mark or stat.flags & procfs.KERNEL_THREAD:
            return False
        if stat.state == "D":  # its environment may be locked; ask when it is not stuck
            return False
        try:
            environment = procfs.read(f"{procfs.PROC}/{pid}/environ", ENVIRONMENT_LIMIT)
        except PermissionError:
            environment = b"another user's\0"
        except OSError:
            return False
        ours = self._mark in environment.split(b"\0")
        if environment:  # an empty one is a program just being loaded: ask again
            self._ours[pid, stat.start] = ours
        return ours

    def _forget_all_but(self, seen: dict[int, Stat]) -> None:
        living = {(pid, stat.start) for pid, stat in seen.items()}
        for gone in self._ours.keys() - living:
            del self._ours[gone]


@functools.lru_cache(maxsize=8)
def _tree(root: int, run_id: str) -> Tree:
    return Tree(root, run_id)


def _all_processes() -> dict[int, Stat]:
    seen = {}
    for pid in procfs.numbers(procfs.PROC):
        try:
            stat = procfs.stat(pid)
        except (OSError, ValueError, IndexError):  # gone meanwhile
            continue
        if not stat.dead:
            seen[pid] = stat
    return seen
