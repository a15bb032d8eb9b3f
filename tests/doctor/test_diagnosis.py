"""Rules become findings in order of weight; a check that crashes is a finding about us."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rocsteady.doctor.condition_match import Seen
from rocsteady.doctor.diagnosis import CHECKS, diagnose
from rocsteady.doctor.facts import Facts
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.rules import Condition, Rule
from rocsteady.doctor.knowledge.values import Confidence, Fix, Severity
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.view import Unread
from rocsteady.doctor.values import Finding, Unchecked

if TYPE_CHECKING:
    from tests.conftest import Recorded

DO_IT = Fix(text="Do it.")
ALWAYS = Condition(fact="os", present=True)


def rule(name: str, severity: Severity, when: Condition = ALWAYS, fix: Fix = DO_IT) -> Rule:
    return Rule(
        id=name,
        title="A title",
        severity=severity,
        when=when,
        summary="Something.",
        why="Because.",
        fix=fix,
        confidence=Confidence.OFFICIAL,
        sources=(),
        confirmed_on=(),
    )


def having(knowledge: Knowledge, *rules: Rule) -> Knowledge:
    return msgspec.structs.replace(knowledge, rules={each.id: each for each in rules})


def crashes(machine: Machine, facts: Facts, knowledge: Knowledge) -> Seen:
    del machine, facts, knowledge
    raise ZeroDivisionError("over nothing")


def test_a_crashing_check_is_a_finding_about_us_and_the_rest_still_run(recorded: Recorded) -> None:
    machine = recorded.machine("rx5700xt-override")
    before = recorded.diagnosis("rx5700xt-override")

    diagnosis = diagnose(machine, recorded.knowledge, {**CHECKS, "wheel-lacks-arch": crashes})

    about_us = Finding(
        rule="wheel-lacks-arch",
        severity=Severity.NOTES,
        summary=(
            "This rule's check crashed, which is a bug in rocsteady: "
            "ZeroDivisionError('over nothing')"
        ),
        seen=(),
        fix=Fix(text="Report it with this line. The other rules were checked."),
        confidence=Confidence.OFFICIAL,
        confirmed_on=(),
        sources=(),
    )
    others = tuple(each for each in before.findings if each.rule != "wheel-lacks-arch")
    assert diagnosis.findings == (*others, about_us)
    assert diagnosis.rules_checked == before.rules_checked - 1


def test_findings_come_worst_first_then_as_filed(recorded: Recorded, knowledge: Knowledge) -> None:
    base = having(
        knowledge,
        rule("b-note", Severity.NOTES),
        rule("b-risk", Severity.RISKS),
        rule("a-risk", Severity.RISKS),
        rule("z-block", Severity.BLOCKS),
    )

    found = [each.rule for each in diagnose(recorded.machine("rx7900xtx"), base).findings]

    assert found == ["z-block", "b-risk", "a-risk", "b-note"]


def test_what_could_not_be_told_is_said_once_with_all_rules_that_needed_it(
    recorded: Recorded, knowledge: Knowledge
) -> None:
    iommu = Condition(fact="kernel.iommu", is_="translated")
    arches = Condition(fact="torch.arches", present=True)
    base = having(
        knowledge,
        rule("one", Severity.NOTES, iommu),
        rule("two", Severity.NOTES, Condition(all=(iommu, arches))),
    )

    diagnosis = diagnose(recorded.machine("old-kernel"), base)

    assert diagnosis.unchecked == (
        Unchecked(
            what="IOMMU", why="neither the PCI files nor the command line say", rules=("one", "two")
        ),
        Unchecked(
            what="code in torch", why="neither its files nor the release table say", rules=("two",)
        ),
    )
    assert diagnosis.rules_checked == 0


def test_a_file_that_is_there_and_was_refused_is_listed(
    recorded: Recorded, knowledge: Knowledge
) -> None:
    refused = Unread(path="/proc/cmdline", why="Permission denied")
    machine = msgspec.structs.replace(recorded.machine("rx7900xtx"), unread=(refused,))

    assert diagnose(machine, knowledge).unchecked == (
        Unchecked(what="/proc/cmdline", why="Permission denied"),
    )


def test_what_a_withheld_gpu_refuses_is_not_listed_file_by_file(recorded: Recorded) -> None:
    assert recorded.machine("withheld").unread
    assert recorded.diagnosis("withheld").unchecked == ()


def test_commands_are_those_for_the_place_where_the_reader_sits(
    recorded: Recorded, knowledge: Knowledge
) -> None:
    by_place = Fix(
        text="Do it.", commands=("bash",), windows=("powershell",), container=("docker",)
    )
    everywhere = rule("one", Severity.NOTES, fix=by_place)
    plain = rule("two", Severity.NOTES, fix=Fix(text="Do it.", commands=("bash",)))
    base = having(knowledge, everywhere, plain)

    told = {
        name: [each.fix for each in diagnose(recorded.machine(name), base).findings]
        for name in ("rx7900xtx", "rx9070xt-windows", "rx7900xt-pair")
    }

    assert told == {
        "rx7900xtx": [Fix(text="Do it.", commands=("bash",))] * 2,
        "rx9070xt-windows": [
            Fix(text="Do it.", commands=("powershell",)),
            Fix(text="Do it.", commands=("bash",)),
        ],
        "rx7900xt-pair": [
            Fix(text="Do it.", commands=("docker",)),
            Fix(text="Do it.", commands=("bash",)),
        ],
    }


def test_a_command_is_repeated_for_each_value_and_left_out_without_one(
    recorded: Recorded, knowledge: Knowledge
) -> None:
    commands = ("install {gpu.gfx}", "join {container}", "plain")
    each = rule("one", Severity.NOTES, fix=Fix(text="Do it.", commands=commands))

    (finding,) = diagnose(recorded.machine("rx6900xt-igpu"), having(knowledge, each)).findings

    assert finding.fix.commands == ("install gfx1030", "install gfx1036", "plain")


def test_a_summary_names_values_what_checks_saw_and_variables(
    recorded: Recorded, knowledge: Knowledge
) -> None:
    condition = Condition(
        all=(Condition(fact="variable:HSA_XNACK", is_="1"), Condition(check="unknown-variable"))
    )
    told = msgspec.structs.replace(
        rule("one", Severity.NOTES, condition), summary="{set}; {seen}; {gpu.gfx}; {container}"
    )

    (finding,) = diagnose(recorded.machine("rx7900xt-pair"), having(knowledge, told)).findings

    assert finding.summary == "HSA_XNACK=1; ROCM_ALLOW_HIDDEN_KERNEL_FLAGS; gfx1100; docker"
