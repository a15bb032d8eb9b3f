"""When to save: as often as loses least, by what a save costs and how often this training fails."""

from __future__ import annotations

import time
from typing import Any

from rocsteady_train.goodput import best_interval, between_failures
from rocsteady_train.inside.wire import BETWEEN_FAILURES, SAVE_AFTER
from rocsteady_train.loop import supervisor_link

PRIOR = 4 * 3600.0  # seconds between failures, as long as nothing is known
YOUNG = 600.0  # seconds, and as many as it has trained: a training may well fail within that
FIRST = 2.0  # seconds until the first save, which shows what one costs
LEAST = 2.0  # seconds between two saves
STALLED = 0.01  # of the time: saves never make the training wait longer
REST = 2.0  # times the time that writing takes: the disk is also there for others


class Interval:
    """Knows when the next save is due."""

    def __init__(self, lose_at_most: float) -> None:
        self._lose_at_most = lose_at_most
        self._prior = supervisor_link.number(BETWEEN_FAILURES) or PRIOR
        self._failures = 0
        self._before = 0.0  # seconds of training in earlier processes
        self._began = self._saved = time.monotonic()
        self._stall = self._writing = 0.0

    @property
    def seconds(self) -> float:
        """Seconds between two saves."""
        if not self._stall:
            return min(FIRST, self._lose_at_most)
        trained = self._before + time.monotonic() - self._began
        prior = min(self._prior, YOUNG + trained)
        between = between_failures(trained, self._failures, prior=prior)
        best = best_interval(self._stall, between)
        return min(
            max(best, LEAST, self._stall / STALLED, REST * self._writing), self._lose_at_most
        )

    def due(self) -> bool:
        """Return whether it is time."""
        return time.monotonic() - self._saved >= self.seconds

    def saved(self, stall: float, writing: float) -> None:
        """Take a save into account, and what the one before it took to write."""
        self._saved = time.monotonic()
        self._stall = max(stall, 1e-6)
        self._writing = writing

    def state(self) -> dict[str, Any]:
        """Return what the next process should know."""
        trained = self._before + time.monotonic() - self._began
        return {
            "failures": self._failures,
            "trained": trained,
            "stall": self._stall,
            "writing": self._writing,
        }

    def interrupted(self, state: dict[str, Any]) -> None:
        """Take up what an earlier process knew; that it ended before the work did is a failure."""
        self._failures = state["failures"] + 1
        self._before = state["trained"]
        self._stall = state.get("stall", 0.0)  # not in checkpoints of older versions
        self._writing = state.get("writing", 0.0)


class Early:
    """Saves that the supervisor wants early, since others from this checkpoint did not get so far.

    Each comes after twice as many steps as the one before it, so that they soon cost nothing.
    """

    def __init__(self, step: int) -> None:
        self._after = int(supervisor_link.number(SAVE_AFTER) or 0)
        self._next = step + self._after

    def due(self, step: int) -> bool:
        """Return whether it is time."""
        return self._after > 0 and step >= self._next

    def saved(self, step: int) -> None:
        """Take a save into account."""
        if self.due(step):
            self._next += self._after
            self._after *= 2
