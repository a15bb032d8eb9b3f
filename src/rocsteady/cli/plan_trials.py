"""The trials of a plan: within their time, with a line that tells how far they are."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from rocsteady.cli.redrawn import Redrawn, bar, duration
from rocsteady.cli.screen import layout
from rocsteady.cli.trials import Trials
from rocsteady.planner.trial import Bounds
from rocsteady.planner.tried import Tried
from rocsteady.supervisor.job import Job
from rocsteady.vocabulary import Strategy

SHORT = 0.6  # of the seconds of a trial, for those that only compare
STARTING = 130.0  # seconds for a script to start; a hang before its first step is seen after 100
LEAST = 15.0  # seconds that must be left to begin another
DRAWN_EVERY = 0.5


class PlanTrials:
    """Makes trials as the planner asks for them, as long as there is time."""

    def __init__(self, trials: Trials, *, each: float, within: float) -> None:
        self._trials, self._each, self._within = trials, each, within
        self._title = ""
        self._line = Redrawn(sys.stderr, layout(sys.stderr)[0])

    def say(self, title: str) -> None:
        """Name what is tried next."""
        self._title = title

    def __call__(
        self, job: Job, strategy: Strategy, *, short: bool, remedies: bool, sample_stacks: bool
    ) -> tuple[Tried, ...]:
        """Make one, unless the time is up or the user has stopped it."""
        left = self._within - self._trials.seconds
        if left < LEAST or self._trials.stopped:
            return ()
        wanted = self._each * (SHORT if short else 1.0)
        bounds = Bounds(wanted=wanted, within=min(left, wanted * 3 + STARTING))
        with self._drawn():
            return self._trials.make(
                job, strategy, bounds, remedies=remedies, sample_stacks=sample_stacks
            )

    @contextlib.contextmanager
    def _drawn(self) -> Iterator[None]:
        ended, began = threading.Event(), time.monotonic()

        def draw() -> None:
            while not ended.wait(DRAWN_EVERY):
                used = self._trials.seconds + time.monotonic() - began
                left = duration(max(1.0, self._within - used))
                self._line.draw(f"{bar(used / self._within)} {left} at most  {self._title}")

        drawing = threading.Thread(target=draw, daemon=True)
        drawing.start()
        try:
            yield
        finally:
            ended.set()
            drawing.join()
            self._line.clear()
