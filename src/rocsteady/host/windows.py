"""Native Windows: a process group for each child, and its end. Unconfirmed: never run there."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TypedDict


class Session(TypedDict):
    """How ``Popen`` is told to give a child a group of its own."""

    creationflags: int


OWN_SESSION: Session = {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}


def kill_session(leader: int) -> None:
    """End the child itself; on Windows this does not reach what it started."""
    try:
        os.kill(leader, signal.SIGTERM)  # TerminateProcess
    except OSError:  # it is gone, which Windows says in several ways
        return


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Tell whether the child is over; its number stays taken as long as ``child`` is held."""
    return child.poll() is not None
