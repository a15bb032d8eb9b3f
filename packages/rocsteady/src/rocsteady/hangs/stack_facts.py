"""What must be known of the world to read a stack; `knowledge/waits.py` has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rocsteady.doctor.knowledge.waits import EndedBy


class KnownWaits(Protocol):
    """Names of functions and threads. Frames are as in `evidence/values.py`, innermost first."""

    def device(self, native: Sequence[str]) -> int | None:
        """Return the place of the innermost function that waits for a device, if there is one."""

    def helper(self, name: str, frames: Sequence[str], native: Sequence[str]) -> bool:
        """Tell whether a thread only serves: it never decides whether the training goes on."""

    def collective(self, frames: Sequence[str], native: Sequence[str]) -> bool:
        """Tell whether a thread waits for the other ranks."""

    def loop(self, frames: Sequence[str], native: Sequence[str]) -> tuple[EndedBy, float] | None:
        """Recognise a wait that its own loop repeats for ever; return who ends it, and its period.

        The period is the longest timeout of the loop itself, in seconds. A longer one is not its
        own: it was given by the user.
        """

    def person(self, frames: Sequence[str]) -> bool:
        """Tell whether a thread waits for a person at a debugger."""
