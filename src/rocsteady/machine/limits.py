"""Memory, shared memory and disk, and the limits that a container or service puts on them."""

from __future__ import annotations

import re

from rocsteady.machine.root import PATH_LIMIT, Disk
from rocsteady.machine.view import View, whole_number
from rocsteady.model import Value

NO_LIMIT = 1 << 60  # cgroup v1 writes a huge number for "none"


class Limits(Value, frozen=True, kw_only=True):
    """What a process here may use, in bytes. None: could not be read, or there is no limit."""

    memory_total: int | None
    memory_available: int | None
    memory_limit: int | None  # of the cgroup
    shared_memory: Disk | None  # /dev/shm: DataLoader workers hand batches over through it
    folder: Disk | None


def read_limits(view: View) -> Limits:
    """Read /proc, the cgroup and the file systems."""
    meminfo = view.text("/proc/meminfo") or ""
    return Limits(
        memory_total=_kilobytes(meminfo, "MemTotal"),
        memory_available=_kilobytes(meminfo, "MemAvailable"),
        memory_limit=_memory_limit(view),
        shared_memory=view.disk("/dev/shm") if view.platform == "linux" else None,  # noqa: S108 - read, not written
        folder=view.disk(view.root.folder),
    )


def cgroup_paths(text: str) -> tuple[str | None, str | None]:
    """Return this process's group in the unified hierarchy and in the memory one, if any."""
    unified = memory = None
    for line in text.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path.startswith("/") or ".." in path.split("/") or len(path) > PATH_LIMIT:
            continue
        if hierarchy == "0" and not controllers:
            unified = path.rstrip("/")
        elif "memory" in controllers.split(","):
            memory = path.rstrip("/")
    return unified, memory


def _memory_limit(view: View) -> int | None:
    unified, memory = cgroup_paths(view.text("/proc/self/cgroup") or "")
    limits = [
        *_limits_up(view, "/sys/fs/cgroup", unified, "memory.max"),
        *_limits_up(view, "/sys/fs/cgroup/memory", memory, "memory.limit_in_bytes"),
    ]
    return min((limit for limit in limits if limit < NO_LIMIT), default=None)


def _limits_up(view: View, mount: str, group: str | None, name: str) -> list[int]:
    """Return the limit of the group and of every group above it."""
    if group is None:
        return []
    found = []
    while True:
        limit = whole_number(view.text(f"{mount}{group}/{name}"))
        found += [limit] if limit is not None else []
        if not group:
            return found
        group = group.rpartition("/")[0]


def _kilobytes(meminfo: str, name: str) -> int | None:
    match = re.search(rf"^{name}:\s+(\d{{1,15}}) kB", meminfo, re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None
