"""The doctor's screen: the machine, what is wrong, what was not checked, one closing sentence."""

from __future__ import annotations

from rocsteady.report.page import BOLD, DIM, RED, YELLOW, Page, counted
from rocsteady.vocabulary import ComputeDevice, Diagnosis, Finding, Severity, Unchecked

LABEL = 9
MIN_ID = 16
HERE = "this machine"  # confirmed here: what a probe saw, and no rule has a story of
MOST_COMMANDS = 2  # on the screen; --explain has them all
STYLES = {Severity.BLOCKS: RED, Severity.RISKS: YELLOW, Severity.NOTES: DIM}


def render_diagnosis(diagnosis: Diagnosis, *, width: int, colour: bool) -> str:
    """Lay out the screen."""
    page = Page(width, colour=colour)
    _head(page, diagnosis)
    column = max([MIN_ID, *(len(finding.rule) + 2 for finding in diagnosis.findings)])
    for severity in Severity:
        findings = diagnosis.having(severity)
        if findings:
            page.line()
            page.line(severity.value.upper(), style=f"{BOLD};{STYLES[severity]}")
        for finding in findings:
            _finding(page, finding, column)
    if diagnosis.unchecked:
        page.line()
        page.line("NOT CHECKED", style=f"{BOLD};{DIM}")
        for entry in diagnosis.unchecked:
            _unchecked(page, entry, column)
    page.line()
    page.paragraph(closing_sentence(diagnosis), style=BOLD)
    _hint(page, diagnosis)
    return str(page)


def closing_sentence(diagnosis: Diagnosis) -> str:
    """Say what this machine can be expected to train on."""
    blocks = len(diagnosis.having(Severity.BLOCKS))
    risks = len(diagnosis.having(Severity.RISKS))
    if blocks:
        keeps = "thing keeps" if blocks == 1 else "things keep"
        at_best = ": expect the CPU at best" if diagnosis.trains_on is ComputeDevice.CPU else ""
        return f"{blocks} {keeps} the AMD GPU from training{at_best}, until that is mended."
    at_risk = f" {counted(risks, 'thing puts', 'things put')} it at risk." if risks else ""
    return f"{_expectation(diagnosis)}{at_risk}"


def _expectation(diagnosis: Diagnosis) -> str:
    """Say what to expect where nothing blocks."""
    if not diagnosis.machine.torch:
        return "What this machine can train on is open: no torch was examined."
    partly = any(entry.rules for entry in diagnosis.unchecked)
    nothing = (
        "As far as could be checked, nothing blocks training"
        if partly
        else "Nothing found here blocks training"
    )
    if diagnosis.trains_on is ComputeDevice.GPU:
        return f"{nothing}: expect it to run on {' and '.join(diagnosis.trains_on_gpus)}."
    if diagnosis.trains_on is ComputeDevice.UNKNOWN:
        return f"{nothing}; which GPU it would use cannot be seen from here."
    if diagnosis.machine.gpus:
        return f"{nothing}: expect the CPU, for torch will not use the GPU as things stand."
    return f"{nothing}, and no AMD GPU is in reach: expect the CPU."


def _head(page: Page, diagnosis: Diagnosis) -> None:
    machine = diagnosis.machine
    for index, gpu in enumerate((*machine.gpus, *machine.other_gpus) or ("no AMD GPU",)):
        page.row("" if index else "GPU", gpu, column=LABEL)
    page.row("System", machine.system, column=LABEL)
    page.row("torch", machine.torch or "none", column=LABEL)
    for detail in (machine.torch_code, machine.python):
        if detail:
            page.row("", detail, column=LABEL)
    rules = counted(diagnosis.rules_checked, "rule")
    page.row("Read", f"{counted(diagnosis.facts_read, 'fact')}, {rules} checked", column=LABEL)


def _finding(page: Page, finding: Finding, column: int) -> None:
    indent = page.row(finding.rule, finding.summary, indent=2, column=column, style=BOLD)
    if finding.fix.commands:
        page.lines(finding.fix.commands[:MOST_COMMANDS], indent=indent + 2)
    else:
        page.paragraph(finding.fix.text, indent=indent + 2)


def _unchecked(page: Page, entry: Unchecked, column: int) -> None:
    rules = f" ({counted(len(entry.rules), 'rule')})" if entry.rules else ""
    page.row(entry.what, f"{entry.why}{rules}", indent=2, column=column)


def _hint(page: Page, diagnosis: Diagnosis) -> None:
    ruled = next((each for each in diagnosis.findings if HERE not in each.confirmed_on), None)
    if ruled:
        page.paragraph(f"The whole story of one: rocsteady doctor --explain {ruled.rule}")
    if not diagnosis.machine.torch:
        page.paragraph("Name the Python that trains: rocsteady doctor --python PATH")
