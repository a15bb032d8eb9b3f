"""Which processes, threads and GPUs belong to an attempt.

The kernel names a crash by the number of the thread, so threads are collected as well as processes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

from rocsteady.doctor.machine.gpus import parse_properties, pci_address
from rocsteady.hangs.looking.cgroups import ROOT
from rocsteady.hangs.values import Snapshot
from rocsteady.model import Value
from rocsteady.system import keeper, procfs
from rocsteady.system.parallel import run_all

KFD = "sys/class/kfd/kfd"
RENDER = "/dev/dri/renderD"
OF_THIS_MACHINE = "pid:[4026531836]"  # the kernel's own numbers of processes
TORCH_LIBRARY = b"libtorch"  # begins the names of its libraries
MAPS_WITHIN = timedelta(seconds=1)
SOONEST, LATEST = 1.0, 10.0  # seconds between two snapshots: often at first, seldom later


def processes(root: int, run_id: str = "") -> tuple[int, ...]:
    """Return the living processes below ``root``, which comes first, and of an attempt, by its id.

    The children of one that has since ended are nobody's descendants any more.
    """
    everyone, carriers = keeper.all_processes(), keeper.Carriers(f"{run_id}\0")
    tops = {pid for pid, seen in everyone.items() if run_id and carriers.include(pid, seen)}
    tops |= {root} & everyone.keys()
    found = tops.union(*(keeper.descendants(pid, everyone) for pid in tops))
    living = (pid for pid in found if keeper.is_alive(pid, everyone[pid]))
    return tuple(sorted(living, key=lambda pid: (pid != root, pid)))


def with_torch(pids: Iterable[int]) -> tuple[int, ...]:
    """Return which of these processes have loaded torch."""
    found = run_all({pid: partial(_has_torch, pid) for pid in pids}, within=MAPS_WITHIN)
    return tuple(sorted(pid for pid, has in found.results.items() if has))


def _has_torch(pid: int) -> bool:
    return TORCH_LIBRARY in procfs.read(f"{procfs.PROC}/{pid}/maps", procfs.LARGE)


def trainings() -> tuple[int, ...]:
    """Return the processes that may train: with torch, and not below another: no rank or worker."""
    everyone = keeper.all_processes()
    found = with_torch(everyone)
    below = set[int]().union(*(keeper.descendants(pid, everyone) for pid in found))
    return tuple(pid for pid in found if pid not in below)


class Members(Value, frozen=True, kw_only=True):
    """What an attempt consisted of, over its whole life."""

    ids: frozenset[int] = frozenset()  # of processes and threads, as the kernel log numbers them
    gpus: frozenset[str] = frozenset()  # that it used: PCI addresses without the function
    all_gpus: frozenset[str] = frozenset()  # of the machine, AMD's


class MemberCollector:
    def __init__(self, began: float, root: Path = ROOT) -> None:
        self._began, self._due, self._root = began, began + SOONEST, root
        self._ids: set[int] = set()
        self._gpus: set[str] = set()

    def poll(self, tree: Callable[[], Sequence[int]], now: float) -> None:
        if now < self._due or os.name == "nt":
            return
        self._due = now + min(max((now - self._began) / 5, SOONEST), LATEST)
        addresses = gpu_addresses(self._root)
        for pid in tree():
            self._ids.add(pid)
            with contextlib.suppress(OSError):  # gone meanwhile
                self._ids.update(procfs.numbers(f"{procfs.PROC}/{pid}/task"))
                self._gpus.update(_used_gpus(pid, addresses, self._root))

    def free_gpus(self) -> frozenset[str]:
        """Return the machine's GPUs that nobody has a queue on, if this attempt used none."""
        addresses = gpu_addresses(self._root)
        queues = (self._root / KFD / "proc").glob("*/queues/*/gpuid")
        used = {addresses.get(int(queue.read_text()), "") for queue in queues}
        return frozenset() if self._gpus else frozenset(addresses.values()) - used

    def members(self, snapshots: Iterable[Snapshot] = ()) -> Members:
        """Return all that were seen, here and in closer snapshots."""
        seen = [process for each in snapshots for process in each.processes]
        threads = {thread.tid for process in seen for thread in process.threads}
        ids = self._ids | {process.pid for process in seen} | threads
        return Members(
            ids=frozenset(ids) if _has_the_kernels_numbers() else frozenset(),
            gpus=frozenset(self._gpus),
            all_gpus=frozenset(gpu_addresses(self._root).values()),
        )


def _has_the_kernels_numbers() -> bool:
    """Return whether processes have the numbers of the kernel log here: not in containers."""
    try:
        return procfs.link(f"{procfs.PROC}/self/ns/pid") == OF_THIS_MACHINE
    except OSError:
        return False


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
