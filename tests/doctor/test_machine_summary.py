"""A machine in a few lines, and what training on it can be expected to run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.diagnosis import diagnose
from rocsteady.doctor.machine.system import SetVariable
from rocsteady.doctor.values import ComputeDevice

if TYPE_CHECKING:
    from tests.conftest import Recorded

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
