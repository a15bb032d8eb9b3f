"""Start a command, carry its streams, end its whole tree: one door for every system."""

from __future__ import annotations

import sys

from rocsteady.host.child_end import DETACHED, OURS, Exit, How, Stopping, StopResult, TerminalUse

if sys.platform == "win32":
    from rocsteady.host.windows_child import Child, start_child
else:
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
