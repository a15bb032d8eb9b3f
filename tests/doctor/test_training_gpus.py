"""Which GPUs the variables leave, and which of those one would train on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.system import SetVariable
from rocsteady.doctor.training_gpus import second, trainable, visible

if TYPE_CHECKING:
    from tests.conftest import Recorded

ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"


def having(machine: Machine, variables: dict[str, str]) -> Machine:
    found = tuple(SetVariable(name=name, value=value) for name, value in variables.items())
    return msgspec.structs.replace(machine, variables=found)


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
    machine = having(recorded.machine("mi210-8"), variables)

    assert [gpu.node for gpu in visible(machine)] == nodes


def test_one_trains_on_cards_and_on_the_processors_own_only_without_one(recorded: Recorded) -> None:
    both = recorded.machine("rx6900xt-igpu")

    assert [gpu.gfx for gpu in trainable(both)] == ["gfx1030"]
    assert [gpu.gfx for gpu in trainable(having(both, {ROCR: "1"}))] == ["gfx1036"]
    assert [gpu.gfx for gpu in trainable(recorded.machine("strix-halo"))] == ["gfx1151"]
    assert trainable(recorded.machine("no-amd-gpu")) == ()


def test_windows_has_no_first_filter(recorded: Recorded) -> None:
    machine = recorded.machine("rx9070xt-windows")

    assert visible(having(machine, {ROCR: "5"})) == machine.gpus.gpus
    assert visible(having(machine, {HIP: "5"})) == ()


def test_the_hip_name_is_read_before_the_cuda_name() -> None:
    assert second({}) == HIP
    assert second({CUDA: "0"}) == CUDA
    assert second({HIP: "0", CUDA: "0"}) == HIP
