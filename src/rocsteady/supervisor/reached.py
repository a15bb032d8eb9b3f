"""How far an attempt is: by the pages of its processes, or without one by what it prints."""

from __future__ import annotations

import time
from collections.abc import Callable

from rocsteady.evidence.counters import Progress
from rocsteady.evidence.values import Heartbeat
from rocsteady.journal.values import Sample
from rocsteady.pulse.verdict import Verdict
from rocsteady.supervisor.marks import Marks


class Reached:
    """The steps of one attempt, as they are seen.

    A page counts from the start of its process: the step that it says it went on from comes on top,
    or where it does not say, what the checkpoint had ``before``, about. A script that prints a
    counter prints its own.
    """

    def __init__(
        self,
        printed: Callable[[], Progress | None],
        total: int | None,
        *,
        before: int = 0,
        marks: Marks | None = None,
    ) -> None:
        self.heartbeats: tuple[Heartbeat, ...] = ()
        self._before = before
        self._marks = marks or Marks()
        self._printed = printed
        self._total = total
        self._first: tuple[int, float] | None = None  # the first step, and when it was seen
        self._moved = (0, 0.0)  # the last step that was new, and when

    @property
    def step(self) -> int | None:
        """How far it is; None if nothing tells."""
        if self.heartbeats:
            told = [beat.base + beat.step for beat in self.heartbeats if beat.base]
            return max(told or [self._before + beat.step for beat in self.heartbeats])
        printed = self._printed()
        return printed.n if printed else None

    @property
    def _began_at(self) -> int:
        return max((beat.base for beat in self.heartbeats), default=0) or self._before

    @property
    def first_step(self) -> int | None:
        """The first step that was seen."""
        return self._first[0] if self._first else None

    @property
    def seconds(self) -> float:
        """From the first step to the last."""
        return self._moved[1] - self._first[1] if self._first else 0.0

    @property
    def wrote_checkpoint(self) -> bool:
        """Tell whether it wrote one, or may have: who has no page cannot be seen to."""
        if not self.heartbeats:
            return bool(self.step)
        return any(beat.seconds_in.get("checkpoint") for beat in self.heartbeats)

    def seen(self, now: float, verdict: Verdict) -> Sample:
        """Take a look into account, and return it for the journal."""
        step = self.step or 0
        if step > self._began_at and self._first is None:
            self._first = (step, now)
        if step != self._moved[0]:
            self._moved = (step, now)
            self._marks.add(time.time(), step)
        printed = self._printed()
        told = next((beat.total for beat in self.heartbeats if beat.total), None)
        return Sample(
            at=time.time(),
            step=step,
            verdict=verdict.condition.value,
            quiet=verdict.quiet,
            total=self._total or told or (printed.total if printed else None),
            seconds_in=self.heartbeats[0].seconds_in if self.heartbeats else {},
        )
