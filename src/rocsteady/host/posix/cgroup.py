"""A cgroup (v2) of our own for a run, which the kernel can kill at once, where we may make one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def make_cgroup(run_id: str, proc: Path = Path("/proc/self")) -> Path | None:
    """Make it below the one that we are in. None where there is no v2, or it is not ours to use."""
    above = _ours(proc)
    if above is None:
        return None
    path = above / f"rocsteady-{run_id}-{os.getpid()}"
    try:
        path.mkdir()
    except OSError:
        return None
    if os.access(path / "cgroup.kill", os.W_OK) and os.access(path / "cgroup.procs", os.W_OK):
        return path
    remove_cgroup(path)
    return None


def cgroups_of(start: str, proc: Path = Path("/proc/self")) -> list[Path]:
    """Find those that were made below ours for runs whose id begins so."""
    above = _ours(proc)
    try:
        found = list(above.iterdir()) if above else []
    except OSError:
        return []
    return [path for path in found if path.name.startswith(f"rocsteady-{start}")]


def remove_cgroup(path: Path) -> None:
    """Remove it; one that still has a process, or is gone already, is left alone."""
    with contextlib.suppress(OSError):
        path.rmdir()


def _ours(proc: Path) -> Path | None:
    """Return the folder of the cgroup that we are in; None where there is no v2."""
    try:
        ours = [
            line.removeprefix("0::/")
            for line in (proc / "cgroup").read_text().splitlines()
            if line.startswith("0::/")
        ]
        mounts = [line.split(" ") for line in (proc / "mountinfo").read_text().splitlines()]
    except OSError:
        return None
    roots = [Path(fields[4]) for fields in mounts if _kind(fields) == "cgroup2"]
    return roots[0] / ours[0] if ours and roots else None


def _kind(fields: list[str]) -> str:
    return fields[fields.index("-") + 1] if "-" in fields else ""
