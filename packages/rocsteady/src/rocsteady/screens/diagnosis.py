"""The doctor's screen: the machine, what is wrong, what was not checked, one closing sentence."""

from __future__ import annotations

from rocsteady.doctor.knowledge.values import Severity
from rocsteady.doctor.values import ComputeDevice, Diagnosis, Finding, Unchecked
from rocsteady.screens.text_page import BOLD, DIM, RED, YELLOW, Page
from rocsteady.wording import plural

LABEL = 9
MIN_ID = 16
HERE = "this machine"  # confirmed here: what a probe saw, which has no rule to explain
MOST_COMMANDS = 2  # on the screen; --explain has them all
MOST_FINDINGS = 6  # in full, and everything that blocks; the others by name
LABELS = {Severity.BLOCKS: "BLOCK", Severity.RISKS: "RISK", Severity.NOTES: "note"}
STYLES = {Severity.BLOCKS: f"{BOLD} {RED}", Severity.RISKS: f"{BOLD} {YELLOW}", Severity.NOTES: DIM}
SEVERITY = 7  # columns


def render_diagnosis(diagnosis: Diagnosis, *, width: int, colour: bool) -> str:
    page = Page(width, colour=colour)
    _head(page, diagnosis)
    column = max([MIN_ID, *(len(finding.rule) + 2 for finding in diagnosis.findings)])
    if diagnosis.findings:
        page.line()
    shown, named = in_full(diagnosis)
    for finding in shown:
        _finding(page, finding, column)
    if named:
        others = ", ".join(f"{finding.rule} ({LABELS[finding.severity]})" for finding in named)
        page.row("also", others, column=SEVERITY, style=DIM)
    if diagnosis.unchecked:
        page.line()
        page.line("Not checked", style=DIM)
        for entry in diagnosis.unchecked:
            _unchecked(page, entry, SEVERITY + column - 2)
    page.line()
    page.paragraph(closing_sentence(diagnosis), style=BOLD)
    _hint(page, diagnosis)
    return str(page)


def in_full(diagnosis: Diagnosis) -> tuple[list[Finding], list[Finding]]:
    """Return what the screen shows in full, the worst first, and what it only names."""
    ordered = [finding for severity in Severity for finding in diagnosis.having(severity)]
    most = max(MOST_FINDINGS, len(diagnosis.having(Severity.BLOCKS)))
    return ordered[:most], ordered[most:]


def closing_sentence(diagnosis: Diagnosis) -> str:
    blocks = len(diagnosis.having(Severity.BLOCKS))
    risks = len(diagnosis.having(Severity.RISKS))
    notes = len(diagnosis.having(Severity.NOTES))
    if blocks:
        cpu = diagnosis.trains_on is ComputeDevice.CPU
        only_cpu = " Until it is fixed, expect training on the CPU at best." if cpu else ""
        if blocks > 1:
            only_cpu = only_cpu.replace("it is", "they are")
        problems = plural(blocks, "problem blocks", "problems block")
        return f"{problems} training on the AMD GPU.{only_cpu}"
    found = [plural(risks, "risk")] if risks else []
    found += [plural(notes, "note")] if notes else []
    return f"{', '.join(found) or 'No problems found'}. {_expectation(diagnosis)}"


def _expectation(diagnosis: Diagnosis) -> str:
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


def _head(page: Page, diagnosis: Diagnosis) -> None:
    machine = diagnosis.machine
    for index, gpu in enumerate((*machine.gpus, *machine.other_gpus) or ("no AMD GPU",)):
        page.row("" if index else "GPU", gpu, column=LABEL)
    page.row("System", machine.system, column=LABEL)
    page.row("PyTorch", machine.torch or "not found", column=LABEL)
    for detail in (machine.torch_code, machine.python):
        if detail:
            page.row("", detail, column=LABEL)
    facts, rules = plural(diagnosis.facts_read, "fact"), plural(diagnosis.rules_checked, "rule")
    known = diagnosis.knowledge
    of = f" (knowledge {known.version})" if known.version else ""
    page.row("Checked", f"{facts} read, {rules} checked{of}", column=LABEL)
    for note in known.notes:
        page.row("", note, column=LABEL)


def _finding(page: Page, finding: Finding, column: int) -> None:
    label = f"{LABELS[finding.severity]:<{SEVERITY}}{finding.rule}"
    style = STYLES[finding.severity]
    indent = page.row(label, finding.summary, column=SEVERITY + column, style=style)
    if finding.fix.commands:
        first, *rest = finding.fix.commands[:MOST_COMMANDS]
        page.lines([f"fix: {first}", *(f"     {command}" for command in rest)], indent=indent)
    else:
        page.paragraph(f"fix: {finding.fix.text}", indent=indent)


def _unchecked(page: Page, entry: Unchecked, column: int) -> None:
    rules = f" ({plural(len(entry.rules), 'rule')})" if entry.rules else ""
    page.row(entry.what, f"{entry.why}{rules}", indent=2, column=column)


def _hint(page: Page, diagnosis: Diagnosis) -> None:
    ruled = next((each for each in diagnosis.findings if HERE not in each.confirmed_on), None)
    if ruled:
        page.paragraph(f"Details: rocsteady doctor --explain {ruled.rule}")
    if not diagnosis.machine.torch:
        page.paragraph("To name the Python used for training: rocsteady doctor --python PATH")
