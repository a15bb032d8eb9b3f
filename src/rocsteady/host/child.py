"""Start a command, carry its streams, end its whole tree."""

from __future__ import annotations

from rocsteady.host.child_end import DETACHED, OURS, Exit, How, Stopping, StopResult, TerminalUse
from rocsteady.host.posix.child import Child, start_child

__all__ = [
    "DETACHED",
    "OURS",
    "Child",
    "Exit",
    "How",
    "StopResult",
    "Stopping",
    "TerminalUse",
    "start_child",
]
