"""``rocsteady explain``: what is known of an error, of a failure, and of the workarounds for it."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import click
import msgspec
from rocsteady_train.untrusted_file import read_tail

from rocsteady.cli.completion import failure_names
from rocsteady.cli.options import open_root, python_option, root_option
from rocsteady.colours import BOLD, DIM
from rocsteady.doctor.diagnosis import CHECKS, doctors_knowledge, rule_findings
from rocsteady.doctor.facts import gather, visible_to_a_run
from rocsteady.doctor.knowledge.failures import (
    FailureKnowledge,
    KnownFailure,
    KnownMessage,
    Nature,
    find_message,
    load_failures,
)
from rocsteady.doctor.knowledge.harmful_variables import harmful_variables
from rocsteady.doctor.knowledge.reader import SLUG, Knowledge, load_knowledge
from rocsteady.doctor.knowledge.values import Fix, Step
from rocsteady.doctor.machine.machine import Machine, examine
from rocsteady.doctor.training_gpus import settings
from rocsteady.doctor.values import Finding
from rocsteady.errors import ExaminationError
from rocsteady.failures.classify import Classifier
from rocsteady.failures.difference import describe_changes
from rocsteady.failures.ladder import RemedyChoice, preview
from rocsteady.failures.remedy import ANY, Remedy, load_remedies
from rocsteady.failures.situation import FailedAttempt, Situation
from rocsteady.failures.symptoms import Symptoms
from rocsteady.model import Certainty, Failure, FailureKind, Fingerprint, Strategy
from rocsteady.screens.screen import Page, layout, show, show_json, without_secrets
from rocsteady.store.redaction import redactor_here
from rocsteady.suggestions import no_such
from rocsteady.system.root import Root
from rocsteady.wording import plural

NAMED, NOT_NAMED = 0, 1
MAX_BYTES = 64 * 1024 * 1024  # bytes of a file's end that are looked at
PIECE_BYTES = 1024 * 1024
FILE_NAME = re.compile(r"\S*/\S*|\S+\.\w{1,5}|.+\.(?:log|txt|out|err)", re.IGNORECASE)
RECOVERED = "The text shows progress after this failure, so the run may have recovered from it."
NATURES = {
    Nature.TRANSIENT: "This failure is often transient; retrying may be enough.",
    Nature.DETERMINISTIC: "The run will fail in the same way until something is changed.",
    Nature.EITHER: "This may be transient; if it happens twice in the same place, it is not.",
}


AS_IF = 100  # the step at which a preview lets every attempt fail
LIST_WORKAROUNDS = "To list them: rocsteady explain --workarounds"
FIND_FAILURE = 'To find the ID of a failure: rocsteady explain "ERROR MESSAGE"'
UNCONFIRMED = "Unverified on hardware."


@click.command("explain")
@click.argument("text", required=False, shell_complete=failure_names)
@click.option(
    "--workarounds",
    is_flag=True,
    help="List all workarounds, or those tried here after the failure TEXT.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@python_option
@root_option
@click.pass_context
def command(  # noqa: PLR0913 - one argument an option
    ctx: click.Context,
    *,
    text: str | None,
    workarounds: bool,
    as_json: bool,
    python: str | None,
    root: Path | None,
) -> None:
    """Identify the failure in TEXT and show what is known about it, with workarounds.

    TEXT is an error message, a file with output, a kernel log or stacks, or - for standard input;
    or an ID: of a failure (hang-in-loader), a workaround (loader-inline), a finding of the doctor
    (igpu-visible) or a GPU (gfx1100). Nothing in it is executed, and nothing leaves this machine.

    Exit code: 0 identified, 1 not identified, 2 incorrect usage.
    """
    if (root or python) and (text is None or text in load_remedies()):
        raise click.UsageError("--root and --python need an error message or the ID of a failure")
    if workarounds:
        _show_workarounds(text, open_root(root, python) if text else None, as_json=as_json)
    elif text is None:
        raise click.UsageError('name an error message, a file or an ID: rocsteady explain "TEXT"')
    elif text in load_remedies():
        _show_workaround(load_remedies()[text], as_json=as_json)
    elif (doctors := _doctor_knowing(text)) is not None:
        from rocsteady.cli.doctor import explained  # noqa: PLC0415 - seldom needed

        show(explained(doctors, text, as_json=as_json))
    else:
        ctx.exit(_show_failure(text, open_root(root, python), as_json=as_json))


def _doctor_knowing(text: str) -> Knowledge | None:
    """Return the doctor's knowledge if a text names a rule or a GPU, as the doctor prints them."""
    if not SLUG.fullmatch(text):
        return None
    knowledge = doctors_knowledge()
    return knowledge if text in knowledge.rules or text in knowledge.arches else None


