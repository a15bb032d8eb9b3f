"""The incidents of a run: the place, the proof, the failure, what was done, and its effect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rocsteady.report.markup import Markup, tag
from rocsteady.report.page_elements import folded
from rocsteady.report.run_report import (
    RunReport,
    crashed_attempts,
    decision_after,
    decision_with_reason,
    effect_of,
    failure_of,
    incident_title,
)
from rocsteady.screens.times import stamp
from rocsteady.store.values import Incident

NOT_AGAIN = "rocsteady does not start the same settings again on its own."
MOST_WAITS = 4  # sentences of a proof that are shown at once
ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")


def incidents(report: RunReport) -> Iterator[Markup]:
    """Lay out each incident, each failure that had none, and each crash of the machine."""
    with_incident = {incident.attempt for incident in report.story.incidents}
    named = {row.attempt for row in report.story.failures}
    for incident in report.story.incidents:
        yield _incident(report, incident)
    for row in report.story.failures:
        if row.attempt not in with_incident:
            yield tag(
                "article",
                tag("h3", f"Attempt {row.attempt} failed"),
                *_identified(report, row.attempt),
            )
    for attempt in crashed_attempts(report.story):
        if attempt not in named:
            yield _crash(report, attempt)


def _crash(report: RunReport, attempt: int) -> Markup:
    followed = attempt < len(report.story.attempts)
    done = effect_of(report, attempt) if followed else NOT_AGAIN
    return tag(
        "article",
        tag("h3", f"The machine crashed during attempt {attempt}"),
        tag("p", report.crash) if report.crash else None,
        tag("p", tag("strong", "What was done: "), done),
    )


def _incident(report: RunReport, incident: Incident) -> Markup:
    proof = next((each for each in report.proofs if each.incident == incident.number), None)
    return tag(
        "article",
        tag(
            "h3",
            f"Incident {incident.number}: {incident_title(incident)}",
            id=f"incident-{incident.number}",
        ),
        tag(
            "p",
            f"{stamp(incident.at)}, attempt {incident.attempt}."
            f" {incident.why[:1].upper()}{incident.why[1:]}.",
        ),
        tag("p", tag("strong", "Ranks: "), f"{incident.blame.why}.") if incident.blame else None,
        *_proof(proof.waits if proof else ()),
        *_identified(report, incident.attempt),
        folded("Stacks", proof.stacks) if proof and proof.stacks else None,
        tag("p", "Evidence: ", tag("code", _in_project(incident.evidence)), class_="detail")
        if incident.evidence
        else None,
    )


def _in_project(path: str) -> str:
    """Name a path from the project on, where it is in one."""
    _, found, rest = path.partition("/.rocsteady/")
    return f".rocsteady/{rest}" if found else path


def _proof(waits: Sequence[str]) -> Iterator[Markup]:
    """Show what the training waits for and the conclusion; the threads between are folded."""
    if not waits:
        return
    yield tag("p", tag("strong", "Proof"))
    between = waits[1:-1] if len(waits) > MOST_WAITS else ()
    shown = (waits[0], waits[-1]) if between else waits
    yield tag("ul", *(tag("li", f"{each[:1].upper()}{each[1:]}") for each in shown))
    if between:
        yield folded(f"{len(between)} other threads that wait", "\n".join(between))


def _identified(report: RunReport, attempt: int) -> Iterator[Markup]:
    failure, decision = failure_of(report.story, attempt), decision_after(report.story, attempt)
    if failure is not None:
        yield tag(
            "p",
            tag("strong", "Identified as: "),
            f"{failure.title.rstrip('.')} (",
            tag("code", failure.kind),
            f", {failure.certainty.value}). {' '.join(failure.words.split())}",
        )
        if failure.line:
            yield tag("p", tag("strong", "Line: "), tag("code", failure.line))
        if failure.seen or failure.traceback:
            yield folded(
                "How it was identified", "\n".join((*failure.seen, failure.traceback)).strip()
            )
        if failure.sources:
            yield tag("p", "Sources: ", *_links(failure.sources), class_="detail")
        if fix := report.advice.get(failure.kind):
            typed = tuple(each for command in fix.commands for each in (" ", tag("code", command)))
            yield tag("p", tag("strong", "What you can do: "), fix.text, *typed)
    if decision is not None:
        yield tag(
            "p",
            tag("strong", "What was done: "),
            decision_with_reason(decision),
        )
        yield tag("p", tag("strong", "Effect: "), effect_of(report, attempt))


def _links(sources: Sequence[str]) -> Iterator[Markup | str]:
    """Link each issue to its page; what is no issue stays text."""
    for number, source in enumerate(sources):
        yield ", " if number else ""
        if issue := ISSUE.fullmatch(source):
            address = f"https://github.com/{issue[1]}/issues/{issue[2]}"
            yield tag("a", source, href=address, rel="noreferrer")
        else:
            yield source
