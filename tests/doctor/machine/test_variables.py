"""Variables that matter are listed; the value of one that is not on the list is not kept."""

from __future__ import annotations

from rocsteady.doctor.machine.system import SetVariable, listed, read_variables

KNOWN = {"HSA_OVERRIDE_GFX_VERSION", "OMP_NUM_THREADS"}


def test_listed_variables_keep_their_values_and_come_by_name() -> None:
    environment = {"OMP_NUM_THREADS": "8", "HSA_OVERRIDE_GFX_VERSION": "10.3.0"}

    assert read_variables(environment, KNOWN) == (
        SetVariable(name="HSA_OVERRIDE_GFX_VERSION", value="10.3.0"),
        SetVariable(name="OMP_NUM_THREADS", value="8"),
    )


def test_the_value_of_an_unlisted_one_of_our_families_is_not_kept() -> None:
    assert read_variables({"HIP_SECRET": "hunter2"}, KNOWN) == (
        SetVariable(name="HIP_SECRET", value=None),
    )


def test_everything_else_is_left_out_whole() -> None:
    assert read_variables({"HF_TOKEN": "hf_x", "PATH": "/bin", "HIPSTER": "1"}, KNOWN) == ()


def test_the_form_for_one_node_is_listed_with_the_form_for_all() -> None:
    assert read_variables({"HSA_OVERRIDE_GFX_VERSION_1": "11.0.0"}, KNOWN) == (
        SetVariable(name="HSA_OVERRIDE_GFX_VERSION_1", value="11.0.0"),
    )
    assert not listed("HSA_OVERRIDE_GFX_VERSION_X", KNOWN)
