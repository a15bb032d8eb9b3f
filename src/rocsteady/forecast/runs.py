"""The runs of a journal, with their deadlines and when those that go on will be done."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from rocsteady.forecast.failure_rate import between_failures
from rocsteady.forecast.forecast import (
    Restarts,
    due_of,
    fell_after,
    forecast,
    points_of,
    saving_of,
    totals,
)
from rocsteady.journal.values import RunLine, RunStory


def lines_ahead(
    lines: Sequence[RunLine], story_of: Callable[[str], RunStory], *, now: float
) -> tuple[RunLine, ...]:
    """Look ahead for each run."""
    return tuple(_line_ahead(line, lines, story_of, now) for line in lines)


def story_ahead(story: RunStory, lines: Sequence[RunLine], *, now: float) -> RunStory:
    """Look ahead for one run; ``lines`` are all of the journal."""
    deadline, ahead = due_of(story.run), None
    if story.run.ended is None:
        ahead = forecast(
            points_of(story.progress),
            totals(story.progress),
            now=now,
            restarts=Restarts(
                between=between_failures(lines, but=story.run.id),
                started=story.run.started,
                saving=saving_of(story.progress),
            ),
            since=fell_after(story.decisions),
        )
    return msgspec.structs.replace(story, deadline=deadline, forecast=ahead)


def _line_ahead(
    line: RunLine, lines: Sequence[RunLine], story_of: Callable[[str], RunStory], now: float
) -> RunLine:
    if line.run.ended is not None or line.total is None:
        return msgspec.structs.replace(line, deadline=due_of(line.run))
    story = story_ahead(story_of(line.run.name), lines, now=now)
    ahead = None if line.stalled else story.forecast
    return msgspec.structs.replace(line, deadline=story.deadline, forecast=ahead)
