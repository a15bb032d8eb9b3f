"""Starts a program that outlives us and our terminal, and asks such a program to end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rocsteady.system.atomic_file import open_own

ITSELF = (sys.executable, "-P", "-m", "rocsteady")  # the working folder is somebody's project


class Detached(NamedTuple):
    child: subprocess.Popen[bytes]
    survives_logout: bool  # else that depends on the system's settings


def start_session(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    output: Path,
) -> subprocess.Popen[bytes]:
    """Start a program in its own session, with all that it prints added to a file of the user's."""
    descriptor = open_own(output, os.O_WRONLY | os.O_APPEND)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)


def start_detached(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, output: Path
) -> Detached:
    """Start it in a scope of the user's service manager, if there is one."""
    manager = Path(environment.get("XDG_RUNTIME_DIR", "")) / "systemd" / "private"
    runner = shutil.which("systemd-run")
    words = list(command)
    managed = bool(runner and environment.get("XDG_RUNTIME_DIR") and manager.exists())
    if runner and managed:
        words = [runner, "--user", "--scope", "--quiet", "--collect", "--", *words]
    child = start_session(words, environment, folder, output)
    child.returncode = 0  # it is not ours to wait for
    return Detached(child, survives_logout=managed)


def ask_to_end(pid: int, is_it: Callable[[], bool]) -> bool:
    """Send SIGTERM to a process, if it is still the one that is meant.

    It is held on to, so that nobody can get its number between the question and the signal.
    """
    try:
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_it():
            return False
        signal.pidfd_send_signal(held, signal.SIGTERM)
    except ProcessLookupError:
        return False
    finally:
        os.close(held)
    return True
