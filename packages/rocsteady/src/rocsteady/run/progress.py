"""How far an attempt is: by a pattern of the job, by its processes' pages, or by what it prints."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rocsteady.hangs.counters import Progress
from rocsteady.hangs.values import Heartbeat
from rocsteady.hangs.verdict import Verdict
from rocsteady.run.progress_counts import PRINTED
from rocsteady.run.step_times import StepTimes
from rocsteady.store.values import Sample

ENOUGH, UNLIKE = 2, 0.25  # steps, and the part of them by which two counts of the same may differ


class PrintedCounter:
    """A printed counter beside the steps that a page counts from the start of its process."""

    def __init__(self) -> None:
        self.latest: int | None = None
        self.resets = False  # it began again: a bar of one epoch, say
        self._first: tuple[int, int] | None = None
        self._most = 0  # by which it was ahead

    def update(self, printed: int, made: int) -> None:
        """Take what is printed, and the steps that were made by then, or a little later."""
        if printed == self.latest:
            return
        self.resets = self.resets or (self.latest is not None and printed < self.latest)
        self.latest, self._last = printed, (printed, made)
        self._most = printed - made if self._first is None else max(self._most, printed - made)
        self._first = self._first or self._last

    @property
    def ahead(self) -> int | None:
        """By how much the script's own step is ahead; None if it does not count steps."""
        if self.resets or self._first is None:
            return None
        printed, made = (last - first for first, last in zip(self._first, self._last, strict=True))
        alike = made >= ENOUGH and abs(printed - made) <= max(ENOUGH, made * UNLIKE)
        return self._most if alike else None


class AttemptProgress:
    """The steps of one attempt, as they are seen.

    A page counts from the start of its process: the step that it says it went on from comes on top.
    Where it does not say, a printed counter that grows with the page tells by how much the script's
    own step is ahead of it; else it is what the checkpoint had ``before``, which nothing confirms.
    Where the job names a pattern, ``by_log``, that alone counts: its units are not those of a page.
    """

    def __init__(  # noqa: PLR0913 - each is said by name
        self,
        printed: Callable[[], Progress | None],
        total: int | None,
        *,
        before: int = 0,
        resumed: bool = False,
        step_times: StepTimes | None = None,
        by_log: bool = False,
    ) -> None:
        self.heartbeats: tuple[Heartbeat, ...] = ()
        self._before = before
        self._resumed = resumed or before > 0
        self._counter = PrintedCounter()
        self._by_log = by_log
        self._step_times = step_times or StepTimes()
        self._printed = printed
        self._total = total
        self._first: int | None = None
        self._step = 0  # that was seen last
        self._signs = 0  # of work
        self._worked: tuple[float, float] | None = None  # since when, and when last

    @property
    def step(self) -> int | None:
        """How far it is; None if nothing tells."""
        own = self.own_step
        if own is not None:
            return own
        if self._counting:
            return self._before + self._made
        return self._before or None if self._by_log else self._counter.latest

    @property
    def own_step(self) -> int | None:
        """How far it is by the script's own count; None if nothing confirms it."""
        if not self._counting:
            printed = self._printed()
            unclear = self._resumed and self._counter.resets and not self._by_log
            return printed.n if printed and not unclear else None
        told = [beat.base + beat.step for beat in self._counting if beat.base]
        if told:
            return max(told)
        if not self._resumed or any(beat.total for beat in self._counting):
            return self._made
        ahead = self._counter.ahead
        return None if ahead is None else self._made + ahead

    @property
    def own_counts(self) -> dict[str, int]:
        """What else the script counts, in units that are not known."""
        printed = self._counter.latest
        return {} if printed is None or self._counter.resets else {PRINTED: printed}

    @property
    def _made(self) -> int:
        return max((beat.step for beat in self._counting), default=0)

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

    def seen(
        self, now: float, verdict: Verdict, measured: Mapping[str, float] | None = None
    ) -> Sample:
        """Take a look into account, and return it for the journal."""
        printed = self._printed()
        if printed is not None:
            self._counter.update(printed.n, self._made)
        step = self.step or 0
        if step > self._began_at and self._first is None:
            self._first = step
        if step != self._step:
            self._step = step
            self._step_times.add(time.time(), step)
        self._see_work(now, step)
        told = next((beat.total for beat in self._counting if beat.total), None)
        return Sample(
            at=time.time(),
            step=step,
            verdict=verdict.condition,
            quiet=verdict.quiet,
            began_at=self._began_at,
            total=self._total or told or (printed.total if printed else None),
            seconds_in=self.heartbeats[0].seconds_in if self.heartbeats else {},
            measured=dict(measured or {}),
        )

    def _see_work(self, now: float, step: int) -> None:
        """Note when work goes on that may be lost; also by pages that do not count it."""
        signs = step + sum(beat.step for beat in self.heartbeats if self._by_log)
        if signs > self._began_at and self._worked is None:
            self._worked = (now, now)
        if signs != self._signs and self._worked is not None:
            self._worked = (self._worked[0], now)
        self._signs = signs
