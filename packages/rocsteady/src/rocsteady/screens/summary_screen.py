"""The report of a run on a terminal: a summary that fits on one screen."""

from __future__ import annotations

import shlex

from rocsteady.report.story import Story, Tone, torch_of
from rocsteady.screens.text_page import BOLD, DIM, GREEN, RED, YELLOW, Page
from rocsteady.wording import duration

STYLES = {Tone.OK: GREEN, Tone.WARNING: YELLOW, Tone.BAD: RED}
INCIDENTS = 5  # of many, the last
LABEL = 13


def render_summary(story: Story, *, width: int, colour: bool) -> str:
    page = Page(width, colour=colour)
    page.row(story.state.value, story.happened, column=LABEL, style=f"{BOLD} {STYLES[story.tone]}")
    page.row("command", story.command, column=LABEL)
    if story.machine is not None:
        machine = story.machine.machine
        gpus = "; ".join(machine.gpus) or "no AMD GPU"
        page.row("machine", f"{gpus}; {torch_of(machine)}", column=LABEL)
    left_out = len(story.incidents) - INCIDENTS
    if left_out > 0:
        page.row(
            "incidents", f"{left_out} earlier ones are in the full report", column=LABEL, style=DIM
        )
    for trouble in story.incidents[-INCIDENTS:]:
        kind = f" ({trouble.failure.kind})" if trouble.failure else ""
        then = f". {trouble.decision}" if trouble.decision else ""
        number = trouble.incident.number if trouble.incident else 0
        page.row(f"incident {number}", f"{trouble.title}{kind}{then}", column=LABEL)
    costs = story.costs
    if costs.whole:
        spent = {"detecting and restarting": costs.idle, "repeated": costs.redone}
        lost = [f"{duration(seconds)} {what}" for what, seconds in spent.items() if seconds > 0]
        trained = f"{duration(costs.useful)} training ({100 * costs.useful / costs.whole:.0f} %)"
        page.row("time", ", ".join((trained, *lost)), column=LABEL)
    start = page.row("next", story.next_step.text, column=LABEL, style=BOLD)
    if story.next_step.command:
        page.line(" " * start + story.next_step.command)
    name = shlex.quote(story.record.run.name)
    page.paragraph(f"Full report: rocsteady report {name} --format html --open", style=DIM)
    return str(page)
