"""Runs, one line each."""

from __future__ import annotations

from collections.abc import Sequence

from rocsteady.journal.values import RunLine
from rocsteady.report.page import BOLD, Page


def render_runs(lines: Sequence[RunLine], *, now: float, width: int, colour: bool) -> str:
    """Lay out a table that fits the terminal."""
    page = Page(width, colour=colour)
    if not lines:
        page.paragraph("No runs here yet: rocsteady run -- python train.py")
        return str(page)
    page.line(f"{'run':<22}{'state':<22}{'step':>14}  {'rate':>9}  last progress", style=BOLD)
    for line in lines:
        page.line(
            f"{line.run.name:<22.21}{_state(line):<22.21}{_step(line):>14}  {_rate(line):>9}"
            f"  {_ago(line, now)}{_left(line)}"
        )
    return str(page)


def _state(line: RunLine) -> str:
    if line.run.ended is not None:
        return line.run.outcome
    return {True: "running", False: "left; --resume", None: "elsewhere"}[line.alive]


def _step(line: RunLine) -> str:
    if line.step is None:
        return "-"
    return f"{line.step:,}/{line.total:,}" if line.total else f"{line.step:,}"


def _rate(line: RunLine) -> str:
    return f"{line.rate:.2f}/s" if line.rate else "-"


def _ago(line: RunLine, now: float) -> str:
    return (
        "-" if line.last_progress is None else f"{_spelled(max(0.0, now - line.last_progress))} ago"
    )


def _left(line: RunLine) -> str:
    if line.seconds_left is None or line.run.ended is not None:
        return ""
    return f", {_spelled(line.seconds_left)} left"


def _spelled(seconds: float) -> str:
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
