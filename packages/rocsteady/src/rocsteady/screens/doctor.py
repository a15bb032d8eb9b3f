"""The screens of the doctor: a diagnosis, a machine's facts, rules, knowledge, and variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from rocsteady.colours import BOLD, DIM, GREEN, RED, YELLOW
from rocsteady.doctor.knowledge.gpu_names import card_name, gfx_of
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.rules import PLACEHOLDER, Rule
from rocsteady.doctor.knowledge.values import Confidence, Effect, Severity, Source
from rocsteady.doctor.knowledge_state import last_checked
from rocsteady.doctor.machine.gpus import Gpu, Node
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.values import (
    ComputeDevice,
    Diagnosis,
    Finding,
    KnowledgeReport,
    VariableReview,
    VariableVerdict,
)
from rocsteady.screens.screen import Page
from rocsteady.system.root import Disk
from rocsteady.wording import plural, size

LABEL = 9
MIN_ID = 16
HERE = "this machine"  # confirmed here: what a probe saw, which has no rule to explain
MAX_COMMANDS = 2  # on the screen; --explain has them all
MAX_FINDINGS = 6  # in full, and everything that blocks; the others by name
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
            rules = f" ({plural(len(entry.rules), 'rule')})" if entry.rules else ""
            page.row(entry.what, f"{entry.why}{rules}", indent=2, column=SEVERITY + column - 2)
    page.line()
    page.paragraph(closing_sentence(diagnosis), style=BOLD)
    _hint(page, diagnosis)
    return str(page)


def in_full(diagnosis: Diagnosis) -> tuple[list[Finding], list[Finding]]:
    """Return what the screen shows in full, the worst first, and what it only names."""
    ordered = [finding for severity in Severity for finding in diagnosis.having(severity)]
    most = max(MAX_FINDINGS, len(diagnosis.having(Severity.BLOCKS)))
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
    for use in machine.gpu_use:
        page.row("", use, column=LABEL)
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
        first, *rest = finding.fix.commands[:MAX_COMMANDS]
        page.lines([f"fix: {first}", *(f"     {command}" for command in rest)], indent=indent)
    else:
        page.paragraph(f"fix: {finding.fix.text}", indent=indent)
    page.lines((f"check: {command}" for command in finding.fix.check[:1]), indent=indent)


def _hint(page: Page, diagnosis: Diagnosis) -> None:
    ruled = next((each for each in diagnosis.findings if HERE not in each.confirmed_on), None)
    if ruled:
        page.paragraph(f"Details: rocsteady doctor --explain {ruled.rule}")
    if not diagnosis.machine.torch:
        page.paragraph("To name the Python used for training: rocsteady doctor --python PATH")


FACT_LABEL = 20


def render_machine(machine: Machine, knowledge: Knowledge, *, width: int, colour: bool) -> str:
    page = Page(width, colour=colour)
    _section(page, "System", _system_rows(machine))
    for gpu in machine.gpus.gpus:
        _section(
            page, f"GPU {gpu.node if gpu.node is not None else ''}".strip(), _gpu(gpu, knowledge)
        )
    _section(page, "GPUs not available", _missing(machine, knowledge))
    _section(page, "Access", _access(machine))
    _section(page, "Limits", _limits(machine))
    _section(page, "ROCm", _rocm(machine))
    _section(page, "Python and torch", _torch(machine, knowledge))
    _section(
        page,
        "Variables",
        (
            (var.name, var.value if var.value is not None else "(unknown variable; value not kept)")
            for var in machine.variables
        ),
    )
    _section(page, "Not readable", ((unread.why, unread.path) for unread in machine.unread))
    page.line(f"{machine.facts_read} facts read.")
    return str(page)


def _section(page: Page, title: str, rows: Iterable[tuple[str, str]]) -> None:
    shown = [(label, text) for label, text in rows if text]
    if not shown:
        return
    page.line(title, style=BOLD)
    column = max(FACT_LABEL, max(len(label) for label, _ in shown) + 2)
    for label, text in shown:
        page.row(label, text, indent=2, column=column)
    page.line()


def _system_rows(machine: Machine) -> list[tuple[str, str]]:
    system, driver = machine.system, machine.driver
    return [
        ("system", system.distribution),
        ("kernel", system.kernel),
        ("command line", " ".join(system.cmdline)),
        ("container", system.container),
        ("WSL2", "yes" if system.wsl else ""),
        ("librocdxg", system.librocdxg),
        ("driver", f"{driver.kind} {driver.version or ''}" if driver.loaded else "not loaded"),
        ("boot id", system.boot_id),
        ("run as", "root, so permissions were not tested" if system.as_root else ""),
    ]


def _gpu(gpu: Gpu, knowledge: Knowledge) -> list[tuple[str, str]]:
    link = gpu.link
    place = f", partition {gpu.partition}" if gpu.partition is not None else ""
    device = f"{gpu.device:#06x}" if gpu.device is not None else "?"
    revision = f" revision {gpu.revision:#04x}" if gpu.revision is not None else ""
    return [
        ("card", card_name(gpu, knowledge)),
        ("kind", "integrated" if gpu.integrated else "discrete"),
        ("gfx", gfx_of(gpu, knowledge) or "not reported by the driver"),
        ("PCI", f"{gpu.pci_address}{place}, device {device}{revision}".lstrip(", ")),
        ("compute units", str(gpu.compute_units or "")),
        ("memory", _size(gpu.vram_bytes)),
        ("shared with system", _size(gpu.gtt_bytes) if gpu.integrated else ""),
        ("render node", f"renderD{gpu.render_minor}" if gpu.render_minor else ""),
        ("link", f"x{link.width} at {link.speed:g} GT/s" if link else ""),
        ("IOMMU type", gpu.iommu or ""),
        ("power", "asleep; PCIe link not read" if gpu.asleep else ""),
        ("firmware", ", ".join(f"{name} {version}" for name, version in gpu.firmware.items())),
    ]


def _missing(machine: Machine, knowledge: Knowledge) -> list[tuple[str, str]]:
    survey = machine.gpus
    rows = [("withheld", f"KFD node {node}") for node in survey.withheld_nodes]
    return rows + [
        (
            "not offered",
            f"{card_name(gpu, knowledge)} at {gpu.pci_address}, driver: {gpu.driver or 'none'}",
        )
        for gpu in survey.not_offered
    ]


def _access(machine: Machine) -> list[tuple[str, str]]:
    access = machine.access
    user = access.user
    nodes = [*([access.kfd] if access.kfd else []), *access.render]
    rows = [(node.path, _node(node)) for node in nodes]
    return [*rows, ("groups", ", ".join(user.groups.values()) if user else "")]


def _node(node: Node) -> str:
    usable = "usable" if node.usable else "not usable by this user"
    return f"{usable} (mode {node.mode}, group {node.group})"


def _limits(machine: Machine) -> list[tuple[str, str]]:
    limits = machine.limits
    return [
        ("memory", _size(limits.memory_total)),
        ("available", _size(limits.memory_available)),
        ("cgroup limit", _size(limits.memory_limit)),
        ("shared memory", _disk(limits.shared_memory)),
        ("working folder", _disk(limits.folder)),
    ]


def _rocm(machine: Machine) -> list[tuple[str, str]]:
    rows = [(install.path, install.version) for install in machine.rocm]
    rows += [
        ("library path", f"{shadow.folder}: {' '.join(shadow.libraries)}")
        for shadow in machine.library_shadows
    ]
    rows += [("distribution's", path) for path in machine.distribution_hsa]
    return rows + [
        (f"MIOpen {cache.name}", ", ".join(filter(None, (cache.path, _disk(cache.disk)))))
        for cache in machine.caches
    ]


def _torch(machine: Machine, knowledge: Knowledge) -> list[tuple[str, str]]:
    del knowledge
    python, torch = machine.python, machine.torch
    if python is None:
        return [("Python", "no environment found; name one with --python")]
    rows = [
        ("Python", f"{python.version} in {python.prefix} (from {python.chosen})"),
        ("not examined", python.why_not),
    ]
    if torch is None:
        return [*rows, ("torch", "none")]
    return [
        *rows,
        ("torch", torch.version),
        ("build", torch.build),
        ("HIP", torch.hip or ""),
        ("ROCm", torch.rocm or ""),
        ("CUDA", torch.cuda or ""),
        ("code for", " ".join(torch.arches)),
        ("known by", torch.arches_from),
        ("includes ROCm", "yes" if torch.bundles_rocm else "no"),
        ("registered twice", ", ".join(torch.twice)),
        ("packages", ", ".join(f"{name} {version}" for name, version in machine.packages.items())),
    ]


def _disk(disk: Disk | None) -> str:
    if disk is None:
        return ""
    kind = disk.filesystem or "file system not known"
    how = "" if disk.writable else ", read-only"
    return f"{_size(disk.free)} free of {_size(disk.total)}, {kind}{how}"


def _size(amount: int | None) -> str:
    return "" if amount is None else size(amount)


STANDS_FOR = {"gpu.extras": "device-<gfx>", "gpu.discrete.indices": "<numbers>"}  # no machine


def render_rule_list(rules: Iterable[Rule], *, width: int, colour: bool) -> str:
    page = Page(width, colour=colour)
    listed = list(rules)
    column = max((len(rule.id) for rule in listed), default=0) + 2
    for severity in Severity:
        page.line(severity.value.upper(), style=BOLD)
        for rule in listed:
            if rule.severity is severity:
                page.row(rule.id, rule.title, indent=2, column=column)
    return str(page)


def evidence(rule: Rule, sources: Mapping[str, Source]) -> str:
    """Return what a rule rests on: measured, official, code, or how many reports."""
    if rule.evidence or rule.confidence is not Confidence.COMMUNITY:
        return rule.evidence or rule.confidence.value
    threads = sum(sources[key].number is not None for key in rule.sources)
    return f"reported by {threads}" if threads else "reported"


def render_rule(
    rule: Rule,
    sources: Mapping[str, Source],
    *,
    width: int,
    colour: bool,
    out_of_date: bool = False,
) -> str:
    page = Page(width, colour=colour)
    page.line(f"{rule.id}  {rule.severity.value}", style=BOLD)
    page.paragraph(f"{rule.title}.")
    page.line()
    page.paragraph(rule.why)
    page.line()
    page.line("What to do", style=BOLD)
    page.paragraph(rule.fix.text, indent=2)
    page.lines(typed(rule.fix.commands), indent=4)
    if rule.fix.check:
        page.paragraph("To check first:", indent=2)
        page.lines(rule.fix.check, indent=4)
    for place, commands in (
        ("In a container:", rule.fix.container),
        ("In PowerShell:", rule.fix.windows),
    ):
        if commands:
            page.paragraph(place, indent=2)
            page.lines(typed(commands), indent=4)
    if rule.fix.needs:
        page.paragraph(f"Needs: {', '.join(need.value for need in rule.fix.needs)}.", indent=2)
    if rule.fix.verify:
        page.paragraph(f"To check that it worked: {rule.fix.verify}", indent=2)
    page.line()
    page.line("Sources", style=BOLD)
    disputed = ", disputed" if rule.disputed else ""
    page.paragraph(f"Evidence: {evidence(rule, sources)}{disputed}.", indent=2)
    day = last_checked(rule, sources)
    page.paragraph(f"Last checked: {day}{', out of date' if out_of_date else ''}.", indent=2)
    confirmed = ", ".join(rule.confirmed_on) or "no, not by rocsteady's authors"
    page.paragraph(f"Confirmed on hardware: {confirmed}.", indent=2)
    for key in rule.sources:
        _source(page, sources[key])
    return str(page)


def typed(commands: Iterable[str]) -> list[str]:
    """Return commands as one would type them; what a machine would fill in is in angle brackets."""
    return [
        PLACEHOLDER.sub(lambda found: STANDS_FOR.get(found[1], f"<{found[1]}>"), command)
        for command in commands
    ]


def _source(page: Page, source: Source) -> None:
    number = f"#{source.number}" if source.number else ""
    page.paragraph(f"{source.owner}/{source.name}{number}, {source.date}: {source.title}", indent=2)
    if source.url:
        page.line(f"    {source.url}")


TABLE_LABEL = 20
IGNORED_SHOWN = 5  # ignored entries by name; --json has them all


def render_knowledge(report: KnowledgeReport, *, width: int, colour: bool) -> str:
    page = Page(width, colour=colour)
    age = plural(report.state.age_days, "day")
    page.line(f"Knowledge {report.state.version} ({age} old)", style=BOLD)
    for table in report.tables:
        days = plural(table.age_days or 0, "day")
        newest = f"newest source {table.newest_source} ({days} old)" if table.newest_source else ""
        old = f", {table.out_of_date:,} out of date" if table.out_of_date else ""
        page.line(f"{table.name:<{TABLE_LABEL}}{table.entries:>6,}  {newest}{old}".rstrip())
    page.line(f"{'your own':<{TABLE_LABEL}}{report.own:>6,}  {report.own_folder}")
    newer = "newer than this rocsteady understands" if report.ignored else ""
    page.line(f"{'ignored':<{TABLE_LABEL}}{len(report.ignored):>6,}  {newer}".rstrip())
    page.lines(report.ignored[:IGNORED_SHOWN], indent=2)
    for note in report.state.notes:
        page.paragraph(note, style=YELLOW)
    page.line()
    page.line(f"To upgrade: {report.upgrade}")
    return str(page)


EFFECT_COLUMN = 11
NO_GPU = (
    "Effects that depend on the GPU cannot be judged here. To judge them for another machine:"
    " rocsteady doctor env FILE --root RECORDING"
)
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


def render_variables(review: VariableReview, *, width: int, colour: bool) -> str:
    page = Page(width, colour=colour)
    gpus = ", ".join(review.machine.gpus) or "a machine without an AMD GPU"
    page.paragraph(f"{review.file or 'Variables in effect'}, judged for {gpus}", style=BOLD)
    page.paragraph(f"PyTorch {review.machine.torch or 'not found'}; {review.machine.system}")
    if not review.machine.gpus:
        page.paragraph(NO_GPU)
    page.line()
    for verdict in review.variables:
        _verdict(page, verdict)
    if review.variables:
        page.line()
    page.paragraph(_variable_counts(review), style=BOLD)
    return str(page)


def _variable_counts(review: VariableReview) -> str:
    others = ""
    if review.others:
        counted = plural(review.others, "other variable does", "other variables do")
        others = f" {counted} not belong to ROCm or PyTorch."
    if not review.variables:
        return f"No ROCm or PyTorch variable is set.{others}"
    counts = Counter(verdict.effect for verdict in review.variables)
    totals = ", ".join(f"{counts[effect]} {effect.value}" for effect in Effect if counts[effect])
    return f"{plural(len(review.variables), 'variable')}: {totals}.{others}"


def _verdict(page: Page, verdict: VariableVerdict) -> None:
    value = "" if verdict.value is None else f"={verdict.value}"
    places = ", ".join(place for place in (verdict.part, verdict.place) if place)
    place = f" ({places})" if places else ""
    label = verdict.effect.value
    page.styled_line(
        (label, EFFECT_STYLES[verdict.effect]),
        (" " * (EFFECT_COLUMN - len(label)), ""),
        (f"{verdict.name}{value}", BOLD),
        (place, DIM),
    )
    for reason in verdict.reasons:
        rule = f" ({reason.rule})" if reason.rule else ""
        page.paragraph(f"{reason.text}{rule}", indent=EFFECT_COLUMN)
