"""``rocsteady remedies``: what may be changed after a failure, and what would be tried here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from rocsteady.cli.machine_options import open_root, python_option, root_option
from rocsteady.doctor.training_gpus import settings
from rocsteady.knowledge.failures import FailureKind, load_failures
from rocsteady.knowledge.harmful_variables import harmful_variables
from rocsteady.knowledge.reader import Knowledge, load_knowledge
from rocsteady.machine.machine import Machine, examine
from rocsteady.machine.root import Root
from rocsteady.model import Certainty, Failure, Fingerprint, Strategy
from rocsteady.remedies.difference import describe_changes
from rocsteady.remedies.ladder import RemedyChoice, preview
from rocsteady.remedies.remedy import ANY, Remedy, load_remedies
from rocsteady.remedies.situation import FailedAttempt, Situation
from rocsteady.report.text_page import BOLD, Page
from rocsteady.suggestions import no_such
from rocsteady.supervisor.visible_gpus import visible_to_a_run
from rocsteady.terminal.screen import json_text, layout, show
from rocsteady.wording import plural

AS_IF = 100  # the step at which a preview lets every attempt fail
LISTED = "To list them: rocsteady remedies"
FIND_FAILURE = 'To find the ID of a failure: rocsteady explain "ERROR MESSAGE"'
UNCONFIRMED = "Not confirmed on hardware by rocsteady's authors."


class Previewed(NamedTuple):
    """What would be tried against one kind of failure on one machine."""

    kind: FailureKind
    steps: Sequence[RemedyChoice]
    end: RemedyChoice
    ranks: int

    @property
    def passed_over(self) -> list[tuple[str, str]]:
        """What would not be tried at all, and why."""
        taken = {step.remedy for step in self.steps}
        return [(name, why) for name, why in self.end.skipped if name not in taken]


@click.command("remedies")
@click.option("--explain", metavar="ID", help="Explain one remedy.")
@click.option("--for", "kind", metavar="KIND", help="Show what would be tried here after KIND.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@python_option
@root_option
def command(
    *,
    explain: str | None,
    kind: str | None,
    as_json: bool,
    python: str | None,
    root: Path | None,
) -> None:
    """List what rocsteady may change on its own after a failure, cheapest first.

    KIND is the ID of a failure, such as hang-in-backward.

    Exit code: 0, or 2 for incorrect usage.
    """
    if explain and kind:
        raise click.UsageError("--explain and --for cannot be combined")
    if explain and explain not in load_remedies():
        raise click.BadParameter(
            no_such("remedy", explain, load_remedies(), LISTED), param_hint="--explain"
        )
    width, colour = layout(sys.stdout)
    page = Page(width, colour=colour)
    if kind:
        previewed = _previewed(kind, open_root(root, python))
        show(json_text(_told_preview(previewed)) if as_json else _preview_page(previewed, page))
        return
    chosen = [load_remedies()[explain]] if explain else [*load_remedies().values()]
    if as_json:
        show(json_text({"version": 1, "remedies": chosen}))
    else:
        show(_remedy_page(chosen[0], page) if explain else _list_page(chosen, page))


def _list_page(remedies: Sequence[Remedy], page: Page) -> str:
    column = max(len(remedy.id) for remedy in remedies) + 2
    for remedy in remedies:
        page.row(remedy.id, f"{remedy.title}.", column=column, style=BOLD)
        page.row("", f"Costs {remedy.cost}.", column=column)
    page.line()
    page.paragraph("Cheapest first; one change at a time. None has been confirmed on hardware.")
    page.line("rocsteady remedies --explain cpu")
    return str(page)


def _remedy_page(remedy: Remedy, page: Page) -> str:
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


def _previewed(name: str, root: Root) -> Previewed:
    kinds, knowledge = load_failures().kinds, load_knowledge()
    if name not in kinds:
        raise click.BadParameter(no_such("failure", name, kinds, FIND_FAILURE), param_hint="--for")
    machine, _ = examine(root, knowledge.variables)
    situation = _situation(kinds[name], machine, knowledge)
    *steps, end = preview(situation)
    return Previewed(kinds[name], steps, end, situation.ranks)


def _situation(kind: FailureKind, machine: Machine, knowledge: Knowledge) -> Situation:
    """Return a plain run that has just failed so: one rank a GPU, able to resume."""
    print_ = Fingerprint(kind=kind.id, step=AS_IF)
    seen = visible_to_a_run(machine, knowledge)
    return Situation(
        failure=Failure(
            kind=kind.id,
            title=kind.title,
            words=kind.words,
            certainty=Certainty.UNKNOWN,
            fingerprint=print_,
            seen=(),
        ),
        nature=kind.nature.value,
        whose=kind.whose.value,
        person=kind.fix,
        strategy=Strategy(),
        tried=(FailedAttempt(strategy=Strategy(), failure=print_, progressed=True, steps=AS_IF),),
        machine=machine,
        variables=dict(settings(machine)),
        can_resume=True,
        checkpoints=2,
        ranks=max(seen.gpus, 1),
        gpus=seen.gpus,
        gfx=seen.gfx,
        arches=seen.arches,
    )


def _told_preview(previewed: Previewed) -> dict[str, object]:
    return {
        "version": 1,
        "failure": previewed.kind.id,
        "steps": [
            {"remedy": step.remedy, "taken_back": step.reverted, "strategy": step.strategy}
            for step in previewed.steps
        ],
        "end": previewed.end.why,
        "passed_over": [{"remedy": name, "why": why} for name, why in previewed.passed_over],
        "person": previewed.end.person,
    }


def _preview_page(previewed: Previewed, page: Page) -> str:
    kind, fix = previewed.kind, previewed.end.person
    page.line(kind.id, style=BOLD)
    page.paragraph(f"{kind.title}.")
    page.line()
    if fix is not None:
        page.paragraph(f"Nothing would be tried: this needs a person. {fix.text}")
        page.lines(fix.commands, indent=2)
        return str(page)
    if previewed.steps:
        page.paragraph("If every attempt failed in this way, rocsteady would try, in this order:")
    else:
        page.paragraph("Nothing would be tried: no setting is known to fix this here.")
    column = max((len(name) for name in load_remedies()), default=0) + 2
    for number, step in enumerate(previewed.steps, start=1):
        remedy = load_remedies()[step.remedy]
        change = describe_changes(Strategy(), step.strategy or Strategy())
        text = f"{remedy.title}{f' ({change})' if change else ''}. Costs {remedy.cost}."
        page.row(f"{number} {remedy.id}", text, indent=2, column=column + 2, style=BOLD)
    if previewed.passed_over:
        page.line()
        page.line("Skipped", style=BOLD)
    for name, why in previewed.passed_over:
        page.row(f"  {name}", f"{why}.", indent=2, column=column + 2)
    page.line()
    page.paragraph(
        "A remedy that does not help is reverted before the next one. This assumes that the script"
        f" resumes from checkpoints and has {plural(previewed.ranks, 'rank')}; its DataLoaders were"
        f" not inspected. {UNCONFIRMED}"
    )
    return str(page)
