"""Runs, one line each, and one more for when they will be done and are due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from rocsteady.journal.values import RunLine
from rocsteady.report.deadline import ahead, met, until
from rocsteady.report.page import BOLD, Page
from rocsteady.report.times import roughly

DONE = "done"  # the outcome


def render_runs(
    lines: Sequence[RunLine],
    *,
    now: float,
    width: int,
    colour: bool,
    zone: tzinfo | None = None,
) -> str:
    """Lay out a table that fits the terminal."""
    page = Page(width, colour=colour)
    if not lines:
        page.paragraph("No runs here yet: rocsteady run -- python train.py")
        return str(page)
    page.line(f"{'run':<22}{'state':<22}{'step':>14}  {'rate':>9}  last progress", style=BOLD)
    for line in lines:
        name, state = _cell(line.run.name), _cell(_state(line))
        step = f"{_step(line):>{36 - len(state)}}"
        page.line(f"{name:<22}{state}{step}  {_rate(line):>9}  {_ago(line, now)}{_left(line)}")
        if told := _ahead(line, now, zone):
            page.paragraph(told, indent=2)
    return str(page)


def _cell(text: str) -> str:
    """Cut a text to its column; a journal that came with a project may have lines in a name."""
    return " ".join(text.split())[:21]


def _state(line: RunLine) -> str:
    if line.run.ended is not None:
        return line.run.outcome
    if line.stalled:
        return "stalled" if line.alive else "elsewhere, stalled"
    return {True: "running", False: "left; --resume", None: "elsewhere"}[line.alive]


def _step(line: RunLine) -> str:
    if line.step is None:
        return "-"
    return f"{line.step:,}/{line.total:,}" if line.total else f"{line.step:,}"


def _rate(line: RunLine) -> str:
    return f"{line.rate or 0.0:.2f}/s" if line.rate or line.stalled else "-"


def _ago(line: RunLine, now: float) -> str:
    return (
        "-" if line.last_progress is None else f"{roughly(max(0.0, now - line.last_progress))} ago"
    )


def _left(line: RunLine) -> str:
    if line.seconds_left is None or line.run.ended is not None or line.forecast is not None:
        return ""
    return f", {roughly(line.seconds_left)} left"


def _ahead(line: RunLine, now: float, zone: tzinfo | None) -> str:
    """Say when it will be done, or was, against the deadline; "" where nothing is known."""
    if line.forecast is not None:
        if_resumed = "if it goes on now, " if line.alive is False else ""
        return if_resumed + ahead(line.forecast, line.deadline, now=now, zone=zone)
    if line.deadline is None:
        return ""
    if line.run.ended is not None and line.run.outcome == DONE:
        return met(line.run.ended, line.deadline)
    return until(line.deadline, now=now, zone=zone)
