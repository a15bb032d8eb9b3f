"""A run that is done and does not exit: that is a success, and must still not be cut short.

An exit handler may upload for minutes. Only when nothing in the tree uses the processor or moves a
byte for a while is it ended; one that burns the processor gets longer.
"""

from __future__ import annotations

from datetime import timedelta

from rocsteady.evidence.values import Look
from rocsteady.vocabulary import Value

STILL_CPU = 0.02  # seconds of processor between two looks that count as none
STILL_BYTES = 4096


class Leaving(Value, frozen=True, kw_only=True):
    """What the tree did since the script's own code was done."""

    since: float | None = None  # when it was first seen done
    still_since: float | None = None
    cpu: float = 0.0
    bytes: int = 0

    def seen(self, look: Look) -> Leaving:
        """Take a look into account."""
        cpu = sum(thread.cpu for process in look.processes for thread in process.threads)
        moved = sum(process.read_bytes + process.written_bytes for process in look.processes)
        still = (
            self.since is not None
            and cpu - self.cpu <= STILL_CPU
            and moved - self.bytes <= STILL_BYTES
        )
        return Leaving(
            since=look.at if self.since is None else self.since,
            still_since=(self.still_since or look.at) if still else None,
            cpu=cpu,
            bytes=moved,
        )

    def too_long(self, now: float, still: timedelta, busy: timedelta) -> bool:
        """Tell whether it will not leave by itself."""
        if self.since is None:
            return False
        if self.still_since is not None and now - self.still_since >= still.total_seconds():
            return True
        return now - self.since >= busy.total_seconds()
