"""What came of a drill: a line a fault, and one sentence."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rocsteady.report.page import BOLD, Page, counted
from rocsteady.vocabulary import Value

VERSION = 1  # of the JSON that a DrillResult is written as
HEAD = ("fault", "seen after", "called", "done", "went on from")
GAP = 2
LONG = 18  # columns; the name of a fault that is longer has a line of its own
SHOWN = 5  # paths that changed


class FaultResult(Value, frozen=True, kw_only=True):
    """What came of one fault."""

    fault: str  # as it was written
    fired: bool  # False: the run did not get there
    step: int | None = None  # that was being made
    attempt: int | None = None
    seen_after: float | None = None  # seconds; None: rocsteady had nothing to see
    called: str = ""  # the kind of the failure
    done: str = ""
    went_on_from: int | None = None  # step, about; 0: the beginning; None: no attempt came after
    survived: bool = False


class DrillResult(Value, frozen=True, kw_only=True):
    """What came of a drill; the value behind both the screen and ``--json``."""

    version: int = VERSION
    command: tuple[str, ...]
    faults: tuple[FaultResult, ...]
    can_resume: bool  # a way to resume is known
    ended: str  # how the run ended
    not_tried: tuple[str, ...]
    changed: tuple[str, ...] | None  # paths of the user's folder; None: could not be looked over
    on_gpu: bool = False  # this machine has a GPU that the script could use
    kept: str = ""  # the folder with log and evidence, if it was kept
    next_command: str = ""  # what to type next

    @property
    def all_survived(self) -> bool:
        """Tell whether every fault was survived."""
        return all(fault.survived for fault in self.faults)

    @property
    def steps_twice(self) -> int:
        """How many steps had to be made again, about."""
        again = [
            fault.step - 1 - fault.went_on_from
            for fault in self.faults
            if fault.step is not None and fault.went_on_from is not None
        ]
        return sum(max(0, steps) for steps in again)


def render_drill(result: DrillResult, *, width: int, colour: bool) -> str:
    """Lay out a table that fits the terminal, and say what it comes to."""
    page = Page(width, colour=colour)
    rows = [_cells(fault) for fault in result.faults]
    widths = _widths([HEAD, *rows], page.width)
    page.line(_joined(HEAD, widths), style=BOLD)
    for row in rows:
        if len(row[0]) > widths[0]:
            page.line(row[0])
            row = ("", *row[1:])  # noqa: PLW2901 - the rest of it
        cells = [textwrap.wrap(cell, size) for cell, size in zip(row, widths, strict=True)]
        for number in range(max(map(len, cells))):
            page.line(_joined([_at(cell, number) for cell in cells], widths))
    page.line()
    page.paragraph(" ".join(_sentences(result)))
    if result.kept:
        page.paragraph("Log and evidence of the drill were kept:")
        page.line(f"  {result.kept}")
    if result.next_command:
        page.line(f"next: {result.next_command}")
    return str(page)


def _cells(fault: FaultResult) -> tuple[str, ...]:
    if not fault.fired:
        return (fault.fault, "-", "-", "not reached", "-")
    seen = "-" if fault.seen_after is None else f"{fault.seen_after:.1f} s"
    return (fault.fault, seen, fault.called or "-", fault.done, _went_on(fault))


def _went_on(fault: FaultResult) -> str:
    if fault.went_on_from is None:
        return "-"
    return f"step ~{fault.went_on_from:,}" if fault.went_on_from else "the beginning"


def _sentences(result: DrillResult) -> list[str]:
    survived = sum(fault.survived for fault in result.faults)
    twice = result.steps_twice
    done = f"; about {counted(twice, 'step was', 'steps were')} done twice" if twice else ""
    said = [f"{survived} of {len(result.faults)} survived{done}."]
    if not result.can_resume and any(fault.fired for fault in result.faults):
        said.append(
            "This script has no known way to resume: after a fault it can only begin again, and"
            " once it has made real progress that is not done unasked. Name one in rocsteady.toml,"
            " under [resume]."
        )
    poisoned = [it for it in result.faults if it.called == "nan-loss" and not it.survived]
    if poisoned:
        said.append(
            "The loss was no number from then on: this script does not look. One that raises an"
            " error then goes on from its checkpoint."
        )
    own = ("faults of a real GPU",) if result.on_gpu else ()
    untried = ", ".join((*result.not_tried, *own))
    if untried:
        said.append(f"Not tried: {untried}.")
    said.append(_untouched(result.changed))
    return said


def _untouched(changed: tuple[str, ...] | None) -> str:
    if changed is None:
        return "The folder has too many files to see whether your outputs were touched."
    if not changed:
        return "Your outputs were not touched."
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    return f"Not as before in your folder: {', '.join(changed[:SHOWN])}{more}."


def _widths(rows: Sequence[Sequence[str]], most: int) -> list[int]:
    """Give each column what it needs, and what is done the rest, where that is too little."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[0] = min(widths[0], LONG)
    done = HEAD.index("done")
    others = sum(widths) - widths[done] + GAP * (len(widths) - 1)
    widths[done] = min(widths[done], max(len("unchanged"), most - others))
    return widths


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    return (
        (" " * GAP)
        .join(cell.ljust(size) for cell, size in zip(cells, widths, strict=True))
        .rstrip()
    )


def _at(lines: Sequence[str], number: int) -> str:
    return lines[number] if number < len(lines) else ""
