"""Runs, one row each, with when they finish and are due; and the report of one on one screen."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import tzinfo

from rocsteady.colours import BOLD, DIM, GREEN, RED, YELLOW
from rocsteady.model import RunOutcome
from rocsteady.report.story import Story, Tone, TroubleGroup, torch_of
from rocsteady.screens.screen import LEAST_LAST, NO_VALUE, Column, Page
from rocsteady.store.values import RunLine
from rocsteady.wording import ahead, duration, met, moment, rough_duration, until

COLUMNS = (
    Column("run"),
    Column("state"),
    Column("done", right=True),
    Column("step", right=True),
    Column("steps/s", right=True),
    Column("last progress"),
    Column("hangs", right=True),
    Column("forecast", least=LEAST_LAST),
)
STATE = 1  # the column


def render_runs(
    lines: Sequence[RunLine], *, now: float, page: Page, zone: tzinfo | None = None
) -> str:
    if not lines:
        page.paragraph(
            "No runs in this project yet. To start one: rocsteady run -- python train.py"
        )
        return str(page)
    rows, styles = [], {}
    for number, line in enumerate(lines):
        state = _cell(state_of(line))
        progress = f"{_ago(line, now)}{_left(line)}"
        outlook = _ahead(line, now, zone)
        hangs = str(line.incidents) if line.incidents else NO_VALUE
        counts = (_part(line), _step(line), _rate(line), progress, hangs)
        rows.append((_cell(line.run.name), state, *counts, outlook))
        styles[number, STATE] = style_of(line)
    page.table(COLUMNS, rows, styles)
    return str(page)


def _cell(text: str) -> str:
    """Cut a text to its column; a journal that came with a project may have lines in a name."""
    return " ".join(text.split())[:21] or "?"


def state_of(line: RunLine) -> str:
    if line.run.ended is not None:
        return line.run.outcome.value
    if line.stalled:
        return "stalled" if line.alive else "stalled (elsewhere)"
    return {True: "running", False: "interrupted", None: "elsewhere"}[line.alive]


def style_of(line: RunLine) -> str:
    if line.run.ended is None:
        return YELLOW if line.stalled or line.alive is False else ""
    return GREEN if line.run.outcome is RunOutcome.DONE else RED


def _part(line: RunLine) -> str:
    """Return how much is done; nothing of a total that the steps exceed."""
    if line.step is None or not line.total or line.step > line.total:
        return NO_VALUE
    return f"{100 * line.step // line.total}%"


def _step(line: RunLine) -> str:
    if line.step is None:
        return "-"
    known = line.total and line.step <= line.total
    return f"{line.step:,}/{line.total:,}" if known else f"{line.step:,}"


def _rate(line: RunLine) -> str:
    moves = line.run.ended is None and line.alive is not False and not line.stalled
    return f"{line.rate:.2f}" if line.rate and moves else NO_VALUE


def _ago(line: RunLine, now: float) -> str:
    if line.last_progress is None:
        return "-"
    return f"{rough_duration(max(0.0, now - line.last_progress))} ago"


def _left(line: RunLine) -> str:
    if line.seconds_left is None or line.run.ended is not None or line.forecast is not None:
        return ""
    return f", {rough_duration(line.seconds_left)} left"


def _ahead(line: RunLine, now: float, zone: tzinfo | None) -> str:
    """Return the end against the deadline; "" where nothing is known."""
    if line.forecast is not None:
        if_resumed = "if resumed now: " if line.alive is False else ""
        return if_resumed + ahead(line.forecast, line.deadline, now=now, zone=zone, brief=True)
    if line.deadline is None:
        return ""
    if line.run.ended is not None and line.run.outcome is RunOutcome.DONE:
        return met(line.run.ended, line.deadline)
    return until(line.deadline, now=now, zone=zone, brief=True)


STYLES = {Tone.OK: GREEN, Tone.WARNING: YELLOW, Tone.BAD: RED}
GROUPS_SHOWN = 5  # of many, the last
TRIES_SHOWN = 5  # of one group
LABEL = 11


def render_summary(story: Story, *, page: Page, zone: tzinfo | None = None) -> str:
    page.row(story.state.value, story.happened, column=LABEL, style=f"{BOLD} {STYLES[story.tone]}")
    start = page.row("to do", story.next_step.text, column=LABEL, style=BOLD)
    if story.next_step.command:
        page.line(" " * start + story.next_step.command)
    left_out = len(story.troubles) - GROUPS_SHOWN
    if left_out > 0:
        page.row("", f"{left_out} more in the full report", column=LABEL, style=DIM)
    for group in story.troubles[-GROUPS_SHOWN:]:
        _group(page, group)
    if story.troubles:
        page.line()
    costs = story.costs
    if costs.whole:
        parts = (
            f"{name} {duration(seconds)} ({100 * seconds / costs.whole:.0f} %)"
            for name, seconds in costs.shares
        )
        page.row("time", ", ".join(parts), column=LABEL)
    if story.record.deadline is not None:
        due = moment(story.record.deadline, now=story.at, zone=zone)
        page.row("deadline", f"{due}, {story.met}" if story.met else due, column=LABEL)
    page.row("command", story.command, column=LABEL)
    if story.machine is not None:
        machine = story.machine.machine
        gpus = "; ".join(machine.gpus) or "no AMD GPU"
        page.row("machine", f"{gpus}; {torch_of(machine)}", column=LABEL)
    name = shlex.quote(story.record.run.name)
    page.paragraph(f"Full report: rocsteady report {name} --open", style=DIM)
    return str(page)


def _group(page: Page, group: TroubleGroup) -> None:
    """Show what went wrong: the user's line, the lines around it, and what was tried."""
    page.line()
    times = f" ({len(group.troubles)} times)" if len(group.troubles) > 1 else ""
    page.line(f"{group.title}{times}", style=BOLD)
    if group.first.source is not None:
        for line in group.first.source.lines:
            mark = ">" if line.blamed else " "
            page.line(f"  {mark}{line.number:5}  {line.text}", style="" if line.blamed else DIM)
    for box in group.first.boxes:
        arrow = f", waits for {box.waits_for}" if box.waits_for else ""
        page.paragraph(f"{box.title} ({box.detail}){arrow}", indent=2)
    left_out = len(group.troubles) - TRIES_SHOWN
    if left_out > 0:
        page.line(f"  {left_out} before these", style=DIM)
    for trouble in group.troubles[-TRIES_SHOWN:]:
        step = "" if trouble.last_step is None else f"step {trouble.last_step:,}: "
        result = f" Result: {trouble.effect}." if trouble.effect else ""
        if trouble.decision:
            page.paragraph(f"{step}{trouble.decision}{result}", indent=2)
