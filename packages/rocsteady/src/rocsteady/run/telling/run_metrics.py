"""The numbers of a run that other tools show, each with its name, and its events."""

from __future__ import annotations

import math

from rocsteady.model import RunOutcome, Value
from rocsteady.store.run_account import (
    costs_of,
    decision_after,
    decision_with_reason,
    end_of,
    end_with_step,
    ended_well,
    failure_after,
    incident_title,
)
from rocsteady.store.values import RunLine, RunRecord


class Quantity(Value, frozen=True, kw_only=True):
    name: str
    meaning: str  # in one line


class MetricsEvent(Value, frozen=True, kw_only=True):
    at: float
    text: str


class RunMetrics(Value, frozen=True, kw_only=True):
    run: str
    at: float
    step: int
    values: dict[str, float]  # by name of a quantity; without what is not known
    events: tuple[MetricsEvent, ...] = ()  # all so far, in order


QUANTITIES = (
    Quantity(name="running", meaning="1 while the run is in progress, else 0."),
    Quantity(name="done", meaning="1 once the job is done, else 0."),
    Quantity(name="step", meaning="Steps completed so far, as counted by the script."),
    Quantity(name="planned_steps", meaning="Total number of steps."),
    Quantity(name="steps_per_second", meaning="Recent steps per second."),
    Quantity(name="remaining_seconds", meaning="Expected time until the run ends."),
    Quantity(name="goodput_ratio", meaning="Share of the time spent training."),
    Quantity(name="lost_seconds", meaning="Time lost to failures and restarts."),
    Quantity(name="attempts", meaning="Number of times the command was started."),
    Quantity(name="incidents", meaning="Number of incidents."),
    Quantity(
        name="last_progress_timestamp_seconds",
        meaning="When the last step was completed.",
    ),
    Quantity(name="deadline_timestamp_seconds", meaning="When the job must be done."),
    Quantity(name="updated_timestamp_seconds", meaning="When these values were recorded."),
)


def known(metrics: RunMetrics) -> list[Quantity]:
    return [quantity for quantity in QUANTITIES if quantity.name in metrics.values]


def metrics_of(line: RunLine, story: RunRecord, *, now: float) -> RunMetrics:
    """Take the numbers of a run; its texts are not redacted yet."""
    ended, costs = line.run.ended, costs_of(story, now)
    ahead = story.forecast
    values: dict[str, float | None] = {
        "running": float(ended is None and line.alive is not False),
        "done": float(line.run.outcome is RunOutcome.DONE),
        "step": line.step,
        "planned_steps": line.total,
        "steps_per_second": line.rate if ended is None else None,
        "remaining_seconds": max(0.0, ahead.at - now) if ahead and not line.stalled else None,
        "goodput_ratio": costs.useful / costs.whole if line.last_progress and costs.whole else None,
        "lost_seconds": story.seconds_lost,
        "attempts": len(story.attempts),
        "incidents": len(story.incidents),
        "last_progress_timestamp_seconds": line.last_progress,
        "deadline_timestamp_seconds": story.deadline,
        "updated_timestamp_seconds": now,
    }
    finite = {
        name: float(value)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    }
    return RunMetrics(
        run=line.run.name, at=now, step=line.step or 0, values=finite, events=events_of(story)
    )


def events_of(story: RunRecord) -> tuple[MetricsEvent, ...]:
    """Return what happened to a run: incidents, ends of attempts and what followed, its end."""
    events = [
        MetricsEvent(at=each.at, text=f"incident {each.number}: {incident_title(each)}")
        for each in story.incidents
    ]
    for attempt in story.attempts:
        failure = failure_after(story, attempt.number)
        decision = decision_after(story, attempt.number)
        if attempt.ended is None or failure is None or decision is None:  # not yet
            continue
        end = end_with_step(end_of(attempt), attempt.last_step, ended_well=ended_well(attempt))
        text = f"attempt {attempt.number} {end}. {failure.title.rstrip('.')}."
        events.append(
            MetricsEvent(at=attempt.ended, text=f"{text} {decision_with_reason(decision)}")
        )
    if story.run.ended is not None:
        events.append(
            MetricsEvent(at=story.run.ended, text=f"the run ended: {story.run.outcome.value}")
        )
    return tuple(sorted(events, key=lambda event: event.at))
