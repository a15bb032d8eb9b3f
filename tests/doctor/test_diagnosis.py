"""Rules and what probes saw become findings, worst first; a check that crashes is one about us."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace

from rocsteady.doctor.checks import CHECKS
from rocsteady.doctor.condition_match import Seen
from rocsteady.doctor.diagnosis import diagnose, probe_findings
from rocsteady.doctor.facts import Facts
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.knowledge.rules import Condition, Rule
from rocsteady.doctor.knowledge.values import Area, Confidence, Fix, Need, Severity
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.system import SetVariable
from rocsteady.doctor.machine.view import Unread
from rocsteady.doctor.values import ComputeDevice, Finding, Unchecked
from rocsteady.model import Observation, ProbeOutcome

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
        area=Area.PYTORCH,
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
            what="which GPUs this torch has kernels for",
            why="neither its files nor the release table say",
            rules=("two",),
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


def test_whom_a_new_container_helps_need_not_log_in_again(
    recorded: Recorded, knowledge: Knowledge
) -> None:
    (found,) = [
        each
        for each in diagnose(recorded.machine("render-denied"), knowledge).findings
        if each.rule == "render-denied"
    ]

    assert found.fix.commands[0].startswith("# add to podman run: ")  # as here
    assert Need.RELOGIN not in found.fix.needs


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


GPU, CPU, UNKNOWN = ComputeDevice.GPU, ComputeDevice.CPU, ComputeDevice.UNKNOWN


@pytest.mark.parametrize(
    ("machine_name", "device", "gpus"),
    [
        ("rx7900xtx", GPU, ("Radeon RX 7900 XTX",)),
        ("mi300x-cpx", GPU, ("63 partitions of 8 x Instinct MI300X",)),
        ("rx6900xt-igpu", GPU, ("Radeon RX 6900 XT",)),
        ("rx7900xt-pair", GPU, ("2 x Radeon RX 7900 XT",)),
        ("rx7900xt-allocator", GPU, ("Radeon RX 7900 XT",)),  # a variable hides the other
        ("rx7900xtx-rx6700xt", GPU, ("Radeon RX 7900 XTX",)),  # no code for the other
        ("strix-halo", GPU, ("Radeon 8060S Graphics",)),
        ("rx6700xt", CPU, ("Radeon RX 6700 XT",)),
        ("cpu-wheel", CPU, ("Radeon RX 7800 XT",)),
        ("no-amd-gpu", CPU, ()),
        ("nvidia-card", UNKNOWN, ("Radeon Graphics (Raphael)",)),
        ("wsl2", CPU, ()),
    ],
)
def test_what_training_runs_on(
    recorded: Recorded, machine_name: str, device: ComputeDevice, gpus: tuple[str, ...]
) -> None:
    diagnosis = recorded.diagnosis(machine_name)

    assert (diagnosis.trains_on, diagnosis.trains_on_gpus) == (device, gpus)


def test_wsl_in_which_nothing_blocks_is_open(recorded: Recorded) -> None:
    on = SetVariable(name="HSA_ENABLE_DXG_DETECTION", value="1")
    machine = msgspec.structs.replace(recorded.machine("wsl2-bridge"), variables=(on,))

    assert diagnose(machine, recorded.knowledge).trains_on is UNKNOWN


def test_variables_that_hide_every_gpu_leave_the_cpu(recorded: Recorded) -> None:
    none = SetVariable(name="HIP_VISIBLE_DEVICES", value="-1")
    machine = msgspec.structs.replace(recorded.machine("rx7900xtx"), variables=(none,))

    assert diagnose(machine, recorded.knowledge).trains_on is CPU


@pytest.mark.parametrize("machine_name", ["rx7900xtx", "rx6700xt"])
def test_without_torch_it_is_open(recorded: Recorded, machine_name: str) -> None:
    machine = msgspec.structs.replace(recorded.machine(machine_name), torch=None)

    assert diagnose(machine, recorded.knowledge).trains_on is UNKNOWN


NOW = "GPU gfx1100; driver 6.8; torch 2.10.0; Python 3.12"
BEFORE = "GPU gfx1100; driver 6.8; torch 2.9.1; Python 3.12"
AT = time.mktime((2026, 11, 15, 12, 0, 0, 0, 0, -1))
FLASH = Observation(
    probe="attention-backward",
    variant="flash",
    outcome=ProbeOutcome.HANG,
    tries=0,
    seconds=10.0,
    place="_scaled_dot_product_flash_attention_backward",
    software=NOW,
    at=AT,
)


def told(*observations: Observation) -> list[tuple[Severity, str]]:
    return [(each.severity, each.summary) for each in probe_findings(observations, NOW)]


def test_what_went_wrong_last_time_puts_training_at_risk() -> None:
    (finding,) = probe_findings([FLASH], NOW)

    assert finding.rule == "seen-by-probe"
    assert finding.severity is Severity.RISKS
    assert finding.summary == (
        "Seen by rocsteady probe on 2026-11-15: attention-backward flash hung at try 1, in"
        " _scaled_dot_product_flash_attention_backward."
    )
    assert finding.confirmed_on == ("this machine",)
    assert finding.fix.commands == (
        "rocsteady probe attention-backward",
        "rocsteady probe --details attention-backward",
    )


def test_what_went_well_since_and_what_was_not_run_is_not_a_finding() -> None:
    well = replace(FLASH, outcome=ProbeOutcome.OK, at=AT + 1)
    not_run = replace(FLASH, variant="math", outcome=ProbeOutcome.NOT_RUN)

    assert told(FLASH, well, not_run) == []


def test_of_other_software_it_is_a_note_that_says_what_changed() -> None:
    ((severity, summary),) = told(replace(FLASH, software=BEFORE, place=""))

    assert severity is Severity.NOTES
    assert summary == (
        "Seen by rocsteady probe on 2026-11-15: attention-backward flash hung at try 1."
        " That was with torch 2.9.1, now 2.10.0."
    )


def test_todays_software_counts_before_what_was_seen_later_with_another() -> None:
    well = replace(FLASH, outcome=ProbeOutcome.OK)
    later = replace(FLASH, software=BEFORE, at=AT + 5)

    assert told(well, later) == []


def test_variants_of_one_probe_are_one_finding() -> None:
    efficient = replace(FLASH, variant="efficient", at=AT + 1, place="")

    assert told(FLASH, efficient) == [
        (
            Severity.RISKS,
            (
                "Seen by rocsteady probe on 2026-11-15: attention-backward efficient hung at try 1."
                " So did 1 other variant of it."
            ),
        )
    ]


def test_eleven_other_variants_are_several() -> None:
    variants = [replace(FLASH, variant=f"v{each}", at=AT + each) for each in range(12)]

    ((_severity, summary),) = told(*variants)

    assert summary.endswith("So did 11 other variants of it.")


def test_a_trial_of_some_script_says_nothing_of_the_machine() -> None:
    assert told(replace(FLASH, probe="trial", variant="gpu", outcome=ProbeOutcome.EXCEPTION)) == []
