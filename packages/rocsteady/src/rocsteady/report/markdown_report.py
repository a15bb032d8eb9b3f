"""The story of a run, as a plain page in Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC

from rocsteady.model import Outcome
from rocsteady.printable import cell, code, inert
from rocsteady.report.run_report import (
    RunReport,
    decision_with_reason,
    next_step,
    settings_of,
    state_of,
    summary,
    torch_of,
)
from rocsteady.screens.deadline import ahead, result
from rocsteady.screens.times import moment, stamp
from rocsteady.store.values import AttemptRecord, Incident, NamedFailure, RunStory
from rocsteady.wording import duration


def render_story(report: RunReport) -> str:
    """Write what happened, what to do, the attempts, the incidents with their evidence."""
    return "\n".join((*_head(report), *_lines(report.story))) + "\n"


def _head(report: RunReport) -> Iterator[str]:
    """Yield what a reader wants first: how it is, what to do, and on which machine this was."""
    story, run = report.story, report.story.run
    yield f"# Run {run.name}: {state_of(report)[0]}"
    yield ""
    yield inert(summary(report))
    yield ""
    what, typed = next_step(report)
    yield f"What to do next: {inert(what)}{f' `{typed}`' if typed else ''}"
    yield ""
    yield f"Command: {code(shlex.join(run.command))}"
    yield ""
    if report.diagnosis is not None:
        machine = report.diagnosis.machine
        gpus = "; ".join(machine.gpus) or "no AMD GPU"
        software = [each for each in (machine.system, torch_of(machine)) if each]
        yield f"Machine: {inert('; '.join((gpus, *software)))}"
        yield ""
    ended = f"ended {stamp(run.ended)}" if run.ended else "no end was recorded"
    yield f"Started {stamp(run.started)}, {ended}."
    yield ""
    if told := _deadline(story, report.at):
        yield told
        yield ""


def _lines(story: RunStory) -> Iterator[str]:
    yield "## Attempts"
    yield ""
    yield "| attempt | started | settings | duration | end | last step | failure | next |"
    yield "|---|---|---|---|---|---|---|---|"
    reasons = {decision.attempt: decision for decision in story.decisions}
    failures = {failure.attempt: failure for failure in story.failures}
    for attempt in story.attempts:
        reason, failed = reasons.get(attempt.number), failures.get(attempt.number)
        cells = (
            stamp(attempt.started),
            settings_of(attempt),
            _took(attempt),
            _end(attempt),
            _steps(attempt),
            failed.failure.kind if failed else "",
            decision_with_reason(reason) if reason else "",
        )
        yield f"| {attempt.number} | {' | '.join(map(cell, cells))} |"
    yield ""
    if story.failures:
        yield "## Failures"
        yield ""
    for failure in story.failures:
        yield from _failure(failure)
    if story.incidents:
        yield "## Incidents"
        yield ""
    for incident in story.incidents:
        yield from _incident(incident)
    yield "## Messages"
    yield ""
    for message in story.messages:
        yield f"- {stamp(message.at)} {inert(message.text)}"
    yield ""
    yield "rocsteady's authors have not confirmed any of this on AMD hardware."


def _deadline(story: RunStory, now: float) -> str:
    """Say when it will be done, or was, against the deadline. Times are UTC, as on all the page."""
    run, deadline = story.run, story.deadline
    if story.forecast is not None:
        told = ahead(story.forecast, deadline, now=now, zone=UTC)
        early, late = (
            moment(at, now=now, zone=UTC) for at in (story.forecast.early, story.forecast.late)
        )
        return (
            f"{told[:1].upper()}{told[1:]}; between {early} and {late} with 90 % probability (UTC)."
        )
    if deadline is None:
        return ""
    due = f"Deadline {stamp(deadline)}"
    if run.ended is None:
        return f"{due}."
    return f"{due}: {result(run.ended, run.outcome, deadline)}."


def _failure(row: NamedFailure) -> Iterator[str]:
    failure = row.failure
    yield f"### Attempt {row.attempt}: {failure.title} ({failure.kind})"
    yield ""
    yield f"{' '.join(failure.words.split())} This identification is {failure.certainty.value}."
    yield ""
    for text in ("\n".join(failure.seen), failure.traceback):
        if text:
            yield from (*_quoted(text), "")
    for kind, role in failure.also:
        yield f"- also seen: {kind} ({role.value})"
    if failure.sources:
        yield f"- sources: {', '.join(failure.sources)}"
    if row.evidence:
        yield f"- evidence: `{row.evidence}`"
    yield ""


def _quoted(text: str) -> Iterator[str]:
    """Show text as it is, whatever marks are in it."""
    return (f"    {line}" for line in text.rstrip().splitlines())


def _incident(incident: Incident) -> Iterator[str]:
    yield f"### Incident {incident.number}: {incident.verdict.value}, in attempt {incident.attempt}"
    yield ""
    yield f"{inert(incident.why)}."
    if incident.place:
        yield f"Location: {code(incident.place)}."
    if incident.blame:
        yield f"Ranks: {inert(incident.blame.why)}."
    yield (
        f"Evidence: `{incident.evidence}`"
        if incident.evidence
        else "No evidence could be collected."
    )
    yield ""


def _end(attempt: AttemptRecord) -> str:
    if attempt.ended is None:
        return "not recorded"
    by = f"signal {attempt.signal}" if attempt.signal else f"exit code {attempt.exit_code}"
    return by if attempt.outcome is Outcome.BY_ITSELF else f"{attempt.outcome.value}, {by}"


def _took(attempt: AttemptRecord) -> str:
    return "" if attempt.ended is None else duration(attempt.ended - attempt.started)


def _steps(attempt: AttemptRecord) -> str:
    return "" if attempt.last_step is None else f"{attempt.last_step:,}"
