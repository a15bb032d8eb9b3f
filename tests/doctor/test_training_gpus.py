"""Which GPUs the variables leave, which one would train on, and what an override makes of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.diagnosis import diagnose
from rocsteady.doctor.env.variable_files import Assignment
from rocsteady.doctor.env.variables import judge
from rocsteady.doctor.facts import gather
from rocsteady.doctor.knowledge.values import Effect
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.system import SetVariable
from rocsteady.doctor.training_gpus import (
    VARIABLE,
    effect,
    effects,
    overridden,
    override_settings,
    second,
    trainable,
    visible,
)

if TYPE_CHECKING:
    from tests.conftest import Recorded


def having(machine: Machine, **variables: str) -> Machine:
    found = tuple(SetVariable(name=name, value=value) for name, value in variables.items())
    return msgspec.structs.replace(machine, variables=found)


@pytest.mark.parametrize(
    ("value", "gfx"),
    [
        ("10.3.0", "gfx1030"),
        (" 11.0.0", "gfx1100"),
        ("9.0.10", "gfx90a"),
        ("9.4.2", "gfx942"),
        ("", None),
        ("10.3", None),
        ("10.3.0 ", None),
        ("gfx1030", None),
        ("10.3.x", None),
    ],
)
def test_a_version_names_an_architecture(recorded: Recorded, value: str, gfx: str | None) -> None:
    machine = having(recorded.machine("rx6700xt"), **{VARIABLE: value})

    assert overridden(machine, machine.gpus.gpus[0]) == gfx


def test_the_form_with_a_node_is_for_that_gpu_and_comes_first(recorded: Recorded) -> None:
    two = {VARIABLE: "11.0.0", f"{VARIABLE}_2": "10.3.0"}
    machine = having(recorded.machine("rx7900xtx-rx6700xt"), **two)

    assert [overridden(machine, gpu) for gpu in machine.gpus.gpus] == ["gfx1100", "gfx1030"]
    assert override_settings(machine) == [f"{VARIABLE}=11.0.0", f"{VARIABLE}_2=10.3.0"]
    assert effects(machine, recorded.knowledge) == ["same", "within-family"]


@pytest.mark.parametrize(
    ("machine_name", "value", "found"),
    [
        ("rx6700xt", "10.3.0", ["within-family"]),
        ("rx6700xt", "10.3.1", ["same"]),
        ("rx6700xt", "11.0.0", ["across-families"]),
        ("rx6700xt", "gfx1030", ["refused"]),
        ("rx6700xt", "", []),
        ("rx7900xtx-rx6700xt", "11.0.0", ["same", "across-families"]),
        ("rx6900xt-igpu", "10.3.0", ["same"]),  # the processor's own does not count beside a card
        ("old-kernel", "9.0.0", ["same", "same"]),  # known by its PCI device
        ("no-amd-gpu", "10.3.0", []),
    ],
)
def test_the_effect_on_each_gpu_one_would_train_on(
    recorded: Recorded, machine_name: str, value: str, found: list[str]
) -> None:
    machine = having(recorded.machine(machine_name), **{VARIABLE: value})

    assert effects(machine, recorded.knowledge) == found


@pytest.mark.parametrize(
    ("gfx", "told", "name"),
    [
        ("gfx1100", "gfx1100", "same"),
        ("gfx1031", "gfx1030", "within-family"),
        ("gfx1010", "gfx1030", "across-families"),
        ("gfx1151", "gfx1100", "across-families"),
        ("gfx90a", "gfx942", "across-families"),
        ("gfx1031", "gfx1039", "across-families"),
    ],
)
def test_families_are_instruction_sets(recorded: Recorded, gfx: str, told: str, name: str) -> None:
    assert effect(gfx, told, recorded.knowledge) == name


@pytest.mark.parametrize(
    ("machine_name", "value", "code", "rule", "effect_of_it"),
    [
        ("rx6700xt", "10.3.0", ["needed"], "override-needed", Effect.HELPS),
        ("rx7600-override", "11.0.0", ["instead"], "override-active", Effect.HARMS),
        ("rx6700xt-leftovers", "10.3.0", ["none"], "override-without-code", Effect.HARMS),
        ("rx6700xt", "10.3.6", ["none"], "override-without-code", Effect.HARMS),
        ("rx6700xt", "11.0.0", [], "override-across-families", Effect.HARMS),
    ],
)
def test_doctor_and_env_say_the_same_of_an_override(  # noqa: PLR0913, PLR0917 - one case a line
    recorded: Recorded,
    machine_name: str,
    value: str,
    code: list[str],
    rule: str,
    effect_of_it: Effect,
) -> None:
    machine, knowledge = recorded.machine(machine_name), recorded.knowledge
    told = having(machine, **{VARIABLE: value})

    found = diagnose(told, knowledge)
    judged = judge([Assignment(VARIABLE, value, "")], machine, knowledge, file="").variables[0]

    assert list(gather(told, knowledge).values("override.code")) == code
    about = [each for each in found.findings if each.rule.startswith("override")]
    assert [each.rule for each in about] == [rule]
    assert (judged.effect, judged.reasons[0].rule) == (effect_of_it, rule)
    assert judged.reasons[0].text == about[0].summary


def test_what_to_do_with_a_needed_override_unsets_it_last(recorded: Recorded) -> None:
    (finding,) = recorded.diagnosis("rx6700xt-override").findings

    assert finding.rule == "override-needed"
    (command,) = finding.fix.commands
    assert command.endswith("&& unset HSA_OVERRIDE_GFX_VERSION")
    (vega,) = recorded.diagnosis("vega-apu").findings
    assert vega.fix.commands == ()  # no torch with its code exists


ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("variables", "nodes"),
    [
        ({}, [2, 3, 4, 5, 6, 7, 8, 9]),
        ({ROCR: "0,1"}, [2, 3]),
        ({ROCR: "3, 2"}, [5, 4]),
        ({HIP: "7"}, [9]),
        ({CUDA: "7"}, [9]),
        ({HIP: "0", CUDA: "7"}, [2]),
        ({HIP: "", CUDA: "7"}, [9]),
        ({ROCR: "4,5", HIP: "1"}, [7]),
        ({ROCR: "4", HIP: "4"}, []),
        ({HIP: "-1"}, []),
        ({HIP: "0,8,1"}, [2]),
        ({HIP: ""}, [2, 3, 4, 5, 6, 7, 8, 9]),
        ({ROCR: "GPU-0000000000000003"}, [4]),
        ({ROCR: "GPU-nobody"}, [2, 3, 4, 5, 6, 7, 8, 9]),
        ({ROCR: "0,1,2", HIP: "GPU-nobody"}, [2, 3, 4]),
    ],
)
def test_the_first_filter_renumbers_for_the_second(
    recorded: Recorded, variables: dict[str, str], nodes: list[int]
) -> None:
    machine = having(recorded.machine("mi210-8"), **variables)

    assert [gpu.node for gpu in visible(machine)] == nodes


def test_one_trains_on_cards_and_on_the_processors_own_only_without_one(recorded: Recorded) -> None:
    both = recorded.machine("rx6900xt-igpu")

    assert [gpu.gfx for gpu in trainable(both)] == ["gfx1030"]
    assert [gpu.gfx for gpu in trainable(having(both, **{ROCR: "1"}))] == ["gfx1036"]
    assert [gpu.gfx for gpu in trainable(recorded.machine("strix-halo"))] == ["gfx1151"]
    assert trainable(recorded.machine("no-amd-gpu")) == ()


def test_windows_has_no_first_filter(recorded: Recorded) -> None:
    machine = recorded.machine("rx9070xt-windows")

    assert visible(having(machine, **{ROCR: "5"})) == machine.gpus.gpus
    assert visible(having(machine, **{HIP: "5"})) == ()


def test_the_hip_name_is_read_before_the_cuda_name() -> None:
    assert second({}) == HIP
    assert second({CUDA: "0"}) == CUDA
    assert second({HIP: "0", CUDA: "0"}) == HIP
