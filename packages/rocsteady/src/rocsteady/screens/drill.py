"""The result of a drill: one line per fault, and what follows from it."""

from __future__ import annotations

from rocsteady.model import FailureKind, Value
from rocsteady.screens.text_page import GREEN, RED, Column, Page
from rocsteady.wording import duration, plural

VERSION = 1  # of the JSON that a DrillResult is written as
COLUMNS = (
    Column("fault"),
    Column("detected in"),
    Column("identified as"),
    Column("action", least=16),
    Column("resumed at"),
)
ACTION = 3  # the column
SHOWN = 5  # paths that changed


class FaultResult(Value, frozen=True, kw_only=True):
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
    page = Page(width, colour=colour)
    styles = {
        (number, ACTION): GREEN if fault.survived else RED
        for number, fault in enumerate(result.faults)
        if fault.fired
    }
    page.table(COLUMNS, [_cells(fault) for fault in result.faults], styles)
    page.line()
    for sentences in _sentences(result):
        page.paragraph(sentences)
    if result.kept:
        page.paragraph("Logs and evidence of the drill:")
        page.line(f"  {result.kept}")
    if result.next_command:
        page.line(f"next: {result.next_command}")
    return str(page)


def _cells(fault: FaultResult) -> tuple[str, ...]:
    if not fault.fired:
        return (fault.fault, "-", "-", "not reached", "-")
    seen = "-" if fault.seen_after is None else duration(fault.seen_after)
    return (fault.fault, seen, fault.called or "-", fault.done, _went_on(fault))


def _went_on(fault: FaultResult) -> str:
    if fault.went_on_from is None:
        return "-"
    return f"step ~{fault.went_on_from:,}" if fault.went_on_from else "the start"


def _sentences(result: DrillResult) -> list[str]:
    survived = sum(fault.survived for fault in result.faults)
    twice = result.steps_twice
    again = f"; about {plural(twice, 'step was', 'steps were')} repeated" if twice else ""
    sentences = [f"The script survived {survived} of {plural(len(result.faults), 'fault')}{again}."]
    if not result.can_resume and any(fault.fired for fault in result.faults):
        sentences.append(
            "rocsteady does not know how this script resumes. Without that, it can only be started"
            " again from the beginning, which rocsteady does not do on its own after real progress."
            " Set [resume] in rocsteady.toml."
        )
    poisoned = [it for it in result.faults if it.called == FailureKind.NAN_LOSS and not it.survived]
    if poisoned:
        sentences.append(
            "The loss stayed NaN, and the script did not notice. If it raised an error, rocsteady"
            " could resume from the last checkpoint."
        )
    sentences.append(_untouched(result.changed))
    own = ("faults of a real GPU",) if result.on_gpu else ()
    untried = ", ".join((*result.not_tried, *own))
    return [" ".join(sentences), f"Not tried: {untried}." if untried else ""]


def _untouched(changed: tuple[str, ...] | None) -> str:
    if changed is None:
        return "This folder has too many files to check whether any was changed."
    if not changed:
        return "Your own files were not touched."
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    return f"Changed in this folder: {', '.join(changed[:SHOWN])}{more}."
