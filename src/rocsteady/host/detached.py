"""Starts a program that outlives us and our terminal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocsteady.vocabulary import Value

if sys.platform == "win32":
    from rocsteady.host import windows as system
else:
    from rocsteady.host import posix as system


class Detached(Value, frozen=True, kw_only=True):
    """What was started, and what may still end it."""

    pid: int
    how: str


def start_detached(
    command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> Detached:
    """Start it in a scope of the user's service manager, or say that there is none."""
    manager = Path(environment.get("XDG_RUNTIME_DIR", "")) / "systemd" / "private"
    runner = shutil.which("systemd-run")
    how = (
        "in a session of its own; there is no user service manager here, so if logging out ends"
        " your processes it ends this one too"
    )
    words = list(command)
    if runner and environment.get("XDG_RUNTIME_DIR") and manager.exists():
        words = [runner, "--user", "--scope", "--quiet", "--collect", "--", *words]
        how = "in a scope of your service manager, which logging out does not end"
    with open(os.devnull, "r+b") as nothing:  # noqa: PTH123 - a device
        child = subprocess.Popen(
            words,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            env=dict(environment),
            cwd=folder,
            **system.OWN_SESSION,
        )
    child.returncode = 0  # it is not ours to wait for
    return Detached(pid=child.pid, how=how)