class Here(NamedTuple):
    """What this machine has to do with a failure."""

    findings: tuple[Finding, ...]  # of the doctor, that can be its cause
    gpus: frozenset[str]  # architectures and families; none where no GPU was found

    def steps(self, fix: Fix) -> list[Step]:
        """Return what to do, without what is for other GPUs."""
        steps = (fix, *fix.then)
        return [it for it in steps if not it.gpus or not self.gpus or self.gpus & {*it.gpus}]


def _here(kind: str, root: Root) -> Here:
    knowledge = doctors_knowledge()
    try:
        machine, _ = examine(root, knowledge.variables)
    except Exception:  # noqa: BLE001 - what is known of the failure is worth showing without it
        return Here((), frozenset())
    facts = gather(machine, knowledge)
    found = rule_findings(machine, facts, knowledge, CHECKS).findings
    names = {gfx for gfx in map(str, facts.values("gpu.gfx")) if gfx in knowledge.arches}
    families = {knowledge.arches[gfx].family for gfx in names}
    causes = {rule.id for rule in knowledge.rules.values() if kind in rule.leads_to}
    return Here(
        tuple(without_secrets(it) for it in found if it.rule in causes), frozenset(names | families)
    )


def _show_failure(text: str, root: Root, *, as_json: bool) -> int:
    knowledge = load_failures()
    recovered = False
    if text in knowledge.kinds:
        named = _failure_of(knowledge.kinds[text])
    else:
        given = _given(text)
        classifier = Classifier(knowledge)
        named = classifier.name(Symptoms(log=given))
        earlier = named.kind == FailureKind.UNKNOWN and classifier.name(
            Symptoms(log=given), recovered=True
        )
        recovered = bool(earlier and earlier.kind != FailureKind.UNKNOWN)
        if earlier and recovered:
            named = msgspec.structs.replace(earlier, certainty=Certainty.LIKELY)
        message = find_message(given) if named.kind == FailureKind.UNKNOWN else None
        if message is not None:
            _show_message(*message, as_json=as_json)
            return NAMED
        if named.kind == FailureKind.UNKNOWN and given == text:
            _refuse_name(text, knowledge)
    failure = msgspec.convert(redactor_here().value(msgspec.to_builtins(named)), Failure)
    here = _here(failure.kind, root)
    if as_json:
        show_json(
            {
                "version": 1,
                "failure": failure,
                "known": knowledge.kinds[failure.kind],
                "here": here.findings,
                "recovered": recovered,
                "workarounds": _workarounds_for(knowledge.kinds[failure.kind]),
            }
        )
    else:
        width, colour = layout(sys.stdout)
        page = Page(width, colour=colour)
        show(render(failure, knowledge, here, page=page, recovered=recovered))
    return NOT_NAMED if failure.kind == FailureKind.UNKNOWN else NAMED


def _refuse_name(text: str, knowledge: FailureKnowledge) -> None:
    """Refuse what can only be the name of a file, a failure or a workaround that does not exist."""
    if FILE_NAME.fullmatch(text):
        raise click.BadParameter(f"file {text!r} does not exist.", param_hint="TEXT")
    if SLUG.fullmatch(text) and "-" in text:
        known = (*knowledge.kinds, *load_remedies(), *doctors_knowledge().rules)
        unknown = no_such("failure, workaround or rule", text, known, LIST_WORKAROUNDS)
        raise click.BadParameter(unknown, param_hint="TEXT")


def _failure_of(kind: KnownFailure) -> Failure:
    return Failure(
        kind=kind.id,
        title=kind.title,
        words=kind.words,
        certainty=Certainty.CERTAIN,
        fingerprint=Fingerprint(kind=kind.id, step=AS_IF),
        seen=(),
        sources=kind.sources,
    )


def _workarounds_for(kind: KnownFailure) -> list[str]:
    """Return what may be tried against a failure on some machine; none where it takes a person."""
    remedies = load_remedies().values()
    return [] if kind.fix else [it.id for it in remedies if kind.id in it.answers]


def _show_message(message: KnownMessage, line: str, *, as_json: bool) -> None:
    line = redactor_here().text(line)
    if as_json:
        show_json({"version": 1, "message": message, "line": line})
        return
    width, colour = layout(sys.stdout)
    page = Page(width, colour=colour)
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
    show(str(page))


