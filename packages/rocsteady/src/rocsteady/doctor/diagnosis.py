"""Runs every rule over one machine.

A check that crashes is a finding about us; the rest still run. What a probe saw is true of the
software that it was made with: one of other software is a note, since nobody has tried it since.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from typing import NamedTuple

import msgspec

from rocsteady import __version__
from rocsteady.doctor.checks import CHECKS, Check, gpu_code
from rocsteady.doctor.condition_match import Answers, CannotTell, Match, Matcher
from rocsteady.doctor.facts import FACTS, GIB, Facts, Scalar, gather
from rocsteady.doctor.gpu_reports import more_line
from rocsteady.doctor.knowledge.gpu_names import card_name, describe, gfx_of
from rocsteady.doctor.knowledge.reader import Knowledge, load_knowledge
from rocsteady.doctor.knowledge.rules import PLACEHOLDER, Rule
from rocsteady.doctor.knowledge.state import knowledge_state
from rocsteady.doctor.knowledge.values import Confidence, Fix, Need, Severity
from rocsteady.doctor.machine.gpus import NODES
from rocsteady.doctor.machine.machine import Machine, changes, software_of
from rocsteady.doctor.training_gpus import trainable
from rocsteady.doctor.values import (
    DIAGNOSIS_VERSION,
    Brief,
    ComputeDevice,
    Diagnosis,
    Finding,
    Unchecked,
)
from rocsteady.model import CAUSE, TRIAL, Observation, ProbeOutcome
from rocsteady.wording import plural, size

# What a person would call a fact that was not found out, or the group that it belongs to.
TOPICS: Mapping[str, str] = {
    "kernel.iommu": "IOMMU",
    "torch.arches": "which GPUs this torch has kernels for",
    "gpu": "GPUs",
    "device": "device nodes",
    "disk": "disk space",
    "override": "variables",
    "shm": "shared memory",
    "variable": "variables",
}


def doctors_knowledge() -> Knowledge:
    return load_knowledge(facts=FACTS, checks=CHECKS)


def diagnose(
    machine: Machine,
    knowledge: Knowledge,
    checks: Mapping[str, Check] = CHECKS,
    observations: Iterable[Observation] = (),
    today: date | None = None,
) -> Diagnosis:
    """Run every rule; ``observations`` are what probes saw on this machine."""
    today = today or datetime.now(tz=UTC).date()
    facts = gather(machine, knowledge)
    findings, missing, open_rules = rule_findings(machine, facts, knowledge, checks)
    findings += probe_findings(observations, software_of(machine))
    order = list(Severity)
    findings.sort(key=lambda finding: order.index(finding.severity))
    return Diagnosis(
        version=DIAGNOSIS_VERSION,
        rocsteady=__version__,
        machine=brief(machine, facts, knowledge),
        findings=tuple(findings),
        unchecked=(*_not_judged(missing, facts), *_not_readable(machine)),
        trains_on=trains_on(machine, facts, findings),
        trains_on_gpus=training_gpu_names(machine, facts, knowledge),
        facts_read=machine.facts_read,
        rules_checked=len(knowledge.rules) - len(open_rules),
        knowledge=knowledge_state(
            knowledge, machine, today=today, fired=(finding.rule for finding in findings)
        ),
        more=more_line(next(iter(map(str, facts.values("gpu.gfx"))), ""), knowledge),
    )


class RuleFindings(NamedTuple):
    """What the rules alone say, and which of them could not be answered for want of which fact."""

    findings: list[Finding]
    missing: list[tuple[str, str]]  # fact and rule
    open_rules: set[str]


def rule_findings(
    machine: Machine,
    facts: Facts,
    knowledge: Knowledge,
    checks: Mapping[str, Check],
    answers: Answers | None = None,
) -> RuleFindings:
    bound = {name: partial(check, machine, facts, knowledge) for name, check in checks.items()}
    matcher = Matcher(facts, bound, knowledge.arches, answers)
    result = RuleFindings([], [], set())
    for rule in knowledge.rules.values():
        try:
            match = matcher.match(rule.when)
        except Exception as error:  # noqa: BLE001 - one broken check must not cost the reader the rest
            result.findings.append(_crash(rule, error))
            result.open_rules.add(rule.id)
            continue
        if match.holds:
            result.findings.append(_finding(rule, match, facts, knowledge))
        elif match.holds is None:
            result.missing.extend((fact, rule.id) for fact in match.missing)
            result.open_rules.add(rule.id)
    return result


def _finding(rule: Rule, match: Match, facts: Facts, knowledge: Knowledge) -> Finding:
    def values(name: str) -> list[str]:
        own = {"seen": match.checked, "set": match.settings}
        return [_spelled(name, it) for it in dict.fromkeys(own.get(name, facts.values(name)))]

    def filled(template: str) -> list[str]:
        """Repeat a command for each value of the fact it names."""
        named = PLACEHOLDER.search(template)
        if named is None:
            return [template]
        lines = [template.replace(named.group(), value) for value in values(named.group(1))]
        return [whole for line in lines for whole in filled(line)]

    summary = PLACEHOLDER.sub(lambda found: ", ".join(values(found.group(1))), rule.summary)
    here = _for_this_system(rule.fix, facts)
    commands = tuple(line for template in here.commands for line in filled(template))
    return Finding(
        rule=rule.id,
        severity=rule.severity,
        area=rule.area,
        summary=summary,
        seen=match.seen,
        fix=msgspec.structs.replace(here, commands=commands, windows=(), container=()),
        confidence=rule.confidence,
        confirmed_on=rule.confirmed_on,
        sources=tuple(knowledge.sources[key] for key in rule.sources),
        training_hung=rule.training_hung,
    )


def _spelled(name: str, value: Scalar) -> str:
    if isinstance(value, float):
        return size(value * GIB) if name.endswith("gib") else f"{value:.3g}"
    return str(value)


def _for_this_system(fix: Fix, facts: Facts) -> Fix:
    if facts.values("os") == ("windows",):
        return msgspec.structs.replace(fix, commands=fix.windows or fix.commands)
    if not facts.values("container") or not fix.container:
        return fix
    commands = fix.container
    if facts.values("container") == ("podman",):
        commands = tuple(line.replace("docker run", "podman run") for line in commands)
    needs = tuple(need for need in fix.needs if need is not Need.RELOGIN)  # it starts anew anyway
    return msgspec.structs.replace(fix, commands=commands, needs=needs)


def _crash(rule: Rule, error: Exception) -> Finding:
    return Finding(
        rule=rule.id,
        severity=Severity.NOTES,
        area=rule.area,
        summary=f"This rule's check crashed, which is a bug in rocsteady: {error!r}",
        seen=(),
        fix=Fix(text="Report it with this line. The other rules were checked."),
        confidence=Confidence.OFFICIAL,
        confirmed_on=(),
        sources=(),
    )


def _not_judged(missing: list[tuple[str, str]], facts: Facts) -> Iterator[Unchecked]:
    """Yield each thing that is not known once, with all rules that needed it."""
    rules: dict[tuple[str, str], dict[str, None]] = {}
    for fact, rule in missing:
        head = fact.replace(":", ".").partition(".")[0]
        topic = TOPICS.get(fact) or TOPICS.get(head, head)
        rules.setdefault((topic, facts.why_unknown(fact)), {})[rule] = None
    for (what, why), names_of_rules in rules.items():
        yield Unchecked(what=what, why=why, rules=tuple(names_of_rules))


def _not_readable(machine: Machine) -> Iterator[Unchecked]:
    """List files that are there and were refused; a withheld GPU is told by a rule."""
    withheld = tuple(f"{NODES}/{node}/" for node in machine.gpus.withheld_nodes)
    for unread in machine.unread:
        if not unread.path.startswith(withheld or ("\0",)):
            yield Unchecked(what=unread.path, why=unread.why)


def brief(machine: Machine, facts: Facts, knowledge: Knowledge) -> Brief:
    python, torch = machine.python, machine.torch
    return Brief(
        gpus=describe(machine.gpus.gpus, knowledge),
        other_gpus=_other_gpus(machine, knowledge),
        gpu_use=_gpu_use(machine),
        system=_system(machine),
        python=f"environment {python.prefix} ({python.chosen})" if python else "",
        torch=f"{torch.version}, Python {python.version}" if torch and python else "",
        torch_code=_torch_code(machine, facts),
        torch_covers=_covered(machine, facts, knowledge),
    )


def _covered(machine: Machine, facts: Facts, knowledge: Knowledge) -> tuple[str, ...]:
    built = facts.values("torch.arches") if machine.torch else ()
    here = dict.fromkeys(gfx_of(gpu, knowledge) or "" for gpu in machine.gpus.gpus)
    return tuple(gfx for gfx in here if gfx in built)


def _gpu_use(machine: Machine) -> tuple[str, ...]:
    """Return how much memory is free on which GPU, and who holds the rest."""
    alike: dict[str, list[str]] = {}
    for number, gpu in enumerate(machine.gpus.gpus):
        whole = gpu.gtt_bytes if gpu.integrated else gpu.vram_bytes
        if whole and gpu.used_bytes is not None:
            text = f"{size(max(whole - gpu.used_bytes, 0))} of {size(whole)} free"
            users = (user for user in machine.gpus.users if user.node == gpu.node)
            text += "".join(f", {size(it.used_bytes)} used by pid {it.pid}" for it in users)
            alike.setdefault(text, []).append(str(number))
    return tuple(f"GPU {', '.join(numbers)}: {text}" for text, numbers in alike.items())


def trains_on(machine: Machine, facts: Facts, findings: Sequence[Finding]) -> ComputeDevice:
    if not facts.values("torch.installed") or machine.torch is None:
        return ComputeDevice.UNKNOWN
    if machine.torch.build == "cuda":
        return ComputeDevice.UNKNOWN  # another vendor's GPU, which we do not look at
    if any(finding.severity is Severity.BLOCKS for finding in findings):
        return ComputeDevice.CPU
    if machine.system.wsl:
        return ComputeDevice.UNKNOWN
    if trainable(machine) and machine.torch.build == "rocm":
        return ComputeDevice.GPU
    return ComputeDevice.CPU


def training_gpu_names(machine: Machine, facts: Facts, knowledge: Knowledge) -> tuple[str, ...]:
    """Name the GPUs one would train on, without those that torch has no code for."""
    try:
        lacking = gpu_code(machine, facts, knowledge).lacking
    except CannotTell:
        lacking = ()
    gpus = trainable(machine)
    able = tuple(gpu for gpu in gpus if gfx_of(gpu, knowledge) not in lacking)
    return describe(able or gpus, knowledge, details=False)


def _other_gpus(machine: Machine, knowledge: Knowledge) -> tuple[str, ...]:
    survey = machine.gpus
    withheld = len(survey.withheld_nodes)
    lines = [f"{withheld} not accessible from here"] if withheld else []
    lines += [
        f"{card_name(gpu, knowledge)} (the driver does not offer it for compute)"
        for gpu in survey.not_offered
    ]
    if machine.system.wsl:
        lines.append("behind WSL2, which does not list it in its files")
    return tuple(lines)


def _system(machine: Machine) -> str:
    system, driver = machine.system, machine.driver
    parts = [system.distribution]
    parts += [f"{system.container} container"] if system.container else []
    parts += ["WSL2"] if system.wsl else []
    parts += (
        [f"{'build' if system.os == 'windows' else 'kernel'} {system.kernel}"]
        if system.kernel
        else []
    )
    if driver.kind == "Windows":
        parts.append(f"display driver {driver.version}")
    elif driver.kind:
        parts.append(f"amdgpu {driver.version or ''} {driver.kind}".replace("  ", " "))
    elif not system.wsl:
        parts.append("amdgpu not loaded")
    return ", ".join(part for part in parts if part)


def _torch_code(machine: Machine, facts: Facts) -> str:
    torch = machine.torch
    if torch is None:
        return ""
    if torch.build != "rocm":
        return f"a {torch.build.upper()} build without code for AMD GPUs"
    arches = " ".join(str(arch) for arch in facts.values("torch.arches"))
    basis = {"library": "from its library", "file names": "from its file names"}
    return (
        f"includes code for {arches} ({basis.get(torch.arches_from, 'from the release table')})"
        if arches
        else ""
    )


PROBE_RULE = "seen-by-probe"
DID = {
    ProbeOutcome.WRONG: "gave wrong results",
    ProbeOutcome.EXCEPTION: "raised an error",
    ProbeOutcome.HANG: "hung",
    ProbeOutcome.CRASH: "crashed",
    ProbeOutcome.NO_MEMORY: "ran out of memory",
    ProbeOutcome.UNKILLABLE: "hung and could not be killed",
    ProbeOutcome.WENT_DOWN: "crashed the machine",
}


def probe_findings(observations: Iterable[Observation], software: str) -> Iterator[Finding]:
    wrong: dict[tuple[str, bool], list[Observation]] = {}
    for last in _newest(observations, software):
        if last.bad:
            wrong.setdefault((last.probe, last.software == software), []).append(last)
    for (probe, current), seen in wrong.items():
        yield _probe_finding(
            probe, sorted(seen, key=lambda each: each.at), software, current=current
        )


def _newest(observations: Iterable[Observation], software: str) -> Iterator[Observation]:
    """Yield the newest of each probe and variant; today's software counts before the rest."""
    found: dict[tuple[str, str], Observation] = {}
    for each in observations:
        if each.outcome is ProbeOutcome.NOT_RUN or each.probe in (CAUSE, TRIAL):
            continue
        key = (each.probe, each.variant)
        before = found.get(key)
        if before is None or _weight(each, software) >= _weight(before, software):
            found[key] = each
    yield from found.values()


