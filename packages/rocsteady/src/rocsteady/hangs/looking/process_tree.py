"""Which processes belong to an attempt.

All that descend from its command, and all that carry its id in their environment: the children of
one that has since ended are nobody's descendants any more.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rocsteady_train.inside import wire

from rocsteady.doctor.machine.gpus import parse_properties, pci_address
from rocsteady.errors import ExaminationError
from rocsteady.hangs.looking.cgroups import ROOT
from rocsteady.hangs.values import Snapshot
from rocsteady.model import Value
from rocsteady.system import procfs
from rocsteady.system.procfs import Stat

ENVIRONMENT_LIMIT = 2 * 1024 * 1024  # bytes; as much as Linux lets a program be started with
Identity = tuple[int, int]  # pid and start: one process, for ever
KFD = "sys/class/kfd/kfd"
RENDER = "/dev/dri/renderD"
FIRST_NAMESPACE = 0xEFFFFFFC  # the inode of the machine's own pid namespace (PROC_PID_INIT_INO)
SOONEST, LATEST = 1.0, 10.0  # seconds between two snapshots: often at first, seldom later


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


# The threads and GPUs that belong to an attempt: whose lines in the kernel log concern it.
#
# The kernel names a crash by the number of the thread, so threads are collected as well as
# processes.


class Members(Value, frozen=True, kw_only=True):
    """What an attempt consisted of, over its whole life."""

    ids: frozenset[int] = frozenset()  # of processes and threads, as the kernel log numbers them
    gpus: frozenset[str] = frozenset()  # that it used: PCI addresses without the function
    all_gpus: frozenset[str] = frozenset()  # of the machine, AMD's


class MemberCollector:
    """Collects the members of one attempt while it runs."""

    def __init__(self, began: float, root: Path = ROOT) -> None:
        self._began, self._due, self._root = began, began + SOONEST, root
        self._ids: set[int] = set()
        self._gpus: set[str] = set()

    def poll(self, tree: Callable[[], Sequence[int]], now: float) -> None:
        """Look at the processes now and then."""
        if now < self._due or os.name == "nt":
            return
        self._due = now + min(max((now - self._began) / 5, SOONEST), LATEST)
        addresses = gpu_addresses(self._root)
        for pid in tree():
            self._ids.add(pid)
            with contextlib.suppress(OSError):  # gone meanwhile
                self._ids.update(procfs.numbers(f"{procfs.PROC}/{pid}/task"))
                self._gpus.update(_used_gpus(pid, addresses, self._root))

    def members(self, snapshots: Iterable[Snapshot] = ()) -> Members:
        """Return all that were seen, here and in closer snapshots."""
        seen = [process for each in snapshots for process in each.processes]
        threads = {thread.tid for process in seen for thread in process.threads}
        ids = self._ids | {process.pid for process in seen} | threads
        return Members(
            ids=frozenset(ids) if _numbers_are_the_kernels() else frozenset(),
            gpus=frozenset(self._gpus),
            all_gpus=frozenset(gpu_addresses(self._root).values()),
        )


def gpu_addresses(root: Path = ROOT) -> dict[int, str]:
    """Return the PCI address of each GPU that KFD offers, by KFD's own id."""
    found = {}
    for node in (root / KFD / "topology/nodes").glob("*"):
        with contextlib.suppress(OSError, ValueError):
            number = int((node / "gpu_id").read_text())
            facts = parse_properties((node / "properties").read_text())
            if number:
                address = pci_address(facts.get("domain", 0), facts.get("location_id", 0))
                found[number] = address.rpartition(".")[0]
    return found


def gpus_of(pid: int, root: Path = ROOT) -> str:
    """Name the GPUs that a process uses, by their PCI addresses; "" if that is not known."""
    try:
        return ", ".join(sorted({*_used_gpus(pid, gpu_addresses(root), root)} - {""}))
    except OSError:
        return ""


def _used_gpus(pid: int, addresses: dict[int, str], root: Path) -> Iterator[str]:
    """Yield the GPUs that a process has queues on; without KFD's word, those it has open."""
    if not addresses:
        return
    queues = root / KFD / "proc" / str(pid) / "queues"
    if queues.is_dir():
        for queue in queues.glob("*/gpuid"):
            with contextlib.suppress(OSError, ValueError):
                yield addresses.get(int(queue.read_text()), "")
        return
    for opened in procfs.descriptors(pid).values():
        if opened.startswith(RENDER):
            device = root / "sys/class/drm" / opened.rpartition("/")[2] / "device"
            yield device.resolve().name.rpartition(".")[0]


def _numbers_are_the_kernels() -> bool:
    """Return whether processes have the numbers of the kernel log here: not in containers."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino == FIRST_NAMESPACE
    except OSError:
        return False
