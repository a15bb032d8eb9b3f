"""What is known of a failure, a message or a workaround, as ``rocsteady explain`` prints it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
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
from rocsteady.failures.difference import describe_changes
from rocsteady.failures.remedy import ANY, Remedy, load_remedies
from rocsteady.model import Certainty, Decision, Failure, FailureKind, Strategy
from rocsteady.screens.screen import Page
from rocsteady.wording import plural

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


class Previewed(NamedTuple):
    kind: KnownFailure
    choices: Sequence[Decision]
    end: Decision
    ranks: int

    @property
    def fix(self) -> Fix | None:
        """What somebody must do, where nothing else helps."""
        return self.kind.fix if self.end.needs_person else None

    @property
    def skipped(self) -> list[tuple[str, str]]:
        taken = {choice.remedy for choice in self.choices}
        return [each for each in self.end.skipped if each[0] not in taken]


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
    _to_do(page, kind, here)
    if workarounds := workarounds_for(kind):
        page.line()
        page.line("Workarounds", style=BOLD)
        page.paragraph(", ".join(workarounds), indent=2)
        page.line(f"  rocsteady explain --workarounds {kind.id}")
    _sources(page, failure.sources)
    return str(page)


def message_page(message: KnownMessage, line: str, page: Page) -> str:
    page.line(f"{message.id}  not a failure by itself", style=BOLD)
    page.paragraph(f"{message.title}.")
    page.line()
    page.line("Evidence", style=BOLD)
    page.line(f"  {line}")
    page.line()
    page.paragraph(message.words)
    page.line()
    page.line("What to do", style=BOLD)
    _fix(page, message.fix, (message.fix, *message.fix.then))
    _sources(page, message.sources)
    return str(page)


def _head(failure: Failure) -> str:
    rank = "" if failure.rank is None else f"  on rank {failure.rank}"
    sure = "" if failure.certainty is Certainty.CERTAIN else "  likely"
    return f"{failure.kind}{sure}{rank}"


def _seen(page: Page, failure: Failure) -> None:
    if not failure.seen:
        return
    page.line()
    page.line("Evidence", style=BOLD)
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
    page.line()
    page.line("Likely cause on this machine", style=BOLD)
    for finding in here.findings:
        page.paragraph(f"{finding.summary} ({finding.rule})", indent=2)
        page.lines(finding.fix.commands, indent=4)


def _to_do(page: Page, kind: KnownFailure, here: MachineContext) -> None:
    fix = kind.fix or kind.advice
    if fix is None:
        return
    page.line()
    page.line("What to do", style=BOLD)
    _fix(page, fix, here.steps(fix))


def _fix(page: Page, fix: Fix, steps: Sequence[Step]) -> None:
    if fix.check:
        page.paragraph("To check first:", indent=2)
        page.lines(fix.check, indent=4)
    indent = 5 if len(steps) > 1 else 4
    for number, step in enumerate(steps, start=1):
        page.step(number if len(steps) > 1 else None, step.text)
        here = os.name == "nt" and step.windows
        page.lines(step.windows if here else step.commands, indent=indent)
        if step.windows and not here:
            page.paragraph("On Windows, in PowerShell:", indent=indent)
            page.lines(step.windows, indent=indent)
    if fix.container:
        page.paragraph("In a container:", indent=2)
        page.lines(fix.container, indent=4)
    if fix.needs:
        page.paragraph(f"Needs: {', '.join(need.value for need in fix.needs)}.", indent=2)
    if fix.verify:
        page.paragraph(f"To check that it worked: {fix.verify}", indent=2)


def _sources(page: Page, sources: Iterable[str]) -> None:
    page.line()
    page.paragraph(f"Sources (unverified on hardware): {', '.join(sources)}", style=DIM)


def workarounds_page(remedies: Sequence[Remedy], page: Page) -> str:
    column = max(len(remedy.id) for remedy in remedies) + 2
    for remedy in remedies:
        page.row(remedy.id, f"{remedy.title}.", column=column, style=BOLD)
        page.row("", f"Cost: {remedy.cost}.", column=column)
    page.line()
    page.paragraph("Cheapest first; one change at a time. None has been confirmed on hardware.")
    page.line("rocsteady explain cpu")
    return str(page)


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
    page.line()
    page.line("Variables, in the order in which they are unset", style=BOLD)
    for each in harmful_variables():
        page.line(f"  {each.name}")
        page.paragraph(each.why, indent=4)
        failures, sources = ", ".join(each.failures), ", ".join(each.sources)
        page.paragraph(f"Unset after: {failures}. Sources: {sources}.", indent=4)


def preview_page(previewed: Previewed, page: Page) -> str:
    kind, fix = previewed.kind, previewed.fix
    page.line(kind.id, style=BOLD)
    page.paragraph(f"{kind.title}.")
    page.line()
    if fix is not None:
        page.paragraph(f"No workaround. {fix.text}")
        page.lines(fix.commands, indent=2)
        return str(page)
    if previewed.end.waits:
        page.paragraph(
            "This can clear up by itself, so rocsteady waits and tries again, 5 s to 10 min"
            " apart, until the deadline or for a day without progress (run --give-up-after)."
        )
        advice = kind.fix or kind.advice
        if advice is not None:
            page.paragraph(advice.text)
            page.lines(advice.commands, indent=2)
        page.line()
    changes = [it for it in previewed.choices if not it.waits]
    if previewed.end.waits and not changes:
        return str(page)
    if previewed.choices:
        page.paragraph("If this happened again and again, rocsteady would try, in this order:")
    else:
        page.paragraph("Nothing would be tried: no setting is known to fix this here.")
    column = max((len(name) for name in load_remedies()), default=0) + 2
    for number, choice in enumerate(previewed.choices, start=1):
        remedy = load_remedies()[choice.remedy]
        change = describe_changes(Strategy(), choice.strategy)
        text = f"{remedy.title}{f' ({change})' if change else ''}. Cost: {remedy.cost}."
        page.row(f"{number} {remedy.id}", text, indent=2, column=column + 2, style=BOLD)
    if previewed.skipped:
        page.line()
        page.line("Skipped", style=BOLD)
    for name, why in previewed.skipped:
        page.row(f"  {name}", f"{why}.", indent=2, column=column + 2)
    page.line()
    page.paragraph(
        "A workaround that does not help is reverted before the next one. This assumes that the"
        f" script resumes from checkpoints and has {plural(previewed.ranks, 'rank')}; its"
        f" DataLoaders were not inspected. {UNCONFIRMED}"
    )
    return str(page)
