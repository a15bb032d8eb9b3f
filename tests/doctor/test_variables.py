"""What each line of a recipe does: the field notes' own, and the cases between two variables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocsteady.doctor.env.variable_files import Assignment, assignments
from rocsteady.doctor.env.variables import FORMS, judge
from rocsteady.doctor.knowledge.values import Effect
from rocsteady.doctor.values import VariableReview, VariableVerdict

if TYPE_CHECKING:
    from tests.conftest import Recorded

RECIPES = Path(__file__).parent / "recipes"
NOTES = {
    "note-a.env": (
        "rx9070xt-windows",
        {
            "HSA_ENABLE_SDMA": (Effect.NONE, "hsa-variables-on-windows"),
            "HIP_LAUNCH_BLOCKING": (Effect.DEBUGGING, "serialisation-left-on"),
        },
    ),
    "note-b.yaml": (
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

    found = judge(assignments(text, note), recorded.machine(machine), recorded.knowledge, file=note)

    judged = {each.name: (each.effect, each.reasons[0].rule) for each in found.variables}
    assert judged == expected
    assert all(each.reasons and each.place for each in found.variables)


def review(recorded: Recorded, machine: str, **variables: str) -> VariableReview:
    assigned = [Assignment(each, value, "") for each, value in variables.items()]
    return judge(assigned, recorded.machine(machine), recorded.knowledge, file="")


def verdict(recorded: Recorded, machine: str, name: str, **variables: str) -> VariableVerdict:
    judged = review(recorded, machine, **variables).variables
    return next(each for each in judged if each.name == name)


def test_one_variable_cancels_another(recorded: Recorded) -> None:
    both = {"HSA_ENABLE_SDMA": "0", "HSA_ENABLE_PEER_SDMA": "1"}

    cancelled = verdict(recorded, "rx7900xtx", "HSA_ENABLE_PEER_SDMA", **both)
    cancelling = verdict(recorded, "rx7900xtx", "HSA_ENABLE_SDMA", **both)
    other = {**both, "HSA_ENABLE_SDMA": "1"}

    assert cancelled.effect is Effect.CANCELLED
    assert "HSA_ENABLE_SDMA" in cancelled.reasons[0].text
    assert cancelling.effect is Effect.CANCELS
    assert review(recorded, "rx7900xtx", **both).wrong == 1  # one of the two is to be removed
    assert verdict(recorded, "rx7900xtx", "HSA_ENABLE_PEER_SDMA", **other).effect is Effect.ACTS


def test_two_that_contradict_each_other_are_both_named(recorded: Recorded) -> None:
    both = {"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "1"}

    for name in both:
        found = verdict(recorded, "rx7900xt-pair", name, **both)
        assert found.reasons[0].rule == "visible-devices-conflict"


@pytest.mark.parametrize("name", ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"])
def test_a_mask_that_leaves_the_integrated_gpu_is_named(recorded: Recorded, name: str) -> None:
    card = verdict(recorded, "rx6900xt-igpu", name, **{name: "0"})
    integrated = verdict(recorded, "rx6900xt-igpu", name, **{name: "1"})

    assert integrated.reasons[0].rule == "mask-leaves-integrated"
    assert "mask-leaves-integrated" not in [reason.rule for reason in card.reasons]


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


def test_a_misspelt_name_that_would_do_harm_is_not_to_be_corrected(recorded: Recorded) -> None:
    name = "HSA_OVERRIDE_GFX_VERSON"
    found = verdict(recorded, "rx5700xt-override", name, HSA_OVERRIDE_GFX_VERSON="10.3.0")

    assert "Leave it out: under that name it would do harm here." in found.reasons[0].text


def test_a_setting_is_partly_of_no_effect_only_beside_others(recorded: Recorded) -> None:
    names = {"PYTORCH_HIP_ALLOC_CONF": "expandable_segments:True"}
    alone = verdict(recorded, "rx9070xt", "PYTORCH_HIP_ALLOC_CONF", **names)
    names["PYTORCH_HIP_ALLOC_CONF"] += ",max_split_size_mb:128"
    beside = verdict(recorded, "rx9070xt", "PYTORCH_HIP_ALLOC_CONF", **names)

    assert (alone.effect, beside.effect) == (Effect.NONE, Effect.PARTLY)


def test_a_name_that_is_gone_says_since_when(recorded: Recorded) -> None:
    found = verdict(recorded, "rx7900xtx", "GPU_FORCE_64BIT_PTR", GPU_FORCE_64BIT_PTR="1")

    assert found.effect is Effect.UNKNOWN
    assert found.reasons[0].text.startswith("Not in libamdhip64 6.4.3, last seen in 5.7.1")


def test_the_default_changes_nothing(recorded: Recorded) -> None:
    assert (
        verdict(recorded, "rx7900xtx", "GPU_MAX_HW_QUEUES", GPU_MAX_HW_QUEUES="4").effect
        is Effect.NONE
    )


WRONG = {
    "HSA_ENABLE_SDMA": "off",
    "HSA_XNACK": "yes",
    "HSA_OVERRIDE_GFX_VERSION": "gfx1030",
    "AMD_LOG_LEVEL": "debug",
    "AMD_DIRECT_DISPATCH": "on",
    "HIP_VISIBLE_DEVICES": "all",
    "MIOPEN_FIND_MODE": "QUICK",
    "MIOPEN_DISABLE_CACHE": "never",
    "NCCL_DEBUG": "VERBOSE",
    "NCCL_IB_DISABLE": "true",
    "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL": "true",
    "PYTORCH_TUNABLEOP_ENABLED": "yes",
    "TORCH_SHOW_CPP_STACKTRACES": "on",
}
RIGHT = {
    "AMD_DIRECT_DISPATCH": "false",
    "HIP_VISIBLE_DEVICES": "0,1",
    "MIOPEN_FIND_MODE": "fast",
    "MIOPEN_DISABLE_CACHE": "off",
    "NCCL_DEBUG": "info",
    "NCCL_MAX_NCHANNELS": "0x20",
    "ROCR_VISIBLE_DEVICES": "GPU-4b2c1a9f8e7d6c5b",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_value_that_is_not_taken_does_not_act(recorded: Recorded, name: str) -> None:
    found = verdict(recorded, "rx7900xtx", name, **{name: WRONG[name]})

    assert Effect.INVALID in {reason.effect for reason in found.reasons}
    assert found.effect is not Effect.ACTS
    assert all(reason.sources for reason in found.reasons)


@pytest.mark.parametrize("name", RIGHT)
def test_other_spellings_that_are_taken_are_not_invalid(recorded: Recorded, name: str) -> None:
    found = verdict(recorded, "rx7900xtx", name, **{name: RIGHT[name]})

    assert Effect.INVALID not in {reason.effect for reason in found.reasons}


def test_every_form_of_the_list_is_known(recorded: Recorded) -> None:
    words = {word for each in recorded.knowledge.variables.values() for word in each.takes}

    assert {word for word in words if word.islower()} <= set(FORMS)


def test_without_a_gpu_it_is_said_what_cannot_be_judged(recorded: Recorded) -> None:
    found = verdict(recorded, "no-amd-gpu", "HSA_XNACK", HSA_XNACK="1")

    assert found.effect is Effect.DEPENDS
    assert "Not judged without a GPU" in found.reasons[0].text


def test_services_do_not_cancel_each_other(recorded: Recorded) -> None:
    text = (
        "services:\n  a:\n    environment: [HSA_ENABLE_SDMA=0]\n"
        "  b:\n    environment: [HSA_ENABLE_PEER_SDMA=1]\n"
    )
    assigned = assignments(text, "compose.yaml")

    found = judge(assigned, recorded.machine("rx7900xtx"), recorded.knowledge, file="")

    assert [each.effect for each in found.variables][1] is Effect.ACTS


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("ROCR_VISIBLE_DEVICES=2,3", Effect.HARMS),
        ("HIP_VISIBLE_DEVICES=-1", Effect.HARMS),
        ("CUDA_VISIBLE_DEVICES=1", Effect.HARMS),
        ("ROCR_VISIBLE_DEVICES=0", Effect.ACTS),
    ],
)
def test_a_selection_that_leaves_no_gpu_harms(
    recorded: Recorded, line: str, effect: Effect
) -> None:
    assigned = assignments(f"export {line}\n", "run.sh")

    found = judge(assigned, recorded.machine("rx6700xt"), recorded.knowledge, file="")

    assert [each.effect for each in found.variables] == [effect]


CONF = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


@pytest.mark.parametrize(
    ("machine", "names", "effects"),
    [
        ("rx7900xtx", CONF, (Effect.CANCELS, Effect.CANCELLED, Effect.CANCELLED)),
        ("rx7900xtx", CONF[1:], (Effect.CANCELS, Effect.CANCELLED)),
        ("rx7900xtx", CONF[::2], (Effect.CANCELS, Effect.CANCELLED)),
        ("rx7600-old-torch", CONF[2:], (Effect.NONE,)),
        ("rx7600-old-torch", CONF[:2], (Effect.CANCELS, Effect.CANCELLED)),
    ],
)
def test_the_allocator_reads_one_of_its_names(
    recorded: Recorded, machine: str, names: tuple[str, ...], effects: tuple[Effect, ...]
) -> None:
    found = review(recorded, machine, **dict.fromkeys(names, "max_split_size_mb:128"))

    assert [(each.name, each.effect) for each in found.variables] == [
        *zip(names, effects, strict=True)
    ]
    if Effect.CANCELLED in effects:
        loser = found.variables[effects.index(Effect.CANCELLED)]
        winner = names[effects.index(Effect.CANCELS)]
        assert loser.reasons[0].text == f"No effect while {winner} is set."


@pytest.mark.parametrize(
    ("machine", "path", "effect"),
    [
        ("rx7900xt-pair", "/opt/rocm/lib", Effect.HARMS),
        ("rx7900xt-pair", "/home/user/lib:/opt/rocm-6.2.0/lib", Effect.HARMS),
        ("rx7900xt-pair", "/home/user/lib", Effect.ACTS),
        ("rx7900xtx", "/opt/rocm/lib", Effect.ACTS),  # there is no such ROCm
        ("mixed-libraries", "/opt/rocm/lib", Effect.HARMS),
    ],
)
def test_a_library_path_is_judged_as_the_doctor_does(
    recorded: Recorded, machine: str, path: str, effect: Effect
) -> None:
    found = verdict(recorded, machine, "LD_LIBRARY_PATH", LD_LIBRARY_PATH=path)

    assert found.effect is effect
    assert (found.reasons[0].rule == "mixed-rocm-libraries") == (effect is Effect.HARMS)


@pytest.mark.parametrize(
    ("machine", "variable", "effect", "rule"),
    [
        ("rx7900xtx", "CUDA_LAUNCH_BLOCKING=1", Effect.NONE, "cuda-launch-blocking"),
        ("nvidia-card", "CUDA_LAUNCH_BLOCKING=1", Effect.DEBUGGING, ""),
        ("rx7900xtx", "TORCH_SHOW_CPP_STACKTRACES=1", Effect.DEBUGGING, ""),
        ("rx7900xtx", "HSA_ENABLE_DXG_DETECTION=0", Effect.NONE, "dxg-outside-wsl"),
        ("wsl2-rocm-10", "HSA_ENABLE_DXG_DETECTION=0", Effect.HARMS, "wsl-detection-off"),
        ("strix-halo-rocm-10", "RCCL_MSCCL_ENABLE=0", Effect.NONE, "msccl-gone"),
        ("rx7900xtx", "RCCL_MSCCL_ENABLE=0", Effect.ACTS, ""),
        ("rx7900xtx", "RCCL_MSCCL_ENABLE=1", Effect.NONE, ""),  # the default
        ("rx7900xtx", "PYTORCH_TUNABLEOP_ENABLED=1", Effect.HARMS, "tuning-left-on"),
    ],
)
def test_what_a_variable_does_depends_on_the_machine(
    recorded: Recorded, machine: str, variable: str, effect: Effect, rule: str
) -> None:
    name, _, value = variable.partition("=")
    found = verdict(recorded, machine, name, **{name: value})

    assert (found.effect, found.reasons[0].rule) == (effect, rule)


def test_a_lost_database_is_not_said_to_lose_kernels(recorded: Recorded) -> None:
    found = verdict(recorded, "rx7900xtx", "MIOPEN_USER_DB_PATH", MIOPEN_USER_DB_PATH="/tmp/db")

    assert found.reasons[0].rule == "miopen-cache-lost"
    assert "the database of tuning results in /tmp/db does not survive" in found.reasons[0].text
    assert "compiled" not in found.reasons[0].text


def judged(recorded: Recorded, machine: str, text: str, file: str) -> dict[str, Effect]:
    found = judge(assignments(text, file), recorded.machine(machine), recorded.knowledge, file=file)
    return {each.name: each.effect for each in found.variables}


@pytest.mark.parametrize(
    "value",
    [
        "/opt/rocm/lib:$LD_LIBRARY_PATH",
        '"/opt/rocm/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"',
        "${LD_LIBRARY_PATH}:/opt/rocm/lib",
    ],
)
def test_a_folder_that_is_added_to_a_path_is_judged(recorded: Recorded, value: str) -> None:
    text = f"export LD_LIBRARY_PATH={value}\n"

    assert judged(recorded, "rx7900xt-pair", text, "a.sh") == {"LD_LIBRARY_PATH": Effect.HARMS}


def test_a_needed_override_has_one_story(recorded: Recorded) -> None:
    name = "HSA_OVERRIDE_GFX_VERSION"
    found = verdict(recorded, "rx6700xt", name, **{name: "10.3.0"})

    assert [reason.rule for reason in found.reasons] == ["override-needed", "wheel-lacks-arch"]


@pytest.mark.parametrize(
    ("node", "effect"), [("0", Effect.NONE), ("1", Effect.HELPS), ("7", Effect.NONE)]
)
def test_an_override_for_a_node_that_is_no_gpu_does_nothing(
    recorded: Recorded, node: str, effect: Effect
) -> None:
    name = f"HSA_OVERRIDE_GFX_VERSION_{node}"

    assert verdict(recorded, "rx6700xt", name, **{name: "10.3.0"}).effect is effect


def test_what_stands_before_one_command_is_not_seen_by_another(recorded: Recorded) -> None:
    text = (
        "export HSA_ENABLE_SDMA=0\nROCR_VISIBLE_DEVICES=1 python a.py\n"
        "HIP_VISIBLE_DEVICES=1 HSA_ENABLE_PEER_SDMA=1 python b.py\n"
    )
    machine = recorded.machine("rx7900xt-pair")

    found = judge(assignments(text, "a.sh"), machine, recorded.knowledge, file="").variables

    rules = {reason.rule for each in found for reason in each.reasons}
    assert "visible-devices-conflict" not in rules
    assert {each.name: each.effect for each in found}["HSA_ENABLE_PEER_SDMA"] is Effect.CANCELLED
    together = text.replace("python a.py\n", "")
    found = judge(assignments(together, "a.sh"), machine, recorded.knowledge, file="").variables
    assert "visible-devices-conflict" in {it.rule for each in found for it in each.reasons}


def test_one_value_for_each_of_two_commands_is_judged_twice(recorded: Recorded) -> None:
    text = "HSA_XNACK=1 python a.py\nHSA_XNACK=0 python b.py\n"
    machine = recorded.machine("rx7900xtx")

    found = judge(assignments(text, "a.sh"), machine, recorded.knowledge, file="").variables

    assert [each.value for each in found] == ["1", "0"]
