"""What was once said wrongly, so that it does not come back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.diagnosis import diagnose, doctors_knowledge
from rocsteady.doctor.env.variable_files import assignments
from rocsteady.doctor.env.variables import judge
from rocsteady.doctor.knowledge.options import load_other_options
from rocsteady.doctor.knowledge.reader import DATA, Knowledge
from rocsteady.doctor.knowledge.values import Confidence, Effect
from rocsteady.doctor.machine.system import SetVariable
from rocsteady.doctor.training_gpus import effect

if TYPE_CHECKING:
    from tests.conftest import Recorded


def test_no_wheel_for_rocm_6_4_or_later_is_said_to_have_code_for_vegas(
    knowledge: Knowledge,
) -> None:
    later = [
        wheel for wheel in knowledge.wheels if not wheel.rocm.startswith(("6.1", "6.2", "6.3"))
    ]

    assert later
    assert not {"gfx900", "gfx906"} & {gfx for wheel in later for gfx in wheel.arches}


def test_no_wheel_is_offered_for_the_gpu_of_the_steam_deck() -> None:
    offered = {
        gfx for option in load_other_options() for place in option.where for gfx in place.gfx
    }

    assert "gfx1033" not in offered


@pytest.mark.parametrize(("gfx", "told"), [("gfx90c", "gfx900"), ("gfx90c", "gfx906")])
def test_a_vega_that_passes_for_another_is_a_risk_and_no_block(
    knowledge: Knowledge, gfx: str, told: str
) -> None:
    assert effect(gfx, told, knowledge) == "within-family"
    assert effect("gfx90a", "gfx906", knowledge) == "across-families"


def test_what_is_our_own_conclusion_is_not_called_official(knowledge: Knowledge) -> None:
    ours = re.compile(r"\b(?:is|are)\s+ours?\b", re.IGNORECASE)
    whole = {
        rule.id for rule in knowledge.rules.values() if rule.confidence is Confidence.INFERENCE
    }

    assert {
        "driver-too-old",
        "gpu-not-offered",
        "hsa-variables-on-windows",
        "visible-devices-fewer",
    } <= whole
    assert all(ours.search(knowledge.rules[rule].why) for rule in whole)


def test_citations_that_do_not_support_their_statement_are_gone(knowledge: Knowledge) -> None:
    assert not any(
        "pytorch/pytorch#95944" in path.read_text("utf-8") for path in DATA.rglob("*.toml")
    )
    assert knowledge.variables["TORCHDYNAMO_DISABLE"].sources == ("pytorch-eval-frame",)


@pytest.mark.parametrize(
    ("version", "rocm", "fires"),
    [
        ("2.11.0+rocm7.2", "7.2", True),
        ("2.11.0+rocm7.14.0", "7.14.0", False),
        ("2.10.0+rocm7.14.0", "7.14.0", True),
        ("2.12.0+rocm7.2", "7.2", False),
    ],
)
def test_expandable_segments_act_in_amds_build_of_2_11(
    recorded: Recorded, version: str, rocm: str, *, fires: bool
) -> None:
    machine = recorded.machine("rx7900xtx")
    assert machine.torch is not None
    changed = msgspec.structs.replace(
        machine,
        torch=msgspec.structs.replace(machine.torch, version=version, rocm=rocm),
        variables=(SetVariable(name="PYTORCH_ALLOC_CONF", value="expandable_segments:True"),),
    )

    found = {finding.rule for finding in diagnose(changed, doctors_knowledge()).findings}

    assert ("expandable-no-effect" in found) is fires


@pytest.mark.parametrize(
    ("rocm", "fires"),
    [
        ("7.1.0", {"windows-training-unsupported", "gfx12-hipblaslt-stall"}),
        ("7.2.1", {"windows-training-unsupported", "rdna4-training-faults"}),
        ("7.14.0", {"rdna4-training-faults", "windows-miopen-headers"}),
        ("10.0.0", {"rdna4-training-faults", "windows-miopen-headers"}),
        ("10.1.0", {"windows-miopen-headers"}),
    ],
)
def test_rules_hold_as_long_as_their_fault_is_there(
    recorded: Recorded, rocm: str, fires: set[str]
) -> None:
    machine = recorded.machine("rx9070xt-windows")
    assert machine.torch is not None
    torch = msgspec.structs.replace(machine.torch, version=f"2.12.0+rocm{rocm}", rocm=rocm)

    changed = msgspec.structs.replace(machine, torch=torch)

    found = {finding.rule for finding in diagnose(changed, doctors_knowledge()).findings}
    asked = {
        "windows-training-unsupported",
        "gfx12-hipblaslt-stall",
        "rdna4-training-faults",
        "windows-miopen-headers",
    }
    assert found & asked - {"windows-miopen-headers"} == fires - {"windows-miopen-headers"}
    assert "windows-miopen-headers" in found


@pytest.mark.parametrize(
    ("kernel", "fires"),
    [
        ("6.17.0-20-generic", True),
        ("6.17.0-1017-oem", True),
        ("6.17.0-1018-oem", False),
        ("6.17.0-1025-oem", False),
        ("6.14.0-1018-oem", False),
        ("6.18.4", False),
    ],
)
def test_strix_halo_needs_oem_kernel_1018_or_newer(
    recorded: Recorded, kernel: str, *, fires: bool
) -> None:
    machine = recorded.machine("strix-halo")
    system = msgspec.structs.replace(machine.system, kernel=kernel)

    changed = msgspec.structs.replace(machine, system=system)

    found = {finding.rule for finding in diagnose(changed, doctors_knowledge()).findings}
    assert ("gfx1151-kernel" in found) is fires


@pytest.mark.parametrize(("rocm", "expected"), [("6.2", Effect.ACTS), ("7.2.4", Effect.NONE)])
def test_a_name_is_gone_only_from_releases_that_were_looked_at(
    recorded: Recorded, rocm: str, expected: Effect
) -> None:
    machine = recorded.machine("mi300x-8")
    assert machine.torch is not None
    changed = msgspec.structs.replace(
        machine, torch=msgspec.structs.replace(machine.torch, rocm=rocm)
    )
    assigned = assignments("export NCCL_WORK_FIFO_DEPTH=1048576\n", "run.sh")

    (verdict,) = judge(assigned, changed, recorded.knowledge, file="").variables

    assert verdict.effect is expected


def test_a_fix_changes_something_and_what_only_looks_is_a_check(knowledge: Knowledge) -> None:
    looks = re.compile(r"(?:cat|ls|grep|uname|fuser|lspci|sudo (?:dmesg|lspci)|python -c) ?")

    fixes = {
        rule.id: [line for line in rule.fix.commands if looks.match(line)]
        for rule in knowledge.rules.values()
    }

    assert {rule: lines for rule, lines in fixes.items() if lines} == {}
    assert knowledge.rules["acs-redirects"].fix.check
