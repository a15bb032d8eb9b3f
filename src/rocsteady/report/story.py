"""The story of a run, as a plain page in Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from rocsteady.journal.values import Attempt, Incident, RunStory


def render_story(story: RunStory) -> str:
    """Write what was asked, the attempts, the incidents with their evidence, and the time lost."""
    return "\n".join(_lines(story)) + "\n"


def _lines(story: RunStory) -> Iterator[str]:
    run = story.run
    yield f"# Run {run.name}"
    yield ""
    yield f"Asked for: `{' '.join(run.command)}`"
    yield ""
    ended = f"ended {_moment(run.ended)}: {run.outcome}" if run.ended else "not ended"
    yield f"Started {_moment(run.started)}, {ended}. Time lost: {story.seconds_lost:.0f} s."
    yield ""
    yield "## Attempts"
    yield ""
    yield "| attempt | started | took | ended | steps | reason for what came next |"
    yield "|---|---|---|---|---|---|"
    reasons = {decision.attempt: decision for decision in story.decisions}
    for attempt in story.attempts:
        reason = reasons.get(attempt.number)
        why = f"{reason.what}: {reason.why}" if reason else ""
        cells = (_moment(attempt.started), _took(attempt), _end(attempt), _steps(attempt), why)
        yield f"| {attempt.number} | {' | '.join(cells)} |"
    yield ""
    if story.incidents:
        yield "## Incidents"
        yield ""
    for incident in story.incidents:
        yield from _incident(incident)
    yield "## What was said"
    yield ""
    for message in story.messages:
        yield f"- {_moment(message.at)} {message.text}"
    yield ""
    yield "Nothing here was confirmed on AMD hardware by rocsteady's authors."


def _incident(incident: Incident) -> Iterator[str]:
    yield f"### Incident {incident.number}: {incident.verdict}, in attempt {incident.attempt}"
    yield ""
    yield f"{incident.why}."
    if incident.place:
        yield f"The place: `{incident.place}`."
    yield f"Evidence: `{incident.evidence}`" if incident.evidence else "No evidence could be had."
    yield ""


def _end(attempt: Attempt) -> str:
    if attempt.ended is None:
        return "not recorded"
    if attempt.signal:
        return f"{attempt.outcome}, signal {attempt.signal}"
    return f"{attempt.outcome}, code {attempt.exit_code}"


def _took(attempt: Attempt) -> str:
    return "" if attempt.ended is None else f"{attempt.ended - attempt.started:.0f} s"


def _steps(attempt: Attempt) -> str:
    return "" if attempt.last_step is None else f"{attempt.last_step:,}"


def _moment(at: float | None) -> str:
    if at is None:
        return "-"
    return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
