"""How far an attempt is: by a pattern of the job, by its processes' pages, or by what it prints."""

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
    counter prints its own. Where the job names a pattern, ``by_log``, that alone counts: its units
    are not those of a page.
    """

    def __init__(
        self,
        printed: Callable[[], Progress | None],
        total: int | None,
        *,
        before: int = 0,
        marks: Marks | None = None,
        by_log: bool = False,
    ) -> None:
        self.heartbeats: tuple[Heartbeat, ...] = ()
        self._before = before
        self._by_log = by_log
        self._marks = marks or Marks()
        self._printed = printed
        self._total = total
        self._first: int | None = None
        self._step = 0  # that was seen last
        self._signs = 0  # of work
        self._worked: tuple[float, float] | None = None  # since when, and when last

    @property
    def step(self) -> int | None:
        """How far it is; None if nothing tells."""
        if self._counting:
            told = [beat.base + beat.step for beat in self._counting if beat.base]
            return max(told or [self._before + beat.step for beat in self._counting])
        printed = self._printed()
        if printed is None and self._by_log:  # it has not come to its first line
            return self._before or None
        return printed.n if printed else None

    @property
    def _counting(self) -> tuple[Heartbeat, ...]:
        """The pages by which steps are counted."""
        return () if self._by_log else self.heartbeats

    @property
    def _began_at(self) -> int:
        return max((beat.base for beat in self._counting), default=0) or self._before

    @property
    def first_step(self) -> int | None:
        """The first step that was seen."""
        return self._first

    @property
    def seconds(self) -> float:
        """From the first step to the last."""
        return self._worked[1] - self._worked[0] if self._worked else 0.0

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
            self._first = step
        if step != self._step:
            self._step = step
            self._marks.add(time.time(), step)
        self._see_work(now, step)
        printed = self._printed()
        told = next((beat.total for beat in self._counting if beat.total), None)
        return Sample(
            at=time.time(),
            step=step,
            verdict=verdict.condition.value,
            quiet=verdict.quiet,
            total=self._total or told or (printed.total if printed else None),
            seconds_in=self.heartbeats[0].seconds_in if self.heartbeats else {},
        )

    def _see_work(self, now: float, step: int) -> None:
        """Note when work goes on that may be lost; also by pages that do not count it."""
        signs = step + sum(beat.step for beat in self.heartbeats if self._by_log)
        if signs > self._began_at and self._worked is None:
            self._worked = (now, now)
        if signs != self._signs and self._worked is not None:
            self._worked = (self._worked[0], now)
        self._signs = signs
