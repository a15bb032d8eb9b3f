"""The control groups that a process is in, of either version, as folders."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

MOUNT = "sys/fs/cgroup"
UNIFIED = ""  # the key of version 2
ROOT = Path("/")


def folders(pid: int, root: Path = ROOT) -> dict[str, Path]:
    """Return the folder of each controller of version 1, and under "" that of version 2."""
    return _folders(read(root / f"proc/{pid}/cgroup"), root)


@lru_cache(maxsize=100)
def _folders(groups: str, root: Path) -> dict[str, Path]:
    found, both = {}, (root / MOUNT / "unified").is_dir()
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        mount = root / MOUNT / (controllers if number != "0" else "unified" if both else "")
        inside = mount / path.lstrip("/")
        # In a container the path is often the host's, and what is mounted is our own group.
        folder = inside if ".." not in path and inside.is_dir() else mount
        for controller in controllers.split(","):
            found[controller] = folder
    return found


def is_frozen(pid: int, root: Path = ROOT) -> bool:
    """Return whether a process is held still by its control group, as ``docker pause`` does."""
    groups = folders(pid, root)
    if UNIFIED in groups and "frozen 1" in read(groups[UNIFIED] / "cgroup.events"):
        return True
    return "freezer" in groups and read(groups["freezer"] / "freezer.state").startswith("FR")


def read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
