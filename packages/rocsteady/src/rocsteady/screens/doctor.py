"""The screens of the doctor: a diagnosis, rules, knowledge, and variables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from rocsteady.colours import BOLD, DIM, GREEN, RED, YELLOW
from rocsteady.doctor.gpu_reports import GpuReports
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.rules import PLACEHOLDER, Rule
from rocsteady.doctor.knowledge.state import last_checked
from rocsteady.doctor.knowledge.values import (
    Area,
    Confidence,
    Effect,
    Fix,
    Severity,
    Source,
)
from rocsteady.doctor.values import (
    AFTERWARDS,
    Brief,
    ComputeDevice,
    Diagnosis,
    Finding,
    KnowledgeReport,
    VariableReview,
    VariableVerdict,
    steps_in_order,
)
from rocsteady.screens.explain import draw_fix
from rocsteady.screens.screen import COLUMN_GAP, NARROW, Page, wrapped
from rocsteady.wording import plural

LABEL = 14  # columns of a mark and the name of an area
PASTE_WIDTH, PASTE_LINES = 100, 80  # of a block for an issue
SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")
FINDING_WIDTH = 70  # characters of a finding that say what is wrong, and why that matters
SEVERAL = 2  # fixes, from which on their commands are one list
HERE = "this machine"  # confirmed here: what a probe saw, which has no rule to explain
LABELS = {Severity.BLOCKS: "block:", Severity.RISKS: "risk:", Severity.NOTES: "note:"}
STYLES = {Severity.BLOCKS: RED, Severity.RISKS: YELLOW, Severity.NOTES: DIM}
COUNTED = {Severity.BLOCKS: "problem", Severity.RISKS: "risk", Severity.NOTES: "note"}
Pieces = tuple[tuple[str, str], ...]  # of one line, each with its style


class Mark(NamedTuple):
    """How an area is, in one character."""

    sign: str
    plain: str  # where there is no colour, there may be only ASCII
    style: str


OK, RISK, BLOCK = Mark("\u2713", "+", GREEN), Mark("!", "!", YELLOW), Mark("\u2717", "x", RED)
ABSENT = Mark("-", "-", DIM)
MARKS = {Severity.BLOCKS: BLOCK, Severity.RISKS: RISK}


def render_diagnosis(diagnosis: Diagnosis, *, page: Page, everything: bool = False) -> str:
    """Draw an area a mark and what is wrong with it; then the verdict, and what to do, in order.

    No risk is left out: one that corrupts results looks like any other until it is read.
    """
    indent = LABEL if page.width - LABEL >= NARROW else 2
    hidden = () if everything else diagnosis.having(Severity.NOTES)
    shown = [each for each in diagnosis.findings if each not in hidden]
    several = sum(bool(each.fix.commands) for each in shown) >= SEVERAL
    steps = steps_in_order(shown) if several and not everything else ()
    for area in Area:
        texts = _texts(area, diagnosis, everything=everything)
        indented = (line for text in texts for line in wrapped(text, page.width - indent))
        lines: list[Pieces] = [((line, ""),) for line in indented]
        for finding in (each for each in shown if each.area is area):
            lines += _finding(finding, page.width - indent, everything=everything, listed=steps)
        _rows(page, _mark(area, diagnosis), area.value, lines, indent)
    _unchecked(page, diagnosis, indent, everything=everything)
    if everything:
        _checked(page, diagnosis)
    if diagnosis.more:
        page.row("    more", diagnosis.more, column=LABEL, style=DIM)
    page.line()
    more = (hidden or diagnosis.unchecked) and not everything
    verdict, counts = _expectation(diagnosis), _counts(diagnosis)
    counts = f"{counts} (rocsteady doctor -v)." if more else f"{counts}."
    if steps:
        page.paragraph(f"{verdict} Do this, in order:", style=BOLD)
        for number, step in enumerate((*steps, "rocsteady doctor"), start=1):
            page.line(f"{number:>3}. {step}")
        page.paragraph(counts, style=BOLD)
    elif len(verdict) + 1 + len(counts) <= page.width:
        page.line(f"{verdict} {counts}", style=BOLD)
    else:
        page.paragraph(verdict, style=BOLD)
        page.paragraph(counts, style=BOLD)
    return str(page)


def _rows(page: Page, mark: Mark, label: str, lines: Sequence[Pieces], indent: int) -> None:
    """Draw an area: its mark and name, and beside or below them what there is to say."""
    if not lines:
        return
    sign = mark.sign if page.colour else mark.plain
    head = (f"[{sign}] {label}", mark.style)
    rest = list(lines)
    if indent == LABEL:
        first = rest.pop(0)
        page.styled_line(head, (" " * (LABEL - len(head[0])), ""), *first)
    else:
        page.styled_line(head)
    for line in rest:
        page.styled_line((" " * indent, ""), *line)


def _mark(area: Area, diagnosis: Diagnosis) -> Mark:
    machine = diagnosis.machine
    found = [each.severity for each in diagnosis.findings if each.area is area]
    for severity, mark in MARKS.items():
        if severity in found:
            return mark
    absent = {Area.GPU: not machine.gpus, Area.PYTORCH: not machine.torch}
    return ABSENT if absent.get(area) else OK


def _texts(area: Area, diagnosis: Diagnosis, *, everything: bool) -> Sequence[str]:
    """Return what an area is, whether or not something is wrong with it."""
    machine = diagnosis.machine
    if area is Area.GPU:
        return (*machine.gpus, *machine.other_gpus, *machine.gpu_use) or ("no AMD GPU",)
    if area is Area.DRIVER:
        return (machine.system,)
    if area is Area.PYTORCH:
        return _torch_texts(machine, everything=everything)
    wrong = any(each.area is area and each.severity in MARKS for each in diagnosis.findings)
    return ("no harmful variables set",) if area is Area.SETTINGS and not wrong else ()


def _torch_texts(machine: Brief, *, everything: bool) -> Sequence[str]:
    if not machine.torch:
        here = "not found; if it is elsewhere: rocsteady doctor --python PATH"
        return (here, "to install it: rocsteady wheels") if machine.gpus else (here,)
    if everything:
        return [text for text in (machine.torch, machine.torch_code, machine.python) if text]
    covers = f", has kernels for {', '.join(machine.torch_covers)}" if machine.torch_covers else ""
    return (machine.torch + covers,)


def _finding(
    finding: Finding, width: int, *, everything: bool, listed: Sequence[str]
) -> Iterator[Pieces]:
    """Draw what is wrong, with the rule at its end, and below it what to do if no list has it."""
    summary = finding.summary if everything else first_sentences(finding.summary)
    label = LABELS[finding.severity]
    first, *rest = wrapped(f"{label} {summary}", width)
    head = ((label, STYLES[finding.severity]), (first.removeprefix(label), ""))
    lines: list[Pieces] = [head, *(((line, ""),) for line in rest)]
    gap = width - sum(len(text) for text, _ in lines[-1]) - len(finding.rule)
    if gap >= COLUMN_GAP:
        lines[-1] = (*lines[-1], (" " * gap, ""), (finding.rule, DIM))
    else:
        lines.append(((" " * max(0, width - len(finding.rule)), ""), (finding.rule, DIM)))
    yield from lines
    for line in _fix(finding.fix, width, everything=everything, listed=listed):
        yield ((line, ""),)


def _fix(fix: Fix, width: int, *, everything: bool, listed: Sequence[str]) -> Iterator[str]:
    if not fix.commands:
        text = fix.text if everything else first_sentences(fix.text)
        yield from wrapped(f"fix: {text}", width)
    elif not listed:
        yield from (f"{' ' * 5 if n else 'fix: '}{it}" for n, it in enumerate(fix.commands))
        yield from (f"     then {AFTERWARDS[need]}" for need in fix.needs if need in AFTERWARDS)
    yield from (f"check: {command}" for command in fix.check[:1])


def first_sentences(text: str) -> str:
    """Return the sentences of a text until they say enough; a full stop ends one."""
    found = ""
    for sentence in SENTENCE_END.split(" ".join(text.split())):
        found = f"{found} {sentence}".lstrip()
        if len(found) >= FINDING_WIDTH:
            break
    return found


def _unchecked(page: Page, diagnosis: Diagnosis, indent: int, *, everything: bool) -> None:
    told = everything or diagnosis.machine.torch  # that there is none, the line above says
    entries = [entry for entry in diagnosis.unchecked if told or entry.what != "torch"]
    texts = [", ".join(dict.fromkeys(entry.what for entry in entries))] if entries else []
    if everything:
        texts = [
            f"{entry.what}: {entry.why}"
            + (f" ({plural(len(entry.rules), 'rule')})" if entry.rules else "")
            for entry in entries
        ]
    lines = [((line, ""),) for text in texts for line in wrapped(text, page.width - indent)]
    _rows(page, ABSENT, "Unknown", lines, indent)


def _checked(page: Page, diagnosis: Diagnosis) -> None:
    facts, rules = plural(diagnosis.facts_read, "fact"), plural(diagnosis.rules_checked, "rule")
    known = diagnosis.knowledge
    of = f" (knowledge {known.version})" if known.version else ""
    page.row("    Checked", f"{facts} read, {rules} checked{of}", column=LABEL)
    for note in known.notes:
        page.row("", note, column=LABEL)
    ruled = next((each for each in diagnosis.findings if HERE not in each.confirmed_on), None)
    if ruled:
        page.row("    Details", f"rocsteady explain {ruled.rule}", column=LABEL)


def _counts(diagnosis: Diagnosis) -> str:
    counts = [
        plural(len(found), COUNTED[severity])
        for severity in Severity
        if (found := diagnosis.having(severity))
    ]
    return ", ".join(counts) or "No problems found"


def _expectation(diagnosis: Diagnosis) -> str:  # noqa: PLR0911 - one return a verdict
    if blocking := diagnosis.having(Severity.BLOCKS):
        yet = " yet" if all(each.fix.mends for each in blocking) else ""
        cpu = ", only on the CPU" if diagnosis.trains_on is ComputeDevice.CPU else ""
        return f"Training on the AMD GPU will not work{yet}{cpu}."
    if not diagnosis.machine.torch:
        return "No PyTorch was found, so it is unknown what this machine can train on."
    partly = any(entry.rules for entry in diagnosis.unchecked)
    checked = ", as far as could be checked" if partly else ""
    if diagnosis.trains_on is ComputeDevice.GPU:
        gpus = " and ".join(diagnosis.trains_on_gpus)
        if any(finding.training_hung for finding in diagnosis.findings):
            return (
                f"Nothing blocks training{checked}, but it has hung on {gpus} before: test it"
                " first."
            )
        return f"Training should work on {gpus}{checked}."
    if diagnosis.trains_on is ComputeDevice.UNKNOWN:
        return (
            f"Nothing blocks training{checked}; rocsteady cannot see from here which GPU it would"
            " use."
        )
    if diagnosis.machine.gpus:
        return "Training will run on the CPU: PyTorch will not use the GPU as configured."
    return "Training will run on the CPU: no AMD GPU is available."


def render_paste(diagnosis: Diagnosis) -> str:
    """Draw everything as a block for an issue."""
    screen = render_diagnosis(diagnosis, page=Page(PASTE_WIDTH, colour=False), everything=True)
    lines = [line for line in screen.splitlines() if line]
    if len(lines) > PASTE_LINES:
        lines = [*lines[: PASTE_LINES - 2], "...", lines[-1]]
    head = f"rocsteady {diagnosis.rocsteady} doctor -v"
    return "\n".join(["```text", head, *lines, "```", ""])


STANDS_FOR = {"gpu.extras": "device-<gfx>", "gpu.discrete.indices": "<numbers>"}  # no machine


def evidence(rule: Rule, sources: Mapping[str, Source]) -> str:
    """Return what a rule rests on: measured, official, code, or how many reports."""
    if rule.evidence or rule.confidence is not Confidence.COMMUNITY:
        return rule.evidence or rule.confidence.value
    threads = sum(sources[key].number is not None for key in rule.sources)
    return f"reported by {threads}" if threads else "reported"


def render_rule(rule: Rule, knowledge: Knowledge, *, page: Page, out_of_date: bool = False) -> str:
    sources = knowledge.sources
    page.line(f"{rule.id}  {LABELS[rule.severity].rstrip(':')}", style=BOLD)
    page.paragraph(f"{rule.title}.")
    page.line()
    page.paragraph(rule.why)
    page.heading("What to do")
    draw_fix(page, rule.fix, (rule.fix,), partial(typed, knowledge=knowledge))
    if any("<gfx>" in command for command in typed(rule.fix.commands, knowledge)):
        page.paragraph("With the GPU's name in it: rocsteady wheels --gpu GFX", indent=2)
    page.heading("Sources")
    disputed = ", disputed" if rule.disputed else ""
    page.paragraph(f"Evidence: {evidence(rule, sources)}{disputed}.", indent=2)
    day = last_checked(rule, sources)
    page.paragraph(f"Last checked: {day}{', out of date' if out_of_date else ''}.", indent=2)
    confirmed = ", ".join(rule.confirmed_on) or "no"
    page.paragraph(f"Confirmed on hardware: {confirmed}.", indent=2)
    for key in rule.sources:
        _source(page, sources[key])
    return str(page)


def render_gpu(reports: GpuReports, *, page: Page) -> str:
    """List what is known of a GPU: problems, and where people wrote about it."""
    arch = reports.arch
    page.line(f"{arch.gfx}  {arch.name}", style=BOLD)
    page.paragraph(f"{', '.join(arch.cards)}.")
    if reports.rules:
        page.heading("Known problems")
        column = max(len(rule.id) for rule in reports.rules) + 2
        for rule in reports.rules:
            page.row(rule.id, rule.title, indent=2, column=column)
    if reports.threads:
        page.heading("Threads")
        for source in reports.threads:
            _source(page, source)
    page.line()
    page.line("To see which of them concern this machine: rocsteady doctor")
    page.line(f"To list its torch builds: rocsteady wheels --gpu {arch.gfx}")
    if reports.rules:
        page.line(f"To read about one problem: rocsteady explain {reports.rules[0].id}")
    return str(page)


def typed(commands: Iterable[str], knowledge: Knowledge) -> list[str]:
    """Return commands as one would type them; what a machine would fill in is in angle brackets."""
    amd = next((index.address for index in knowledge.indexes), "")
    pytorch = f"--index-url {amd} 'torch[device-<gfx>]'"
    known = {**STANDS_FOR, "wheels.amd": amd, "wheels.pytorch": pytorch}
    return [
        PLACEHOLDER.sub(lambda found: known.get(found[1], f"<{found[1]}>"), command)
        for command in commands
    ]


def _source(page: Page, source: Source) -> None:
    number = f"#{source.number}" if source.number else ""
    page.paragraph(f"{source.owner}/{source.name}{number}, {source.date}: {source.title}", indent=2)
    if source.url:
        page.line(f"    {source.url}")


TABLE_LABEL = 20
IGNORED_SHOWN = 5  # ignored entries by name; --json has them all


def render_knowledge(report: KnowledgeReport, *, page: Page) -> str:
    age = plural(report.state.age_days, "day")
    page.line(f"Knowledge {report.state.version} ({age} old)", style=BOLD)
    for table in report.tables:
        days = plural(table.age_days or 0, "day")
        newest = f"newest source {table.newest_source} ({days} old)" if table.newest_source else ""
        old = f", {table.out_of_date:,} out of date" if table.out_of_date else ""
        page.line(f"{table.name:<{TABLE_LABEL}}{table.entries:>6,}  {newest}{old}".rstrip())
    newer = "newer than this rocsteady understands" if report.ignored else ""
    page.line(f"{'ignored':<{TABLE_LABEL}}{len(report.ignored):>6,}  {newer}".rstrip())
    page.lines(report.ignored[:IGNORED_SHOWN], indent=2)
    page.heading("Compared with what is upstream")
    for watcher in report.watchers:
        lines = (*watcher.open, *watcher.changed)
        seen = f"on {watcher.looked}, {watcher.at}" if watcher.looked else "never yet"
        page.line(f"{watcher.name:<{TABLE_LABEL}}{len(lines):>6,} open  {seen}")
        page.lines(lines[:IGNORED_SHOWN], indent=2)
    for note in report.state.notes:
        page.paragraph(note, style=YELLOW)
    page.line()
    page.line(f"To upgrade: {report.upgrade}")
    return str(page)


EFFECT_COLUMN = 11
NO_GPU = "Effects that depend on the GPU cannot be judged here. To judge them for another machine:"
FOR_ANOTHER = "rocsteady env FILE --root RECORDING"
EFFECT_STYLES = {
    Effect.HARMS: f"{BOLD} {RED}",
    Effect.CANCELS: YELLOW,
    Effect.CANCELLED: YELLOW,
    Effect.UNKNOWN: YELLOW,
    Effect.INVALID: YELLOW,
    Effect.NONE: DIM,
    Effect.PARTLY: YELLOW,
    Effect.DEBUGGING: YELLOW,
    Effect.DEPENDS: DIM,
    Effect.HELPS: GREEN,
    Effect.ACTS: GREEN,
}


def render_variables(review: VariableReview, *, page: Page) -> str:
    gpus = ", ".join(review.machine.gpus) or "a machine without an AMD GPU"
    page.paragraph(f"{review.file or 'Variables in effect'}, judged for {gpus}", style=BOLD)
    page.paragraph(f"PyTorch {review.machine.torch or 'not found'}; {review.machine.system}")
    if not review.machine.gpus:
        page.paragraph(NO_GPU)
        page.line(f"  {FOR_ANOTHER}")
    page.line()
    worst_first = sorted(review.variables, key=lambda each: list(Effect).index(each.effect))
    for verdict in review.variables if review.file else worst_first:
        _verdict(page, verdict)
    if review.variables:
        page.line()
    page.paragraph(_variable_counts(review), style=BOLD)
    return str(page)


def _variable_counts(review: VariableReview) -> str:
    if not review.variables:
        return "No ROCm or PyTorch variable is set."
    counts = Counter(verdict.effect for verdict in review.variables)
    totals = ", ".join(f"{effect.value} {counts[effect]}" for effect in Effect if counts[effect])
    return f"{plural(len(review.variables), 'variable')}: {totals}."


def _verdict(page: Page, verdict: VariableVerdict) -> None:
    value = "" if verdict.value is None else f"={verdict.value}"
    place = f" ({verdict.place})" if verdict.place else ""
    label = verdict.effect.value
    page.styled_line(
        (label, EFFECT_STYLES[verdict.effect]),
        (" " * (EFFECT_COLUMN - len(label)), ""),
        (f"{verdict.name}{value}", BOLD),
        (place, DIM),
    )
    named = re.compile(rf"{re.escape(verdict.name)}({re.escape(value)})?( is set\.| is|:)? (\w)")
    for reason in verdict.reasons:
        rule = f" ({reason.rule})" if reason.rule else ""
        found = named.match(reason.text)  # the line above has it
        text = found[3].upper() + reason.text[found.end() :] if found else reason.text
        page.paragraph(f"{text}{rule}", indent=EFFECT_COLUMN)
