"""The stages of a job, one run after the other; what is not done ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click
from msgspec.structs import replace

from rocsteady.cli.suggestions import no_such
from rocsteady.journal.journal import Journal
from rocsteady.supervisor.announce import Announcer
from rocsteady.supervisor.finish import DONE
from rocsteady.supervisor.job import Job
from rocsteady.supervisor.stages import Turn, survey


def turns_of(
    job: Job, journal: Journal, *, name: str | None, first: str | None, yes: bool
) -> tuple[Turn, ...]:
    """Return the stages that it is about: all, or from the ``first`` on that is named."""
    if not job.stages:
        return ()
    done = [line.run for line in journal.runs() if line.run.outcome == DONE]
    turns = survey(replace(job, name=name) if name else job, done)
    if first is None:
        return turns
    names = [turn.name for turn in turns]
    if first not in names:
        raise click.UsageError(no_such("stage", first, names, f"Stages: {', '.join(names)}"))
    at = names.index(first)
    skipped = [turn.name for turn in turns[:at] if not turn.done_by]
    if skipped and not yes:
        raise click.UsageError(
            f"stage {' and '.join(skipped)} must be done before {first}. Use --yes to start anyway."
        )
    return (replace(turns[at], done_by=""), *turns[at + 1 :])


def are_done(turns: Sequence[Turn]) -> bool:
    """Tell whether nothing is left to do, and say so if that is so."""
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
    return f"{turn.title}, is done: passed over, run {turn.done_by} had the same command"


def _say(*lines: str) -> None:
    """Tell it in a way that a terminal that is gone does not stop."""
    announcer = Announcer()
    for line in lines:
        announcer.say(line)
    announcer.close()
