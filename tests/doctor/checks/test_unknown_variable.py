"""A variable that nothing reads: known to be a placebo, or one letter away from a real one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.checks import unknown_variable
from rocsteady.doctor.condition_match import CannotTell, Seen
from rocsteady.doctor.facts import gather
from rocsteady.doctor.machine.system import SetVariable

if TYPE_CHECKING:
    from tests.conftest import Recorded


def seen(recorded: Recorded, *names: str, known: bool = True) -> Seen:
    machine = msgspec.structs.replace(
        recorded.machine("rx7900xtx"),
        variables=tuple(SetVariable(name=name, value=None) for name in names),
        variables_known=known,
    )
    facts = gather(machine, recorded.knowledge)
    return unknown_variable(machine, facts, recorded.knowledge)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ROCM_ALLOW_HIDDEN_KERNEL_FLAGS", ("ROCM_ALLOW_HIDDEN_KERNEL_FLAGS",)),
        ("HSA_ENABLE_SMDA", ("HSA_ENABLE_SMDA (did you mean HSA_ENABLE_SDMA?)",)),
        ("HSA_ENABLE_SDMA", ()),
        ("HSA_OVERRIDE_GFX_VERSION_1", ()),
        (
            "HSA_OVERIDE_GFX_VERSION",
            ("HSA_OVERIDE_GFX_VERSION (did you mean HSA_OVERRIDE_GFX_VERSION?)",),
        ),
        ("ROCM_MADE_UP_LATER", ()),  # our list may be older than the variable
        ("AMD_LICENCE_KEY", ()),
    ],
)
def test_names(recorded: Recorded, name: str, told: Seen) -> None:
    assert seen(recorded, name) == told


def test_each_is_told(recorded: Recorded) -> None:
    assert seen(recorded, "HSA_ENABLE_SMDA", "ROCM_ALLOW_HIDDEN_KERNEL_FLAGS") == (
        "HSA_ENABLE_SMDA (did you mean HSA_ENABLE_SDMA?)",
        "ROCM_ALLOW_HIDDEN_KERNEL_FLAGS",
    )


def test_a_copied_folder_cannot_tell(recorded: Recorded) -> None:
    with pytest.raises(CannotTell, match="variable"):
        seen(recorded, known=False)