def _weight(observation: Observation, software: str) -> tuple[bool, float]:
    return observation.software == software, observation.at


def _probe_finding(probe: str, seen: list[Observation], software: str, *, current: bool) -> Finding:
    last = seen[-1]
    more = len(seen) - 1
    others = f" So did {plural(more, 'other variant')} of it." if more else ""
    text = f"Seen by rocsteady probe on {_sentence(last)}.{others}"
    if not current:
        text += f" That was with {changes(last.software, software) or 'other software'}."
    return Finding(
        rule=PROBE_RULE,
        severity=Severity.RISKS if current else Severity.NOTES,
        summary=text,
        seen=tuple(_sentence(each) for each in seen),
        fix=Fix(
            text="Run the probe again, and read its details.",
            commands=(f"rocsteady probe {probe}", f"rocsteady probe --details {probe}"),
        ),
        confidence=Confidence.OFFICIAL,
        confirmed_on=("this machine",),
        sources=(),
    )


def _sentence(seen: Observation) -> str:
    day = time.strftime("%Y-%m-%d", time.localtime(seen.at))
    stuck = seen.outcome in (ProbeOutcome.HANG, ProbeOutcome.UNKILLABLE)
    where = f" at try {seen.tries + 1:,}" if stuck else ""
    place = f", in {seen.place}" if seen.place else ""
    return f"{day}: {seen.title} {DID[seen.outcome]}{where}{place}"
