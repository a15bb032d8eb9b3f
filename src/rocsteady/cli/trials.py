"""Trials of the user's own script for ``plan`` and ``init``: over its folder, and no traces."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from rocsteady.cli.job_start import course_for, patience_for
from rocsteady.cli.sandbox_run import job_in, lay_out_scratch, make_root, say_where
from rocsteady.cli.saved_plan import home
from rocsteady.errors import NotRecordedError, RocsteadyError
from rocsteady.host.child import DETACHED
from rocsteady.job.values import Job
from rocsteady.journal.journal import Journal
from rocsteady.journal.memory import Memory
from rocsteady.journal.place import find_place
from rocsteady.knowledge.reader import load_knowledge
from rocsteady.knowledge.waits import load_waits
from rocsteady.planner.trial import Bounds, Trial
from rocsteady.planner.trial_result import Tried, tried
from rocsteady.sandbox.folder_tree import Tree, differences, look_over
from rocsteady.sandbox.scratch import remove
from rocsteady.supervisor.announcer import Announcer
from rocsteady.supervisor.course import Wanted, as_json
from rocsteady.supervisor.injection import claim
from rocsteady.supervisor.settings import Settings
from rocsteady.supervisor.startup import Beginning
from rocsteady.vocabulary import Strategy

NAME = "trial"  # of the run; the next ones are trial-2, trial-3


class Trials:
    """Makes trials of one folder's script, and removes what they wrote."""

    def __init__(self, folder: Path, memory: Memory, *, again: bool = False) -> None:
        self._folder, self._memory, self._again = folder, memory, again
        self._root = _root(folder)
        self.seconds = 0.0  # that the trials took
        self.count = 0
        self.stopped = False  # by the user
        self._known = load_knowledge()
        self._before: Tree | None = None
        self._trial: Trial | None = None  # the last one

    def __enter__(self) -> Trials:  # noqa: PYI034 - Self is of Python 3.11
        """Make a place for them. What an earlier one was doing when the machine died is kept."""
        look_back(self._folder, self._memory)
        make_root(
            self._root,
            self._folder,
            inside="this folder itself: go to the script's own folder",
            busy="trials of this folder's script are going on",
        )
        self._journal = Journal(find_place(self._root))
        claim(self._root, self._journal.here.process)
        self._before = look_over(self._folder)
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()
        remove(self._root)

    @property
    def measured(self) -> float:
        """Seconds of steps that the last trial has measured so far."""
        paces = list(self._trial.paces.values()) if self._trial else []
        return max((pace.seconds for pace in paces), default=0.0)

    def changed(self) -> tuple[str, ...] | None:
        """Return the paths of the user's folder that have changed; None: cannot be told."""
        after, before = look_over(self._folder), self._before
        whole = before is not None and before.whole and after.whole
        return differences(before, after) if whole and before is not None else None

    def make(
        self,
        job: Job,
        strategy: Strategy,
        bounds: Bounds,
        *,
        remedies: bool = False,
        sample_stacks: bool = False,
    ) -> tuple[Tried, ...]:
        """Run the job for a while; return what came of each attempt, the last one last."""
        self.count += 1
        name = NAME if self.count == 1 else f"{NAME}-{self.count}"
        began = time.monotonic()
        place = self._root / name
        place.mkdir()
        scratch, environment, marks = lay_out_scratch(
            self._folder, place, self._before or look_over(self._folder)
        )
        if self.count == 1:
            say_where(scratch, NAME)
        inner = replace(job_in(scratch, job), deadline=None)  # of the run, not of a trial
        run = self._journal.begin_run(
            inner.command, job=inner, strategy=as_json(strategy), name=name
        )
        wanted = Wanted(strategy=strategy, again=self._again)
        course = course_for(wanted, job, self._folder, self._journal, self._memory, self._known)
        trial = Trial(
            inner,
            run,
            folder=scratch.folder,
            settings=Settings(
                max_attempts=None if remedies else 1,
                remedies=remedies,
                from_scratch=True,
                quick_crash=timedelta(0),
                patience=patience_for(job.hang_after),
            ),
            journal=self._journal,
            memory=None,
            waits=load_waits(),
            known_variables=frozenset(self._known.variables),
            course=course,
            terminal=DETACHED,
            environment=environment,
        )
        trial.prepare(bounds, sample_stacks=sample_stacks)
        self._trial = trial
        try:
            trial.rehearse((), scratch, marks)
        except NotRecordedError as error:
            raise RocsteadyError(f"{error}. Nothing was started") from None
        self.seconds += time.monotonic() - began
        self.stopped = self.stopped or trial.stopped_by_user
        self._journal.flush()
        results = tried(self._journal.story(name), trial)
        remove(place)
        return results


def look_back(folder: Path, memory: Memory) -> None:
    """Remember what was being tried when the machine went down, before it is removed."""
    if not _root(folder).exists():
        return
    journal = Journal(find_place(_root(folder)))
    announcer = Announcer()
    try:
        job, known = Job(command=("",)), load_knowledge()
        course = course_for(Wanted(), job, folder, journal, memory, known)
        Beginning(journal, memory, announcer, course, folder).tell_what_is_unfinished()
    finally:
        announcer.close()
        journal.close()
    memory.flush()


def _root(folder: Path) -> Path:
    return home(folder) / "trials"
