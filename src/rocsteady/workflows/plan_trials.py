"""The trials of a plan: within their time, with a line that tells how far they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

from rocsteady.job.values import Job
from rocsteady.model import Strategy
from rocsteady.planner.planner import TrialKind
from rocsteady.planner.trial import SHARE, Bounds
from rocsteady.planner.trial_result import TrialResult
from rocsteady.workflows.trials import Trials

SHORT = 0.6  # of the seconds of a trial, for those that only compare
STARTING = 130.0  # seconds for a script to start; a hang before its first step is seen after 100
LEAST = 15.0  # seconds that must be left to begin another


class TrialBounds(NamedTuple):
    """How long the trials of a plan may take."""

    each: float  # seconds
    within: float  # seconds, all together
    left: int | None  # steps of the job, if known
    proportional: bool  # all together no longer than a share of the job


class TrialProgress(NamedTuple):
    """How far the trials are."""

    share: float  # of the time that there is
    left: float  # seconds, at most
    title: str  # what is being tried


Show = Callable[[Callable[[float], TrialProgress]], AbstractContextManager[None]]


class PlanTrials:
    """Runs trials as the planner asks for them, as long as there is time."""

    def __init__(self, trials: Trials, bounds: TrialBounds, show: Show) -> None:
        self._trials, self._each, self._within = trials, bounds.each, bounds.within
        self._left, self._proportional = bounds.left, bounds.proportional
        self._title, self._show = "", show

    def say(self, title: str) -> None:
        """Name what is tried next."""
        self._title = title

    def run(self, job: Job, strategy: Strategy, kind: TrialKind) -> tuple[TrialResult, ...]:
        """Run a trial, unless the time is up or the user has stopped it."""
        left = self._within - self._trials.seconds
        if left < LEAST or self._trials.stopped:
            return ()
        wanted = self._each * (SHORT if kind is TrialKind.COMPARISON else 1.0)
        bounds = Bounds(
            wanted=wanted,
            within=min(left, wanted * 3 + STARTING),
            in_proportion=self._proportional,
            left=self._left,
        )
        with self._show(self._progress):
            stacks = kind is TrialKind.WITH_STACKS
            results = self._trials.run(job, strategy, bounds, remedies=True, sample_stacks=stacks)
        if self._proportional:
            self._within = min(self._within, *self._shares(results))
        return results

    def _shares(self, results: tuple[TrialResult, ...]) -> Iterator[float]:
        """Yield what all trials may take together, once it is known how long the job takes."""
        yield self._within
        for result in results:
            left = self._left or result.total
            if result.pace is not None and left:
                yield SHARE * left / result.pace.rate

    def _progress(self, elapsed: float) -> TrialProgress:
        used = self._trials.seconds + elapsed
        left = max(1.0, self._within - used)
        return TrialProgress(share=used / self._within, left=left, title=self._title)
