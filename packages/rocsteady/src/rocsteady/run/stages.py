"""The stages of a job, one run after the other; what is not done ends it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime

from msgspec.structs import replace

from rocsteady.model import Deadline, RunOutcome, Value
from rocsteady.run.job.stages import stage_job
from rocsteady.run.job.values import Job
from rocsteady.run.telling.announcer import Announcer
from rocsteady.store.journal import Journal
from rocsteady.store.values import Run


class Turn(Value, frozen=True, kw_only=True):
    """A stage as it is carried out, and the run that has done it."""

    number: int  # from 1
    of: int
    name: str  # of the stage
    job: Job  # its name is that of its run
    done_by: str = ""  # the name of a run; "": it is not done

    @property
    def title(self) -> str:
        """What it is called to a person."""
        return f"stage {self.number} of {self.of}, {self.name}"


def turns_of(job: Job, journal: Journal, name: str | None) -> tuple[Turn, ...]:
    """Return the stages of a job, if it has any, and what the runs in the journal have done."""
    if not job.stages:
        return ()
    done = [line.run for line in journal.runs() if line.run.outcome is RunOutcome.DONE]
    return survey(replace(job, name=name) if name else job, done)


def are_done(turns: Sequence[Turn]) -> bool:
    """Return whether nothing is left to do, and say so if that is so."""
    if all(turn.done_by for turn in turns):
        _say(*(f"{_passed_over(turn)}." for turn in turns))
        return True
    return False


def carry_out_stages(turns: Sequence[Turn], carry_out: Callable[[Job], tuple[int, bool]]) -> int:
    """Carry out what is not done, in order, and return the code of the last that was started."""
    code = 0
    for turn in turns:
        if turn.done_by:
            _say(f"{_passed_over(turn)}.")
            continue
        _say(f"{turn.title}.")
        code, done = carry_out(turn.job)
        if not done:
            left = [each.name for each in turns if each.number > turn.number]
            if left:
                _say(f"{turn.title}, is not done: {' and '.join(left)} not started.")
            break
    return code


def _passed_over(turn: Turn) -> str:
    return f"{turn.title}, is done: skipped (run {turn.done_by} had the same command)"


def _say(*lines: str) -> None:
    """Print lines; a terminal that is gone does not matter."""
    with closing(Announcer()) as announcer:
        for line in lines:
            announcer.say(line)


def survey(job: Job, runs: Sequence[Run]) -> tuple[Turn, ...]:
    """Return the stages of a job in order, each with that of the ``runs`` that has done it.

    The time that a job has from its start begins with the first of them.
    """
    jobs = [stage_job(job, stage) for stage in job.stages]
    done = [_done(each, runs) for each in jobs]
    since = min((run.started for run in done if run is not None), default=time.time())
    due = _due(job.deadline, since)
    return tuple(
        Turn(
            number=number,
            of=len(jobs),
            name=stage.name,
            job=each if stage.deadline else replace(each, deadline=due),
            done_by=run.name if run else "",
        )
        for number, (stage, each, run) in enumerate(zip(job.stages, jobs, done, strict=True), 1)
    )


def _done(job: Job, runs: Sequence[Run]) -> Run | None:
    """Return the run of a stage that had the same command."""
    numbered = re.compile(rf"{re.escape(job.name or '')}(-[0-9]+)?")
    same = (run for run in runs if run.command == job.command and numbered.fullmatch(run.name))
    return next(same, None)


def _due(deadline: Deadline | None, since: float) -> Deadline | None:
    """Turn a time from the start into a moment: each stage is a run with a start of its own."""
    if deadline is None or deadline.within is None:
        return deadline
    start = datetime.fromtimestamp(since, tz=UTC).astimezone()
    return Deadline(at=start + deadline.within)
