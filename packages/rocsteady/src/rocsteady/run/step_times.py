"""When which step was reached, over all attempts of a run, so that a checkpoint's step is known."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from rocsteady.store.values import Bucket

SET_BACK = 60.0  # seconds by which a clock goes back that was set
MOST = 20_000  # marks; every second one is forgotten when there are more


class StepTimes:
    """Moments by the wall clock, and the step of each."""

    def __init__(self, earlier: Iterable[Bucket] = ()) -> None:
        self._at: list[float] = []
        self._steps: list[int] = []
        self._latest = 0  # step
        self._apart = 0.0  # seconds, at least, between two marks
        for bucket in earlier:
            self.add(bucket.first_progress or bucket.start, bucket.first_step)
            self.add(bucket.last_progress or bucket.start, bucket.last_step)

    def add(self, at: float, step: int) -> None:
        """Take a look into account."""
        self._latest = step
        if self._at and at < self._at[-1] - SET_BACK:  # what was before it cannot be compared
            self._at.clear()
            self._steps.clear()
        if self._steps and (step == self._steps[-1] or at < self._at[-1] + self._apart):
            return
        self._at.append(at)
        self._steps.append(step)
        if len(self._at) > MOST:
            del self._at[1:-1:2], self._steps[1:-1:2]
            self._apart = (self._at[-1] - self._at[0]) / len(self._at)

    def since(self, when: float) -> tuple[tuple[float, int], ...]:
        """Return the marks from a moment on."""
        first = bisect_left(self._at, when)
        return tuple(zip(self._at[first:], self._steps[first:], strict=False))

    def step_at(self, when: float) -> tuple[int, int]:
        """Return the step that a file written at a moment has in it: at least, and at most."""
        index = bisect_left(self._at, when)
        most = self._steps[index] if index < len(self._steps) else self._latest
        if not 0 < index < len(self._steps) or most < self._steps[index - 1]:
            return most, most
        return self._steps[index - 1], most
