"""What each line of a recipe does: the field notes' own, and the cases between two variables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocsteady.doctor.shell_variables import Assignment
from rocsteady.doctor.variable_files import assignments
from rocsteady.doctor.variables import judge
from rocsteady.vocabulary import Effect, VariableVerdict

if TYPE_CHECKING:
    from tests.conftest import Recorded

RECIPES = Path(__file__).parent / "recipes"
NOTES = {
    "note-a.ps1": (
        "rx9070xt-windows",
        {
            "HSA_ENABLE_SDMA": (Effect.NONE, "hsa-variables-on-windows"),
            "HIP_LAUNCH_BLOCKING": (Effect.DEBUGGING, "serialisation-left-on"),
        },
    ),
    "note-b.Dockerfile": (
        "rx7900xt-pair",
        {
            "TORCH_BLAS_PREFER_HIPBLASLT": (Effect.ACTS, ""),
            "PYTORCH_HIP_ALLOC_CONF": (Effect.PARTLY, "expandable-no-effect"),
            "HSA_XNACK": (Effect.NONE, "xnack-no-effect"),
            "ROCM_ALLOW_HIDDEN_KERNEL_FLAGS": (Effect.UNKNOWN, ""),
            "HSA_OVERRIDE_GFX_VERSION": (Effect.NONE, "override-needless"),
            "PYTORCH_ROCM_ARCH": (Effect.NONE, "rocm-arch-no-effect"),
            "HIP_VISIBLE_DEVICES": (Effect.ACTS, ""),
        },
    ),
    "note-d.sh": (
        "rx7900xt-allocator",
        {
            "PYTORCH_HIP_ALLOC_CONF": (Effect.CANCELLED, ""),
            "HIP_FORCE_DEV_KERNARG": (Effect.NONE, "dev-kernarg-no-effect"),
            "PYTORCH_NO_HIP_MEMORY_CACHING": (Effect.HARMS, "caching-off"),
            "AMD_SERIALIZE_KERNEL": (Effect.DEBUGGING, "serialisation-left-on"),
            "HIP_VISIBLE_DEVICES": (Effect.NONE, ""),  # set, and not exported
            "MIOPEN_USER_DB_PATH": (Effect.HARMS, "miopen-cache-lost"),
            "MIOPEN_ENABLE_LOGGING": (Effect.DEBUGGING, "debug-logging-left-on"),
            "MIOPEN_LOG_LEVEL": (Effect.NONE, ""),  # the default
            "MIOPEN_DISABLE_CACHE": (Effect.HARMS, "miopen-cache-lost"),
        },
    ),
}


@pytest.mark.parametrize("note", NOTES)
def test_every_line_of_a_field_note_is_judged(recorded: Recorded, note: str) -> None:
    machine, expected = NOTES[note]
    text = (RECIPES / note).read_text()

    review = judge(
        assignments(text, note), recorded.machine(machine), recorded.knowledge, file=note
    )

    judged = {each.name: (each.effect, each.reasons[0].rule) for each in review.variables}
    assert judged == expected
    assert all(each.reasons and each.place for each in review.variables)
    assert review.others == 0


def verdict(recorded: Recorded, machine: str, name: str, **variables: str) -> VariableVerdict:
    assigned = [Assignment(each, value, "") for each, value in variables.items()]
    review = judge(assigned, recorded.machine(machine), recorded.knowledge, file="")
    return next(each for each in review.variables if each.name == name)


def test_one_variable_cancels_another(recorded: Recorded) -> None:
    both = {"HSA_ENABLE_SDMA": "0", "HSA_ENABLE_PEER_SDMA": "1"}

    cancelled = verdict(recorded, "rx7900xtx", "HSA_ENABLE_PEER_SDMA", **both)
    cancelling = verdict(recorded, "rx7900xtx", "HSA_ENABLE_SDMA", **both)
    other = {**both, "HSA_ENABLE_SDMA": "1"}

    assert cancelled.effect is Effect.CANCELLED
    assert "HSA_ENABLE_SDMA" in cancelled.reasons[0].text
    assert cancelling.effect is Effect.CANCELS
    assert verdict(recorded, "rx7900xtx", "HSA_ENABLE_PEER_SDMA", **other).effect is Effect.ACTS


def test_two_that_contradict_each_other_are_both_named(recorded: Recorded) -> None:
    both = {"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "1"}

    for name in both:
        found = verdict(recorded, "rx7900xt-pair", name, **both)
        assert found.reasons[0].rule == "visible-devices-conflict"


def test_two_debugging_switches_are_each_judged(recorded: Recorded) -> None:
    both = {"AMD_SERIALIZE_KERNEL": "3", "HIP_LAUNCH_BLOCKING": "1"}

    for name, value in both.items():
        found = verdict(recorded, "rx7900xtx", name, **both)
        assert found.effect is Effect.DEBUGGING
        assert f"{name}={value} is" in found.reasons[0].text


def test_a_variable_that_resolves_a_finding_helps(recorded: Recorded) -> None:
    found = verdict(recorded, "r9700-pair", "NCCL_P2P_DISABLE", NCCL_P2P_DISABLE="1")

    assert "rdna4-pair-p2p" in {reason.rule for reason in found.reasons}
    assert any(reason.effect is Effect.HELPS for reason in found.reasons)


def test_a_misspelt_name_gets_the_nearest_real_one(recorded: Recorded) -> None:
    found = verdict(recorded, "rx7900xtx", "HSA_ENABLE_SMDA", HSA_ENABLE_SMDA="0")

    assert found.effect is Effect.UNKNOWN
    assert found.value is None  # of a variable that is not on the list
    assert found.reasons[0].text.endswith("The nearest real name is HSA_ENABLE_SDMA.")


def test_a_name_that_is_gone_says_since_when(recorded: Recorded) -> None:
    found = verdict(recorded, "rx7900xtx", "GPU_FORCE_64BIT_PTR", GPU_FORCE_64BIT_PTR="1")

    assert found.effect is Effect.UNKNOWN
    assert found.reasons[0].text.startswith("Gone from libamdhip64 after 5.7.1")


def test_the_default_changes_nothing(recorded: Recorded) -> None:
    assert (
        verdict(recorded, "rx7900xtx", "GPU_MAX_HW_QUEUES", GPU_MAX_HW_QUEUES="4").effect
        is Effect.NONE
    )
