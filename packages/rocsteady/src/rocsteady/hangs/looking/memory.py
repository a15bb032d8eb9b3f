"""How much memory there is, who holds it, and whether the kernel killed for the lack of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from rocsteady.hangs.looking import cgroups
from rocsteady.hangs.looking.cgroups import ROOT, read
from rocsteady.model import Value

OF_THE_MACHINE = (
    "MemTotal", "MemFree", "MemAvailable", "Cached", "Shmem", "AnonPages", "Dirty", "Writeback",
    "SwapTotal", "SwapFree", "Committed_AS", "CommitLimit",
)  # fmt: skip
OF_A_PROCESS = ("VmHWM", "VmRSS", "RssAnon", "RssFile", "RssShmem", "VmSwap", "VmPeak")
KIB = 1024
# Files of a control group: its limit, what it has used, and what the kernel killed in it.
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control")
VERSION_2 = ("memory.max", "memory.current", "memory.events")
FULL_BELOW = 0.01  # of /dev/shm, free: less is none


class GroupMemory(Value, frozen=True, kw_only=True):
    """What a control group allows and has used. None is "not told" or "no limit"."""

    folder: str
    limit_bytes: int | None
    used_bytes: int | None
    oom_kills: int | None  # processes that the kernel killed in it for memory


class MemoryUse(Value, frozen=True, kw_only=True):
    """The memory of a machine and of a process tree, in bytes."""

    machine: dict[str, int]
    shared_total: int | None  # of /dev/shm, through which loader workers hand over their batches
    shared_free: int | None
    pressure: str  # as the kernel words it; "" where it does not
    groups: tuple[GroupMemory, ...]
    processes: dict[int, dict[str, int]]


def read_memory(pids: Iterable[int], root: Path = ROOT) -> MemoryUse:
    wanted = tuple(pids)
    shared_total, shared_free = _shared(root)
    return MemoryUse(
        machine=_sizes(read(root / "proc/meminfo"), OF_THE_MACHINE),
        shared_total=shared_total,
        shared_free=shared_free,
        pressure=read(root / "proc/pressure/memory").strip(),
        groups=read_groups(wanted, root),
        processes={
            pid: sizes
            for pid in wanted
            if (sizes := _sizes(read(root / f"proc/{pid}/status"), OF_A_PROCESS))
        },
    )


def shared_memory_is_full() -> bool:
    """Return whether nothing is left of /dev/shm."""
    total, free = _shared(ROOT)
    return total is not None and free is not None and free < FULL_BELOW * total


def read_groups(pids: Iterable[int], root: Path = ROOT) -> tuple[GroupMemory, ...]:
    found: dict[Path, GroupMemory] = {}
    for pid in pids:
        groups = cgroups.folders(pid, root)
        if "memory" in groups:  # version 1
            found.setdefault(groups["memory"], _group(groups["memory"]))
        elif cgroups.UNIFIED in groups:
            own = groups[cgroups.UNIFIED]  # one that was made for a run may not count memory
            counting = (it for it in (own, *own.parents) if (it / "memory.events").exists())
            folder = next(counting, own)
            found.setdefault(folder, _group(folder))
    return tuple(found.values())


def oom_kills_since(before: Iterable[GroupMemory]) -> int | None:
    """Count the processes that the kernel killed in these groups since; None if it does not say."""
    told = []
    for group in before:
        now = _group(Path(group.folder)).oom_kills
        if now is not None and group.oom_kills is not None:
            told.append(max(0, now - group.oom_kills))
    return sum(told) if told else None


def _group(folder: Path) -> GroupMemory:
    limit_file, used_file, kills_file = VERSION_1 if (folder / VERSION_1[2]).exists() else VERSION_2
    limit = _number(read(folder / limit_file))
    return GroupMemory(
        folder=str(folder),
        limit_bytes=limit if limit is not None and limit < 1 << 62 else None,  # as good as none
        used_bytes=_number(read(folder / used_file)),
        oom_kills=_counted(read(folder / kills_file), "oom_kill"),
    )


def _shared(root: Path) -> tuple[int | None, int | None]:
    try:
        usage = shutil.disk_usage(root / "dev/shm")
    except OSError:
        return None, None
    return usage.total, usage.free


def _sizes(text: str, names: tuple[str, ...]) -> dict[str, int]:
    pairs = (line.partition(":") for line in text.splitlines())
    told = {name: _number(value.removesuffix("kB").strip()) for name, _, value in pairs}
    return {name: size * KIB for name in names if (size := told.get(name)) is not None}


def _counted(text: str, name: str) -> int | None:
    words = (line.split() for line in text.splitlines())
    return next((_number(pair[1]) for pair in words if len(pair) > 1 and pair[0] == name), None)


def _number(text: str) -> int | None:
    plain = text.strip()
    return int(plain) if plain.isdecimal() else None
