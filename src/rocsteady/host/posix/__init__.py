"""Linux and WSL2: a session for each child, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TypedDict

assert sys.platform != "win32"


class Session(TypedDict):
    """How ``Popen`` is told to give a child a session of its own."""

    start_new_session: bool


OWN_SESSION: Session = {"start_new_session": True}


def kill_session(leader: int) -> None:
    """Kill the group of a child that was not yet waited for. One already gone is fine."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Tell whether the child is over, and leave its number taken so that nobody else gets it."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
