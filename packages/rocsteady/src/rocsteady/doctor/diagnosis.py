"""Runs every rule over one machine.

A check that crashes is a finding about us; the rest still run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from rocsteady import __version__
from rocsteady.doctor import probe_findings
from rocsteady.doctor.checks import (
    miopen_cache,
    mixed_rocm_libraries,
    unknown_variable,
    visible_devices_conflict,
    visible_devices_fewer,
    wheel_lacks_arch,
    wheel_lacks_one_arch,
)
from rocsteady.doctor.condition_match import Match, Matcher, Seen
from rocsteady.doctor.facts import FACTS, Facts, Scalar, gather
from rocsteady.doctor.knowledge.reader import Knowledge, load_knowledge, own_folder
from rocsteady.doctor.knowledge.rules import PLACEHOLDER, Rule
from rocsteady.doctor.knowledge.values import Confidence, Fix, Severity
from rocsteady.doctor.knowledge_state import knowledge_state
from rocsteady.doctor.machine.gpus import NODES
from rocsteady.doctor.machine.machine import Machine, software_of
from rocsteady.doctor.machine_summary import brief, names, trains_on
from rocsteady.doctor.values import DIAGNOSIS_VERSION, Diagnosis, Finding, Unchecked
from rocsteady.model import Observation

Check = Callable[[Machine, Facts, Knowledge], Seen]

CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "wheel-lacks-arch": wheel_lacks_arch,
        "wheel-lacks-one-arch": wheel_lacks_one_arch,
        "visible-devices-conflict": visible_devices_conflict,
        "visible-devices-fewer": visible_devices_fewer,
        "unknown-variable": unknown_variable,
        "mixed-rocm-libraries": mixed_rocm_libraries,
        "miopen-cache": miopen_cache,
    }
)


# What a person would call a fact that was not found out, or the group that it belongs to.
TOPICS: Mapping[str, str] = MappingProxyType(
    {
        "kernel.iommu": "IOMMU",
        "torch.arches": "code in torch",
        "gpu": "GPUs",
        "device": "device nodes",
        "disk": "disk space",
        "override": "variables",
        "shm": "shared memory",
        "variable": "variables",
    }
)


def doctors_knowledge() -> Knowledge:
    return load_knowledge(own=own_folder(), facts=FACTS, checks=CHECKS)


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
    findings += probe_findings.findings(observations, software_of(machine))
    order = list(Severity)
    findings.sort(key=lambda finding: order.index(finding.severity))
    return Diagnosis(
        version=DIAGNOSIS_VERSION,
        rocsteady=__version__,
        machine=brief(machine, facts, knowledge),
        findings=tuple(findings),
        unchecked=(*_not_judged(missing, facts), *_not_readable(machine)),
        trains_on=trains_on(machine, facts, findings),
        trains_on_gpus=names(machine, facts, knowledge),
        facts_read=machine.facts_read,
        rules_checked=len(knowledge.rules) - len(open_rules),
        knowledge=knowledge_state(knowledge, machine, today=today),
    )


class RuleFindings(NamedTuple):
    """What the rules alone say, and which of them could not be answered for want of which fact."""

    findings: list[Finding]
    missing: list[tuple[str, str]]  # fact and rule
    open_rules: set[str]


def rule_findings(
    machine: Machine, facts: Facts, knowledge: Knowledge, checks: Mapping[str, Check]
) -> RuleFindings:
    bound = {name: partial(check, machine, facts, knowledge) for name, check in checks.items()}
    matcher = Matcher(facts, bound, knowledge.arches)
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
        return [_spelled(value) for value in dict.fromkeys(own.get(name, facts.values(name)))]

    def filled(template: str) -> list[str]:
        """Repeat a command for each value of the fact it names."""
        named = PLACEHOLDER.search(template)
        if named is None:
            return [template]
        return [template.replace(named.group(), value) for value in values(named.group(1))]

    summary = PLACEHOLDER.sub(lambda found: ", ".join(values(found.group(1))), rule.summary)
    commands = tuple(line for template in _templates(rule.fix, facts) for line in filled(template))
    return Finding(
        rule=rule.id,
        severity=rule.severity,
        summary=summary,
        seen=match.seen,
        fix=msgspec.structs.replace(rule.fix, commands=commands, windows=(), container=()),
        confidence=rule.confidence,
        confirmed_on=rule.confirmed_on,
        sources=tuple(knowledge.sources[key] for key in rule.sources),
        training_hung=rule.training_hung,
    )


def _spelled(value: Scalar) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _templates(fix: Fix, facts: Facts) -> tuple[str, ...]:
    if facts.values("os") == ("windows",):
        return fix.windows or fix.commands
    if facts.values("container"):
        return fix.container or fix.commands
    return fix.commands


def _crash(rule: Rule, error: Exception) -> Finding:
    return Finding(
        rule=rule.id,
        severity=Severity.NOTES,
        summary=f"This rule's check crashed, which is a bug in rocsteady: {error!r}",
        seen=(),
        fix=Fix(text="Report it with this line. The other rules were checked."),
        confidence=Confidence.OFFICIAL,
        confirmed_on=(),
        sources=(),
    )


def _not_judged(missing: list[tuple[str, str]], facts: Facts) -> Iterator[Unchecked]:
    """Say each thing that could not be told once, with all rules that needed it."""
    rules: dict[tuple[str, str], dict[str, None]] = {}
    for fact, rule in missing:
        rules.setdefault((_topic(fact), facts.why_unknown(fact)), {})[rule] = None
    for (what, why), names_of_rules in rules.items():
        yield Unchecked(what=what, why=why, rules=tuple(names_of_rules))


def _topic(fact: str) -> str:
    head = fact.replace(":", ".").partition(".")[0]
    return TOPICS.get(fact) or TOPICS.get(head, head)


def _not_readable(machine: Machine) -> Iterator[Unchecked]:
    """List files that are there and were refused; a withheld GPU is told by a rule."""
    withheld = tuple(f"{NODES}/{node}/" for node in machine.gpus.withheld_nodes)
    for unread in machine.unread:
        if not unread.path.startswith(withheld or ("\0",)):
            yield Unchecked(what=unread.path, why=unread.why)
