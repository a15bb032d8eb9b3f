"""MIOpen compiles kernels at first use; a cache that is off or lost makes it do so every time."""

from __future__ import annotations

from types import MappingProxyType

from rocsteady.doctor.condition_match import CannotTell, Seen
from rocsteady.doctor.facts import Facts
from rocsteady.knowledge.reader import Knowledge
from rocsteady.machine.caches import Cache
from rocsteady.machine.machine import Machine

NETWORK = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "lustre",
    "beegfs",
    "gpfs",
    "fuse.sshfs",
    "9p",
    "afs",
    "ceph",
)
ON = ("1", "true", "on", "yes", "enable", "enabled")  # in any case, as MIOpen reads it
KEPT = MappingProxyType(
    {
        "kernel cache": "the cache of compiled kernels",
        "user database": "the database of tuning results",
    }
)
FORGOTTEN = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - looked for, not written to


def check(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    """Return each reason why what MIOpen compiles would not be there next time."""
    del knowledge
    if not facts.variables_known:
        raise CannotTell("variable:MIOPEN_DISABLE_CACHE")
    values = map(str, facts.values("variable:MIOPEN_DISABLE_CACHE"))
    off = "keeps no compiled kernel"
    seen = [f"MIOPEN_DISABLE_CACHE={value} {off}" for value in values if value.lower() in ON]
    seen += [
        f"{KEPT[cache.name]} in {cache.path} {trouble}"
        for cache in machine.caches
        if (trouble := _trouble(cache))
    ]
    return tuple(seen)


def _trouble(cache: Cache) -> str:
    if any(cache.path == place or cache.path.startswith(f"{place}/") for place in FORGOTTEN):
        return "does not survive a reboot"
    if cache.disk is None:
        return ""
    if not cache.disk.writable:
        return "cannot be written"
    if cache.disk.filesystem in NETWORK:
        return f"lies on a network file system ({cache.disk.filesystem})"
    return ""
