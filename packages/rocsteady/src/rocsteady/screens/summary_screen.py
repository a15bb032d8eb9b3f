"""The report of a run on a terminal: a summary that fits on one screen."""

from __future__ import annotations

import shlex

from rocsteady.report.run_report import (
    BAD,
    OK,
    WARNING,
    RunReport,
    costs_of,
    decision_after,
    failure_of,
    incident_title,
    next_step,
    state_of,
    summary,
    torch_of,
)
from rocsteady.screens.text_page import BOLD, DIM, GREEN, RED, YELLOW, Page
from rocsteady.wording import duration

STYLES = {OK: GREEN, WARNING: YELLOW, BAD: RED}
MOST = 5  # incidents
LABEL = 13


def render_summary(report: RunReport, *, width: int, colour: bool) -> str:
    """Lay out what happened, why, what was done, what it cost, and what to do."""
    page, story = Page(width, colour=colour), report.story
    state, good = state_of(report)
    page.row(state, summary(report), column=LABEL, style=f"{BOLD};{STYLES[good]}")
    page.row("command", shlex.join(story.run.command), column=LABEL)
    if report.diagnosis is not None:
        machine = report.diagnosis.machine
        gpus = "; ".join(machine.gpus) or "no AMD GPU"
        page.row("machine", f"{gpus}; {torch_of(machine)}", column=LABEL)
    left_out = len(story.incidents) - MOST
    if left_out > 0:
        page.row(
            "incidents", f"{left_out} earlier ones are in the full report", column=LABEL, style=DIM
        )
    for incident in story.incidents[-MOST:]:
        failure = failure_of(story, incident.attempt)
        decision = decision_after(story, incident.attempt)
        named = f" ({failure.kind})" if failure else ""
        then = f"; then: {decision.what}" if decision else ""
        page.row(
            f"incident {incident.number}",
            f"{incident_title(incident)}{named}{then}",
            column=LABEL,
        )
    costs = costs_of(story, report.at)
    if costs.whole:
        spent = {"detecting and restarting": costs.idle, "repeated": costs.redone}
        lost = [f"{duration(seconds)} {what}" for what, seconds in spent.items() if seconds > 0]
        trained = f"{duration(costs.useful)} training ({100 * costs.useful / costs.whole:.0f} %)"
        page.row("time", ", ".join((trained, *lost)), column=LABEL)
    what, typed = next_step(report)
    start = page.row("next", what, column=LABEL, style=BOLD)
    if typed:
        page.line(" " * start + typed)
    name = shlex.quote(story.run.name)
    page.paragraph(f"Full report: rocsteady report {name} --format html --open", style=DIM)
    return str(page)
