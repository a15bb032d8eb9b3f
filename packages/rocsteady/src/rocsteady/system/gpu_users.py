"""Which processes hold a GPU, so that a reset is proposed only if it takes nothing from anybody.

KFD's list names everyone who computes, whoever they belong to. Who draws, or has only opened the
device, is seen by descriptors, which may be read of one's own processes only, or as root.
Unconfirmed on AMD hardware.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from rocsteady.system import procfs

KFD_PROCESSES = Path("/sys/class/kfd/kfd/proc")
POLL_EVERY = 0.1  # seconds
_DEVICE = re.compile(r"/dev/(?:kfd|dri/(?:renderD|card)\d+)")
_ADDRESS = re.compile(r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b")


class GpuUsers(NamedTuple):
    holders: tuple[tuple[int, str], ...]  # process, name
    seen: int  # processes whose descriptors were looked at
    unseen: int  # those that may not be looked into


def find_gpu_users(proc: Path = Path(procfs.PROC), kfd: Path = KFD_PROCESSES) -> GpuUsers:
    """Look at every process of this machine. A container sees its own only."""
    holders = {int(name) for name in _names(kfd) if name.isdecimal()}
    seen = unseen = 0
    for pid in (int(name) for name in _names(proc) if name.isdecimal()):
        try:
            descriptors = [*(proc / str(pid) / "fd").iterdir()]
        except PermissionError:
            unseen += 1
            continue
        except OSError:
            continue  # it has ended
        seen += 1
        if any(_DEVICE.fullmatch(_target(each)) for each in descriptors):
            holders.add(pid)
    named = tuple((pid, _name(proc, pid)) for pid in sorted(holders))
    return GpuUsers(named, seen, unseen)


def reset_advice(users: GpuUsers, trouble: str) -> str:
    """Return how to reset the GPU that the kernel complained about, or who is in the way."""
    if users.holders:
        pid, name = users.holders[0]
        more = f" and {len(users.holders) - 1} more" if len(users.holders) > 1 else ""
        return (
            f"A reset would end what process {pid} ({name}){more} does with a GPU: end that first,"
            " or reboot"
        )
    found = _ADDRESS.search(trouble)
    command = f"sudo amd-smi reset --gpureset --gpu {found[0] if found else '<number>'}"
    if users.unseen:
        return (
            f"No process computes on a GPU, but {users.unseen} processes of others could not be"
            " looked into. If `sudo fuser -v /dev/kfd /dev/dri/*` prints nothing, reset the GPU:"
            f" {command}"
        )
    return f"No process holds a GPU ({users.seen} looked at). Reset it: {command}"


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""  # closed meanwhile


def _name(proc: Path, pid: int) -> str:
    try:
        return (proc / str(pid) / "comm").read_text(errors="replace").strip() or "?"
    except OSError:
        return "of another container"


def held_by_others(pids: Collection[int], processes: Path = KFD_PROCESSES) -> int:
    """Return the bytes of device memory, of the fullest GPU, that other processes hold."""
    held: dict[str, int] = {}
    try:
        for file in processes.glob("*/vram_*"):
            if not file.parent.name.isdecimal() or int(file.parent.name) in pids:
                continue
            held[file.name] = held.get(file.name, 0) + int(file.read_text())
    except (OSError, ValueError):
        return 0
    return max(held.values(), default=0)


def wait_until_free(
    pids: tuple[int, ...], within: timedelta, listed: Path = KFD_PROCESSES
) -> tuple[int, ...]:
    """Return the processes that KFD still lists at the deadline; none is good."""
    deadline = time.monotonic() + within.total_seconds()
    while True:
        left = tuple(pid for pid in pids if (listed / str(pid)).exists())
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(POLL_EVERY)