def render(
    failure: Failure,
    knowledge: FailureKnowledge,
    here: Here,
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
    if workarounds := _workarounds_for(kind):
        page.line()
        page.line("Workarounds", style=BOLD)
        page.paragraph(", ".join(workarounds), indent=2)
        page.line(f"  rocsteady explain --workarounds {kind.id}")
    _sources(page, failure.sources)
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


def _likely_here(page: Page, here: Here) -> None:
    if not here.findings:
        return
    page.line()
    page.line("Likely cause on this machine", style=BOLD)
    for finding in here.findings:
        page.paragraph(f"{finding.summary} ({finding.rule})", indent=2)
        page.lines(finding.fix.commands, indent=4)


def _to_do(page: Page, kind: KnownFailure, here: Here) -> None:
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


def _given(text: str) -> str:
    """Return the text itself, what is piped in, or the end of the file of that name."""
    if text == "-":
        return _end_of(sys.stdin.buffer)
    try:
        if text.startswith("/dev/fd/"):  # a pipe of the shell: explain <(dmesg)
            with open(text, "rb") as file:  # noqa: PTH123 - no path of a file
                return _end_of(file)
        return read_tail(text, MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        if isinstance(error, PermissionError):
            raise ExaminationError(f"{text}: {error.strerror}") from None
        if "\0" in text or not os.path.lexists(text):  # not the name of a file
            return text
        if os.path.isdir(text):  # noqa: PTH112 - it may be no path
            raise click.BadParameter(f"{text} is a folder.", param_hint="TEXT") from None
        raise ExaminationError(f"{text}: not a regular file. Use - to read from a pipe") from None


def _end_of(stream: BinaryIO) -> str:
    """Read to the end and keep the last of it; memory is bounded."""
    pieces: deque[bytes] = deque()
    size = 0
    while piece := stream.read(PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        while size - len(pieces[0]) >= MAX_BYTES:
            size -= len(pieces.popleft())
    return b"".join(pieces)[-MAX_BYTES:].decode("utf-8", "replace")


class Previewed(NamedTuple):
    kind: KnownFailure
    choices: Sequence[RemedyChoice]
    end: RemedyChoice
    ranks: int

    @property
    def skipped(self) -> list[tuple[str, str]]:
        taken = {choice.remedy for choice in self.choices}
        return [(name, why) for name, why in self.end.skipped if name not in taken]


def _show_workarounds(kind: str | None, root: Root | None, *, as_json: bool) -> None:
    """List every workaround, or what would be tried after a failure on a machine."""
    width, colour = layout(sys.stdout)
    page = Page(width, colour=colour)
    if kind and root:
        previewed = _previewed(kind, root)
        if as_json:
            show_json(_preview_json(previewed))
        else:
            show(_preview_page(previewed, page))
    elif as_json:
        show_json({"version": 1, "workarounds": [*load_remedies().values()]})
    else:
        show(_list_page([*load_remedies().values()], page))


def _show_workaround(remedy: Remedy, *, as_json: bool) -> None:
    if as_json:
        show_json({"version": 1, "workaround": remedy})
        return
    width, colour = layout(sys.stdout)
    show(_remedy_page(remedy, Page(width, colour=colour)))


def _list_page(remedies: Sequence[Remedy], page: Page) -> str:
    column = max(len(remedy.id) for remedy in remedies) + 2
    for remedy in remedies:
        page.row(remedy.id, f"{remedy.title}.", column=column, style=BOLD)
        page.row("", f"Cost: {remedy.cost}.", column=column)
    page.line()
    page.paragraph("Cheapest first; one change at a time. None has been confirmed on hardware.")
    page.line("rocsteady explain cpu")
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
        raise click.BadParameter(no_such("failure", name, kinds, FIND_FAILURE), param_hint="TEXT")
    machine, _ = examine(root, knowledge.variables)
    situation = _situation(kinds[name], machine, knowledge)
    *choices, end = preview(situation)
    return Previewed(kinds[name], choices, end, situation.ranks)


def _situation(kind: KnownFailure, machine: Machine, knowledge: Knowledge) -> Situation:
    """Return a plain run that has just failed so: one rank a GPU, able to resume."""
    failure = _failure_of(kind)
    seen = visible_to_a_run(machine, knowledge)
    failed = FailedAttempt(
        strategy=Strategy(), failure=failure.fingerprint, progressed=True, steps=AS_IF
    )
    return Situation(
        failure=failure,
        nature=kind.nature,
        clears=kind.clears,
        component=kind.component,
        person=kind.fix,
        strategy=Strategy(),
        tried=(failed,),
        machine=machine,
        variables=dict(settings(machine)),
        can_resume=True,
        checkpoints=2,
        ranks=max(seen.gpus, 1),
        gpus=seen.gpus,
        gfx=seen.gfx,
        arches=seen.arches,
    )


def _preview_json(previewed: Previewed) -> dict[str, object]:
    return {
        "version": 1,
        "failure": previewed.kind.id,
        "tried": [
            {"workaround": it.remedy, "reverted": it.reverted, "strategy": it.strategy}
            for it in previewed.choices
        ],
        "end": previewed.end.why,
        "waits": previewed.end.waits,
        "skipped": [{"workaround": name, "why": why} for name, why in previewed.skipped],
        "person": previewed.end.person,
    }


def _preview_page(previewed: Previewed, page: Page) -> str:
    kind, fix = previewed.kind, previewed.end.person
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
        change = describe_changes(Strategy(), choice.strategy or Strategy())
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
