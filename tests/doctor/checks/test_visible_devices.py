"""Lists of devices that contradict each other, and lists that end early."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.checks import visible_devices_conflict, visible_devices_fewer
from rocsteady.doctor.condition_match import CannotTell, Seen
from rocsteady.doctor.facts import gather
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.system import SetVariable

if TYPE_CHECKING:
    from tests.conftest import Recorded

ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"


def both(recorded: Recorded, machine: Machine) -> tuple[Seen, Seen]:
    facts = gather(machine, recorded.knowledge)
    return (
        visible_devices_conflict(machine, facts, recorded.knowledge),
        visible_devices_fewer(machine, facts, recorded.knowledge),
    )


def having(machine: Machine, variables: dict[str, str]) -> Machine:
    found = tuple(SetVariable(name=name, value=value) for name, value in variables.items())
    return msgspec.structs.replace(machine, variables=found)


@pytest.mark.parametrize(
    ("variables", "conflict", "fewer"),
    [
        ({}, (), ()),
        ({HIP: "0,1"}, (), ()),
        ({ROCR: "0,1", HIP: "0,1"}, (), ()),
        ({ROCR: "4,5", HIP: "1,0"}, (), ()),
        ({ROCR: "0,1", HIP: "GPU-abc"}, (), ()),
        ({ROCR: "", HIP: "0"}, (), ()),
        ({ROCR: "0", HIP: ""}, (), ()),
        (
            {ROCR: "0,1", HIP: "0,1,2"},  # torch raises RuntimeError
            (f"{ROCR}=0,1 leaves 2, and {HIP}=0,1,2 asks for others",),
            (),
        ),
        (
            {ROCR: "1", HIP: "1"},  # leaves nothing
            (f"{ROCR}=1 leaves 1, and {HIP}=1 asks for others",),
            (),
        ),
        (
            {ROCR: "1", CUDA: "1"},
            (f"{ROCR}=1 leaves 1, and {CUDA}=1 asks for others",),
            (),
        ),
        ({ROCR: "1", HIP: "0", CUDA: "1"}, (), ()),  # the CUDA name is not read
        (
            {ROCR: "0,1", CUDA: "0,1,2"},  # torch does not refuse this
            (),
            (f"{CUDA}=0,1,2, and 2 to choose from",),
        ),
        ({ROCR: "0,1", HIP: "0,5"}, (), (f"{HIP}=0,5, and 2 to choose from",)),
        ({HIP: "0,1,8"}, (), (f"{HIP}=0,1,8, and 8 to choose from",)),
        ({ROCR: "0,1,8"}, (), (f"{ROCR}=0,1,8, and 8 to choose from",)),
        ({HIP: "-1"}, (), ()),  # hides all, on purpose
        ({HIP: "0,1,-1,2"}, (), (f"{HIP}=0,1,-1,2, and 8 to choose from",)),
    ],
)
def test_eight_cards_and_these_variables(
    recorded: Recorded, variables: dict[str, str], conflict: Seen, fewer: Seen
) -> None:
    machine = having(recorded.machine("mi300x-8"), variables)

    assert both(recorded, machine) == (conflict, fewer)


def test_windows_does_not_read_the_first_filter(recorded: Recorded) -> None:
    machine = having(recorded.machine("rx9070xt-windows"), {ROCR: "0", HIP: "0,1"})

    assert both(recorded, machine) == ((), (f"{HIP}=0,1, and 1 to choose from",))


def test_a_copied_folder_cannot_tell(recorded: Recorded) -> None:
    machine = msgspec.structs.replace(recorded.machine("mi300x-8"), variables_known=False)

    for check in (visible_devices_conflict, visible_devices_fewer):
        with pytest.raises(CannotTell, match=ROCR):
            check(machine, gather(machine, recorded.knowledge), recorded.knowledge)


def test_how_many_wsl_has_to_choose_from_cannot_be_told(recorded: Recorded) -> None:
    with pytest.raises(CannotTell, match=r"gpu\.count"):
        both(recorded, recorded.machine("wsl2"))
