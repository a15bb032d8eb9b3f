"""What is known of a failure, a message or a workaround, as ``rocsteady explain`` prints it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rocsteady.colours import BOLD, DIM
from rocsteady.doctor.knowledge.failures import (
    FailureKnowledge,
    KnownFailure,
    KnownMessage,
    Nature,
)
from rocsteady.doctor.knowledge.harmful_variables import harmful_variables
from rocsteady.doctor.knowledge.values import Fix, Step
from rocsteady.doctor.values import Finding
from rocsteady.failures.remedy import ANY, Remedy, load_remedies
from rocsteady.model import Certainty, Failure, FailureKind
from rocsteady.screens.screen import Page

RECOVERED = "The text shows progress after this failure, so the run may have recovered from it."
NATURES = {
    Nature.TRANSIENT: "This failure is often transient; retrying may be enough.",
    Nature.DETERMINISTIC: "The run will fail in the same way until something is changed.",
    Nature.EITHER: "This may be transient; if it happens twice in the same place, it is not.",
}
UNCONFIRMED = "Unverified on hardware."


class MachineContext(NamedTuple):
    """What this machine has to do with a failure."""

    findings: tuple[Finding, ...]  # of the doctor, that can be its cause
    gpus: frozenset[str]  # architectures and families; none where no GPU was found

    def steps(self, fix: Fix) -> list[Step]:
        """Return what to do, without what is for other GPUs."""
        steps = (fix, *fix.then)
        return [it for it in steps if not it.gpus or not self.gpus or self.gpus & {*it.gpus}]


def workarounds_for(kind: KnownFailure) -> list[str]:
    """Return what may be tried against a failure on some machine; none where it takes a person."""
    remedies = load_remedies().values()
    return [] if kind.fix else [it.id for it in remedies if kind.id in it.answers]


def failure_page(
    failure: Failure,
    knowledge: FailureKnowledge,
    here: MachineContext,
    *,
    page: Page,
    recovered: bool = False,
) -> str:
    if failure.kind == FailureKind.UNKNOWN:
        page.paragraph("No known failure was found in this text.", style=BOLD)
        page.paragraph(
            "It may not be a failure, or rocsteady may not know this one yet. More output may help:"
            " include the whole traceback, and the kernel log from that time (dmesg)."
        )
        return str(page)
    kind = knowledge.kinds[failure.kind]
    page.line(_head(failure), style=BOLD)
    page.paragraph(f"{failure.title}.")
    _seen(page, failure)
    page.line()
    if recovered:
        page.paragraph(RECOVERED)
    page.paragraph(failure.words)
    page.paragraph(NATURES[kind.nature])
    _likely_here(page, here)
    if fix := kind.fix or kind.advice:
        page.heading("What to do")
        draw_fix(page, fix, here.steps(fix))
    if workarounds := workarounds_for(kind):
        page.heading("Workarounds")
        page.paragraph(", ".join(workarounds), indent=2)
        page.line(f"  rocsteady explain {workarounds[0]}")
    _sources(page, failure.sources)
    return str(page)


def guess_page(guesses: Sequence[KnownFailure], page: Page) -> str:
    page.paragraph("No known failure was found in this text.", style=BOLD)
    page.paragraph("By its words it may be one of these; this is a guess:")
    column = max(len(it.id) for it in guesses) + 2
    for guess in guesses:
        page.row(guess.id, f"{guess.title}.", indent=2, column=column)
    page.line(f"To read about the first: rocsteady explain {guesses[0].id}")
    if guesses[0].id.startswith(FailureKind.HANG) and os.name != "nt":  # watch is of POSIX
        page.line("While it hangs, this finds the line: rocsteady watch --pid")
    return str(page)


def message_page(message: KnownMessage, line: str, page: Page) -> str:
    page.line(f"{message.id}  not a failure by itself", style=BOLD)
    page.paragraph(f"{message.title}.")
    page.heading("Evidence")
    page.line(f"  {line}")
    page.line()
    page.paragraph(message.words)
    page.heading("What to do")
    draw_fix(page, message.fix, (message.fix, *message.fix.then))
    _sources(page, message.sources)
    return str(page)


def _head(failure: Failure) -> str:
    rank = "" if failure.rank is None else f"  on rank {failure.rank}"
    sure = "" if failure.certainty is Certainty.CERTAIN else "  likely"
    return f"{failure.kind}{sure}{rank}"


def _seen(page: Page, failure: Failure) -> None:
    if not failure.seen:
        return
    page.heading("Evidence")
    for line in failure.seen:
        page.line(f"  {line}")
    if failure.line:
        page.paragraph(f"Python was at {failure.line}.", indent=2)
    elif failure.fingerprint.place:
        page.paragraph(f"in {failure.fingerprint.place}", indent=2)
    if failure.also:
        others = ", ".join(kind for kind, _ in failure.also)
        page.paragraph(f"Also seen: {others}.", indent=2, style=DIM)


def _likely_here(page: Page, here: MachineContext) -> None:
    if not here.findings:
        return
    page.heading("Likely cause on this machine")
    for finding in here.findings:
        page.paragraph(f"{finding.summary} ({finding.rule})", indent=2)
        page.lines(finding.fix.commands, indent=4)


def draw_fix(
    page: Page,
    fix: Fix,
    steps: Sequence[Step],
    spelled: Callable[[Iterable[str]], Iterable[str]] = iter,
) -> None:
    if fix.check:
        page.paragraph("To check first:", indent=2)
        page.lines(fix.check, indent=4)
    indent = 5 if len(steps) > 1 else 4
    for number, step in enumerate(steps, start=1):
        page.step(number if len(steps) > 1 else None, step.text)
        here = os.name == "nt" and step.windows
        page.lines(spelled(step.windows if here else step.commands), indent=indent)
        if step.windows and not here:
            page.paragraph("On Windows, in PowerShell:", indent=indent)
            page.lines(spelled(step.windows), indent=indent)
    if fix.container:
        page.paragraph("In a container:", indent=2)
        page.lines(spelled(fix.container), indent=4)
    if fix.needs:
        page.paragraph(f"Needs: {', '.join(need.value for need in fix.needs)}.", indent=2)
    if fix.verify:
        page.paragraph(f"To check that it worked: {fix.verify}", indent=2)


def _sources(page: Page, sources: Iterable[str]) -> None:
    page.line()
    page.paragraph(f"Sources (unverified on hardware): {', '.join(sources)}", style=DIM)


def workaround_page(remedy: Remedy, page: Page) -> str:
    page.line(remedy.id, style=BOLD)
    page.paragraph(f"{remedy.title}.")
    answers = "any failure that may be transient" if ANY in remedy.answers else ""
    for label, text in (
        ("Answers", answers or ", ".join(remedy.answers)),
        ("Costs", f"{remedy.cost}."),
        ("Not for", remedy.when_not),
        ("Based on", f"{remedy.evidence}."),
        ("Sources", ", ".join(remedy.sources)),
        ("Hardware", ", ".join(remedy.confirmed_on) or UNCONFIRMED),
    ):
        page.line()
        page.row(label, text, column=10, style=BOLD)
    if remedy.id == "unset-variable":
        _variables(page)
    return str(page)


def _variables(page: Page) -> None:
    page.heading("Variables, in the order in which they are unset")
    for each in harmful_variables():
        page.line(f"  {each.name}")
        page.paragraph(each.why, indent=4)
        failures, sources = ", ".join(each.failures), ", ".join(each.sources)
        page.paragraph(f"Unset after: {failures}. Sources: {sources}.", indent=4)
