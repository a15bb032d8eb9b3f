"""Another ROCm in front of the one that the wheel brings along."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.checks import mixed_rocm_libraries
from rocsteady.doctor.condition_match import CannotTell, Seen
from rocsteady.doctor.facts import gather
from rocsteady.doctor.machine.machine import Machine

if TYPE_CHECKING:
    from tests.conftest import Recorded


def seen(recorded: Recorded, machine: Machine) -> Seen:
    facts = gather(machine, recorded.knowledge)
    return mixed_rocm_libraries(machine, facts, recorded.knowledge)


def test_a_rocm_in_the_library_path_is_named_with_one_of_its_libraries(recorded: Recorded) -> None:
    machine = recorded.machine("mixed-libraries")

    assert seen(recorded, machine) == ("/opt/rocm/lib (libamdhip64.so)",)


def test_a_rocm_that_nothing_points_at_is_harmless(recorded: Recorded) -> None:
    machine = recorded.machine("rx7900xt-pair")

    assert machine.rocm
    assert seen(recorded, machine) == ()


def test_a_torch_that_uses_the_systems_rocm_is_right_to_do_so(recorded: Recorded) -> None:
    machine = recorded.machine("mixed-libraries")
    assert machine.torch is not None
    torch = msgspec.structs.replace(machine.torch, bundles_rocm=False)

    assert seen(recorded, msgspec.structs.replace(machine, torch=torch)) == ()


def test_without_torch_it_cannot_be_told(recorded: Recorded) -> None:
    machine = msgspec.structs.replace(recorded.machine("mixed-libraries"), torch=None)

    with pytest.raises(CannotTell, match=r"torch\.build"):
        seen(recorded, machine)


def test_a_copied_folder_cannot_tell(recorded: Recorded) -> None:
    machine = msgspec.structs.replace(recorded.machine("mixed-libraries"), variables_known=False)

    with pytest.raises(CannotTell, match="LD_LIBRARY_PATH"):
        seen(recorded, machine)
