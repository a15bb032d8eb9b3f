"""Trials of the user's own script for ``plan`` and ``init``: over its folder, and no traces."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from rocsteady.errors import NotRecordedError, RocsteadyError
from rocsteady.model import Strategy
from rocsteady.plan.planner import TrialKind
from rocsteady.plan.sandbox.folder_tree import FolderTree, differences, read_folder_tree
from rocsteady.plan.sandbox.scratch import remove
from rocsteady.plan.sandbox_run import SandboxRun, lay_out_scratch, make_root, where
from rocsteady.plan.saved_plan import home
from rocsteady.plan.trial import SHARE, Bounds, Measurement
from rocsteady.plan.trial_result import TrialResult, tried
from rocsteady.run.announcer import Announcer
from rocsteady.run.context import Services
from rocsteady.run.injection import claim
from rocsteady.run.job.values import Job
from rocsteady.run.options import RunOptions, Timing
from rocsteady.run.startup import Startup
from rocsteady.run.strategy_history import strategies_of
from rocsteady.store.journal import Journal
from rocsteady.store.location import find_place
from rocsteady.store.machine_history import Memory
from rocsteady.system.child_end import DETACHED

SHOWN = 5  # paths that changed
NAME = "trial"  # of the run; the next ones are trial-2, trial-3
SHORT = 0.6  # of the seconds of a trial, for those that only compare
STARTING = 130.0  # seconds for a script to start; a hang before its first step is seen after 100
LEAST = 15.0  # seconds that must be left to begin another


class Trials:
    """Runs trials of one folder's script, and removes what they wrote."""

    def __init__(
        self,
        folder: Path,
        memory: Memory,
        say: Callable[[str], None],
        *,
        retry_crashed: bool = False,
    ) -> None:
        self.folder, self._memory, self._retry_crashed = folder, memory, retry_crashed
        self._say = say
        self._root = _root(folder)
        self.seconds = 0.0  # that the trials took
        self.count = 0
        self.stopped = False  # by the user
        self._before: FolderTree | None = None
        self.changes: tuple[str, ...] | None = ()  # of the user's folder, as found at the end
        self._trial: Measurement | None = None  # the last one

    def __enter__(self) -> Trials:  # noqa: PYI034 - Self is of Python 3.11
        """Make a place for them. What an earlier one was doing when the machine died is kept."""
        look_back(self.folder, self._memory)
        make_root(
            self._root,
            self.folder,
            inside="this folder itself; change to the script's folder first",
            busy="another command is running trials in it",
        )
        self._journal = Journal(find_place(self._root))
        claim(self._root, self._journal.here.process)
        self._before = read_folder_tree(self.folder)
        return self

    def __exit__(self, *_: object) -> None:
        self.changes = self.changed()
        self._journal.close()
        remove(self._root)

    @property
    def measured(self) -> float:
        """Seconds of steps that the last trial has measured so far."""
        paces = list(self._trial.paces.values()) if self._trial else []
        return max((pace.seconds for pace in paces), default=0.0)

    def changed(self) -> tuple[str, ...] | None:
        """Return the paths of the user's folder that have changed; None: cannot be told."""
        after, before = read_folder_tree(self.folder), self._before
        whole = before is not None and before.whole and after.whole
        return differences(before, after) if whole and before is not None else None

    def changed_in_words(self) -> str:
        """Say what all trials changed in the user's folder, also if they were stopped."""
        if self.changes is None:
            return "this folder has too many files to check whether any was changed"
        if not self.changes:
            return "nothing in this folder was changed"
        more = len(self.changes) - SHOWN
        named = ", ".join(self.changes[:SHOWN]) + (f" and {more} more" if more > 0 else "")
        return f"files in this folder were changed: {named}"

    def run(
        self,
        job: Job,
        strategy: Strategy,
        bounds: Bounds,
        *,
        remedies: bool = False,
        sample_stacks: bool = False,
    ) -> tuple[TrialResult, ...]:
        """Run the job for a while; return what came of each attempt, the last one last."""
        self.count += 1
        name = NAME if self.count == 1 else f"{NAME}-{self.count}"
        began = time.monotonic()
        place = self._root / name
        place.mkdir()
        before = self._before or read_folder_tree(self.folder)
        scratch, environment, _ = lay_out_scratch(
            self.folder, place, before, instead=", or plan without trials: --no-trials"
        )
        if self.count == 1:
            for line in where(scratch, NAME):
                self._say(line)
        options = RunOptions(
            max_attempts=None if remedies else 1,
            no_remedies=not remedies,
            from_scratch=True,
            retry_crashed=self._retry_crashed,
            strategy=strategy,
            timing=Timing(quick_crash=timedelta(0)),
        )
        self._trial = trial = Measurement(bounds, scratch, sample_stacks=sample_stacks)
        sandbox_run = SandboxRun(
            name=name,
            scratch=scratch,
            environment=environment,
            terminal=DETACHED,
            options=options,
            journal=self._journal,
            memory=self._memory,
            quiet=True,
        )
        try:
            supervisor, _ = sandbox_run.carry_out(job, trial)
        except NotRecordedError as error:
            raise RocsteadyError(f"{error}. Nothing was started") from None
        self.seconds += time.monotonic() - began
        seen = supervisor.observed
        self.stopped = self.stopped or seen.stopped_by_user
        story = self._journal.story(name)
        results = tried(story, trial, is_over=seen.is_over, resumes=supervisor.can_resume)
        remove(place)
        return results


def look_back(folder: Path, memory: Memory) -> None:
    """Remember what was being tried when the machine went down, before it is removed."""
    if not _root(folder).exists():
        return
    journal = Journal(find_place(_root(folder)))
    announcer = Announcer()
    try:
        services = Services(journal=journal, announcer=announcer, memory=memory)
        strategies = strategies_of(RunOptions(), services, ("",), folder)
        Startup(services, strategies, folder).report_unfinished()
    finally:
        announcer.close()
        journal.close()
    memory.flush()


def _root(folder: Path) -> Path:
    return home(folder) / "trials"


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
