"""A machine in a few lines, and what training on it can be expected to run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.diagnosis import diagnose
from rocsteady.doctor.machine.system import SetVariable
from rocsteady.doctor.values import Brief, ComputeDevice

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


@pytest.mark.parametrize(
    ("machine_name", "brief"),
    [
        (
            "rx6900xt-igpu",
            Brief(
                gpus=(
                    "Radeon RX 6900 XT (gfx1030, 16 GiB)",
                    "Radeon Graphics (Raphael) (gfx1036, 64 MiB of its own, 31 GiB shared)",
                ),
                other_gpus=(),
                system="Ubuntu 24.04.3 LTS, kernel 6.14.0-33-generic, amdgpu in kernel",
                python="environment /home/user/venv (VIRTUAL_ENV)",
                torch="2.8.0+rocm6.4, Python 3.12.3",
                torch_code=(
                    "includes code for gfx900 gfx906 gfx908 gfx90a gfx942 gfx1030 gfx1100 gfx1101 "
                    "gfx1102 gfx1200 gfx1201 (from its file names)"
                ),
            ),
        ),
        (
            "driver-not-loaded",
            Brief(
                gpus=(),
                other_gpus=("Radeon RX 7600 series (the driver does not offer it for compute)",),
                system="Ubuntu 24.04.3 LTS, kernel 6.14.0-33-generic, amdgpu not loaded",
                python="environment /home/user/venv (VIRTUAL_ENV)",
                torch="2.11.0+rocm7.2, Python 3.12.3",
                torch_code=(
                    "includes code for gfx908 gfx90a gfx942 gfx950 gfx1030 gfx1100 "
                    "gfx1101 gfx1102 gfx1150 gfx1151 gfx1200 gfx1201 (from the release table)"
                ),
            ),
        ),
        (
            "wsl2",
            Brief(
                gpus=(),
                other_gpus=("behind WSL2, which does not list it in its files",),
                system="Ubuntu 24.04.3 LTS, WSL2, kernel 6.6.87.2-microsoft-standard-WSL2",
                python="environment /home/user/venv (VIRTUAL_ENV)",
                torch="2.9.1+rocm7.2.0.git7e1940d4, Python 3.12.3",
                torch_code="",
            ),
        ),
        (
            "rx9070xt-windows",
            Brief(
                gpus=("Radeon RX 9070 XT (gfx1201, 16 GiB)",),
                other_gpus=(),
                system="Windows 11 Pro, build 10.0.26100, display driver 32.0.21025.1024",
                python="environment C:/Users/user/venv (VIRTUAL_ENV)",
                torch="2.9.1+rocmsdk20251116, Python 3.12.10",
                torch_code="",
            ),
        ),
        (
            "withheld",
            Brief(
                gpus=("Instinct MI210 (gfx90a, 64 GiB)",),
                other_gpus=("1 not accessible from here",),
                system=(
                    "Ubuntu 22.04.5 LTS, docker container, kernel 5.15.0-157-generic, "
                    "amdgpu 6.8.5 DKMS"
                ),
                python="environment /opt/venv (VIRTUAL_ENV)",
                torch="2.6.0+rocm6.2.4, Python 3.10.12",
                torch_code=(
                    "includes code for gfx900 gfx906 gfx908 gfx90a gfx942 gfx1030 gfx1100 "
                    "(from the release table)"
                ),
            ),
        ),
    ],
)
def test_a_machine_in_a_few_lines(recorded: Recorded, machine_name: str, brief: Brief) -> None:
    assert recorded.diagnosis(machine_name).machine == brief
