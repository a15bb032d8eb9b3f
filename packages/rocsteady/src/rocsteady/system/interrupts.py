"""The interrupts (^C) of one attempt, and which of them ask for its end.

Each of them reaches the script as it would without us. Only a second one soon after a first that
the script ignored is meant for us too, and none that was typed at the prompt of a debugger or of an
interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

TWICE_WITHIN = 2.0  # seconds between two interrupts that together ask for the end
SETTLE = 1.0  # seconds for the script to act on the second one
ANSWER = 2.0  # seconds in which an end is the answer to an interrupt at a prompt


@dataclass(frozen=True, kw_only=True)
class Interrupt:
    at: float  # seconds of the monotonic clock
    prompt: bool = False  # somebody in the foreground was waiting for keys
    taken: Mapping[int, str] = field(default_factory=dict)  # how each process takes it, by pid


class Interrupts:
    """All of one attempt. Filled by one thread at a time, read by another."""

    def __init__(self) -> None:
        self._all: list[Interrupt] = []

    def __len__(self) -> int:
        return len(self._all)

    def add(self, interrupt: Interrupt) -> None:
        self._all.append(interrupt)

    def stopped_it(self, ended: float, *, by_interrupt: bool) -> bool:
        """Tell whether an end at this moment is what the user wanted."""
        if not self._all:
            return False
        meant = any(not interrupt.prompt for interrupt in self._all)
        return meant or by_interrupt or ended - self._all[-1].at <= ANSWER

    def ask_for_the_end(self, now: float) -> bool:
        """Tell whether the last two do: the script ignored the first, and did not end since."""
        if len(self._all) < 2:  # noqa: PLR2004 - one is the script's alone
            return False
        first, second = self._all[-2:]
        soon = second.at - first.at <= TWICE_WITHIN and now - second.at >= SETTLE
        reacted = any(second.taken.get(pid, how) != how for pid, how in first.taken.items())
        return soon and not (first.prompt or second.prompt or reacted)

    def answered(self) -> None:
        """Take the last one as meant for whoever waits at a prompt now."""
        self._all[-1] = replace(self._all[-1], prompt=True)
