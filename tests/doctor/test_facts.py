"""Each fact where it is known, where there is none of it, and where it cannot be told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from rocsteady.doctor.facts import (
    FACTS,
    GIB,
    NO_VARIABLES,
    NO_WSL_GPU,
    Scalar,
    gather,
    release_arches,
)
from rocsteady.doctor.machine.machine import Machine, examine
from rocsteady.doctor.machine.python_env import PythonEnv
from rocsteady.doctor.machine.recording import Recording, read_recording
from rocsteady.doctor.machine.torch_build import TorchBuild
from rocsteady.system.disk_root import DiskRoot

if TYPE_CHECKING:
    from tests.conftest import Recorded

ARCHES_2_5 = ("gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100")
DISTRO = (
    "/usr/lib/x86_64-linux-gnu/libhsa-runtime64.so.1",
    "/usr/lib/x86_64-linux-gnu/libhsakmt.so.1",
)
ON_THE_MACHINE = "device nodes can only be tried on the machine itself"
NOBODY_SAYS = "neither the PCI files nor the command line say"

KNOWN: dict[str, tuple[str, tuple[Scalar, ...]]] = {
    "os": ("rx9070xt-windows", ("windows",)),
    "wsl": ("wsl2", (True,)),
    "wsl.dxg": ("wsl2", (True,)),
    "wsl.librocdxg": ("wsl2-bridge", (True,)),
    "container": ("render-denied", ("podman",)),
    "kernel.version": ("old-kernel", ("4.18.0-553.el8_10.x86_64",)),
    "kernel.build": ("strix-halo", (8,)),
    "kernel.iommu": ("mi210-8", ("translated",)),
    "driver.loaded": ("driver-not-loaded", (False,)),
    "driver.version": ("mi300x-8", ("6.10.5",)),
    "gpu.count": ("mi300x-cpx", (63,)),
    "gpu.gfx": ("rx6900xt-igpu", ("gfx1030", "gfx1036")),
    "gpu.discrete.count": ("mi300x-cpx", (8,)),
    "gpu.discrete.gfx": ("rx6900xt-igpu", ("gfx1030",)),
    "gpu.discrete.indices": ("rx7900xtx-rx6700xt", ("0,1",)),
    "gpu.integrated.gfx": ("strix-halo", ("gfx1151",)),
    "gpu.withheld": ("withheld", (1,)),
    "gpu.undescribed": ("old-kernel", (2,)),
    "gpu.visible.count": ("mi300x-8", (4,)),
    "gpu.visible.discrete": ("mi300x-8", (4,)),
    "gpu.extras": ("rx7900xtx-rx6700xt", ("device-gfx1100,device-gfx1031",)),
    "gpu.not_offered": ("driver-not-loaded", ("0000:03:00.0",)),
    "gpu.not_offered.gfx": ("rx7900xtx-old-card", ("gfx803",)),
    "gpu.link_width": ("rx7900xt-pair", (16, 4)),
    "gpu.vram_gib": ("rx6900xt-igpu", (15.984375, 0.0625)),
    "rocm.version": ("mixed-libraries", ("6.1.0",)),
    "torch.installed": ("rx7900xtx", (True,)),
    "torch.version": ("wsl2", ("2.9.1",)),
    "torch.build": ("nvidia-card", ("cuda",)),
    "torch.rocm": ("rx9070xt-windows", ("7.1",)),
    "torch.extras": ("windows-rocm-10", ("amd_torch_device_gfx1201",)),
    "torch.made_by": ("rx9070xt-windows", ("amd",)),
    "kernel.arguments": ("strix-halo", ("ttm.pages_limit=29360128",)),
    "kernel.numa_balancing": ("r9700-pair", (True,)),
    "driver.release": ("mi300x-8", ("6.10.5",)),
    "gpu.discrete.vram_gib": ("radeon-vii", (17163091968 / GIB,)),
    "gpu.integrated.vram_gib": ("vega-apu", (2.0,)),
    "gpu.integrated.gtt_share": ("vega-apu", (0.5,)),
    "gpu.reachable": ("r9700-pair", ("part", "part")),
    "gpu.peers": ("r9700-pair", ("redirected", "redirected")),
    "gpu.mes": ("radeon-890m", ("0x83",)),
    "gpu.processes": ("radeon-780m", (4,)),
    "gpu.screens": ("rx9060xt", ("card1-DP-1",)),
    "gpu.firmware": ("radeon-890m", ("mes 0x00000083",)),
    "gpu.link_speed": ("rx7900xt-pair", (16.0, 16.0)),
    "gpu.link_errors": ("mi355x", (0,)),
    "gpu.memory_errors": ("mi355x", (0,)),
    "gpu.xgmi_peers": ("mi355x", (1,)),
    "gpu.address": ("rx7900xt-pair", ("0000:03:00.0", "0000:09:00.0")),
    "libraries.libnuma": ("mi355x", (True,)),
    "package.amdsmi": ("container-small-shm", ("26.2.0",)),
    "package.bitsandbytes": ("container-small-shm", ("0.48.2",)),
    "package.flash_attn": ("container-small-shm", ("2.8.3",)),
    "package.lightning": ("container-small-shm", ("2.6.1",)),
    "package.torch_directml": ("windows-rocm-10", ("0.2.5.dev240914",)),
    "package.triton": ("rx7900xtx-switches", ("3.5.0",)),
    "torch.arches": ("rx5700xt-override", ARCHES_2_5),
    "device.kfd": ("kfd-denied", ("denied",)),
    "device.render": ("container-no-kfd", ("missing",)),
    "memory.gib": ("rx7900xtx", (31.25,)),
    "memory.limit_gib": ("container-no-kfd", (16.0,)),
    "shm.gib": ("container-no-kfd", (0.0625,)),
    "disk.free_gib": ("rx7900xtx", (400_000_000_000 / 2**30,)),
    "variables.hsa": ("rx7900xt-pair", ("HSA_OVERRIDE_GFX_VERSION", "HSA_XNACK")),
    "override.effect": ("rx7900xt-pair", ("same", "same")),
    "override.code": ("rx6700xt-override", ("needed",)),
    "override.settings": ("rx7900xt-pair", ("HSA_OVERRIDE_GFX_VERSION=11.0.0",)),
    "libraries.distro_hsa": ("wsl2-bridge", DISTRO),
    "wheels.amd": ("rx7900xtx", ("https://stable.repo.amd.com/rocm/whl-next/",)),
    "wheels.pytorch": (
        "radeon-vii",
        ("torch==2.7.1+rocm6.3 --index-url https://download.pytorch.org/whl/rocm6.3",),
    ),
}
ABSENT = {
    "container": "rx7900xtx",
    "driver.version": "rx7900xtx",
    "gpu.gfx": "no-amd-gpu",
    "gpu.discrete.gfx": "nvidia-card",
    "gpu.discrete.indices": "nvidia-card",
    "gpu.integrated.gfx": "rx7900xtx",
    "gpu.extras": "no-amd-gpu",
    "gpu.not_offered": "rx7900xtx",
    "gpu.not_offered.gfx": "rx7900xtx",
    "gpu.link_width": "cpu-wheel",  # its card sleeps
    "gpu.vram_gib": "no-amd-gpu",
    "rocm.version": "rx7900xtx",
    "torch.rocm": "cpu-wheel",
    "torch.made_by": "cpu-wheel",
    "torch.arches": "cpu-wheel",
    "device.render": "no-amd-gpu",
    "memory.limit_gib": "rx7900xtx",
    "variables.hsa": "rx7900xtx",
    "override.effect": "rx7900xtx",
    "override.code": "rx7900xtx",
    "override.settings": "rx7900xtx",
    "libraries.distro_hsa": "rx7900xtx",
    "gpu.reachable": "rx7900xtx",
    "gpu.peers": "rx7900xtx",
    "gpu.mes": "rx7900xtx",
    "gpu.memory_errors": "rx7900xtx",
    "gpu.screens": "rx7900xtx",
    "gpu.xgmi_peers": "rx7900xtx",
    "gpu.integrated.gtt_share": "rx7900xtx",
    "kernel.numa_balancing": "rx7900xtx",
    "package.amdsmi": "rx7900xtx",
    "package.bitsandbytes": "rx7900xtx",
}
UNKNOWN = {
    "kernel.iommu": ("old-kernel", NOBODY_SAYS),
    "torch.arches": ("old-kernel", "neither its files nor the release table say"),
    "device.kfd": ("rx9070xt-windows", ON_THE_MACHINE),
    "device.render": ("rx9070xt-windows", ON_THE_MACHINE),
    "memory.gib": ("rx9070xt-windows", "could not be read"),
    "shm.gib": ("rx9070xt-windows", "could not be read"),
    **{name: ("wsl2", NO_WSL_GPU) for name in FACTS if name.startswith("gpu.")},
}


def test_every_fact_is_in_the_table_below() -> None:
    assert set(KNOWN) == set(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_known(recorded: Recorded, name: str) -> None:
    machine, values = KNOWN[name]
    facts = recorded.facts(machine)

    assert (facts.values(name), facts.why_unknown(name)) == (values, "")


@pytest.mark.parametrize("name", ABSENT)
def test_absent_is_known_and_has_no_value(recorded: Recorded, name: str) -> None:
    facts = recorded.facts(ABSENT[name])

    assert (facts.values(name), facts.why_unknown(name)) == ((), "")


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_says_why(recorded: Recorded, name: str) -> None:
    machine, why = UNKNOWN[name]

    assert recorded.facts(machine).why_unknown(name) == why


def test_a_machine_gives_no_fact_that_is_not_listed(recorded: Recorded, every_machine: str) -> None:
    facts = recorded.facts(every_machine)

    given = {*facts._values, *facts._unknown}
    variables = {f"variable:{each.name}" for each in recorded.machine(every_machine).variables}
    assert given <= {*FACTS, *variables}
    assert set(FACTS) <= given


TORCH_FACTS = [name for name in FACTS if name.startswith("torch.") and name != "torch.installed"]


def test_no_environment_leaves_everything_about_torch_open(recorded: Recorded) -> None:
    machine = msgspec.structs.replace(recorded.machine("rx7900xtx"), python=None, torch=None)

    facts = gather(machine, recorded.knowledge)

    why = "no Python environment was found"
    assert {facts.why_unknown(name) for name in (*TORCH_FACTS, "torch.installed")} == {why}


def test_an_environment_without_torch_is_known_to_have_none(recorded: Recorded) -> None:
    machine = msgspec.structs.replace(recorded.machine("rx7900xtx"), torch=None)

    facts = gather(machine, recorded.knowledge)

    assert facts.values("torch.installed") == (False,)
    assert facts.why_unknown("torch.installed") == ""
    assert {facts.why_unknown(name) for name in TORCH_FACTS} == {"no torch in /home/user/venv"}


def test_an_environment_that_could_not_be_examined_is_not_known_to_lack_torch(
    recorded: Recorded,
) -> None:
    shim = PythonEnv(
        prefix="/shims/python", chosen="PATH", version="", site_packages=(), why_not="it is slow"
    )
    machine = msgspec.structs.replace(recorded.machine("rx7900xtx"), python=shim, torch=None)

    facts = gather(machine, recorded.knowledge)

    told = {facts.why_unknown(name) for name in (*TORCH_FACTS, "torch.installed")}
    assert told == {"/shims/python: it is slow"}


def iommu_of(
    recorded: Recorded, kinds: tuple[str | None, ...], cmdline: str, *, active: bool | None
) -> tuple[tuple[Scalar, ...], str]:
    """Give the cards of a machine with two these IOMMU groups, and its kernel this command line."""
    machine = recorded.machine("rx7900xt-pair")
    gpus = tuple(
        msgspec.structs.replace(gpu, iommu=kind)
        for gpu, kind in zip(machine.gpus.gpus, kinds, strict=True)
    )
    changed = msgspec.structs.replace(
        machine,
        gpus=msgspec.structs.replace(machine.gpus, gpus=gpus),
        system=msgspec.structs.replace(
            machine.system, cmdline=tuple(cmdline.split()), iommu_active=active
        ),
    )
    facts = gather(changed, recorded.knowledge)
    return facts.values("kernel.iommu"), facts.why_unknown("kernel.iommu")


@pytest.mark.parametrize(
    ("kinds", "cmdline", "active", "told"),
    [
        (("identity", "identity"), "", None, (("passthrough",), "")),
        (("DMA-FQ", "DMA-FQ"), "iommu=pt", True, (("translated",), "")),
        (("identity", "DMA"), "iommu=pt", True, (("translated",), "")),
        (("identity", None), "amd_iommu=off", False, (("passthrough",), "")),
        ((None, None), "iommu=pt amd_iommu=on", True, (("passthrough",), "")),
        ((None, None), "amd_iommu=off", None, (("off",), "")),
        ((None, None), "intel_iommu=off", None, (("off",), "")),
        ((None, None), "iommu=off", True, (("off",), "")),
        ((None, None), "quiet", False, (("off",), "")),
        ((None, None), "quiet", True, ((), NOBODY_SAYS)),
        ((None, None), "quiet", None, ((), NOBODY_SAYS)),
    ],
)
def test_the_iommu_of_the_cards_comes_before_the_command_line(
    recorded: Recorded,
    kinds: tuple[str | None, ...],
    cmdline: str,
    active: bool | None,  # noqa: FBT001 - a row of the table
    told: tuple[tuple[Scalar, ...], str],
) -> None:
    assert iommu_of(recorded, kinds, cmdline, active=active) == told


def test_the_iommu_of_the_processors_own_graphics_does_not_count_beside_a_card(
    recorded: Recorded,
) -> None:
    machine = recorded.machine("rx6900xt-igpu")
    card, small = machine.gpus.gpus
    gpus = (msgspec.structs.replace(card, iommu="identity"), small)
    survey = msgspec.structs.replace(machine.gpus, gpus=gpus)

    facts = gather(msgspec.structs.replace(machine, gpus=survey), recorded.knowledge)

    assert small.iommu == "DMA-FQ"
    assert facts.values("kernel.iommu") == ("passthrough",)


def with_torch(machine: Machine, version: str, rocm: str, arches: tuple[str, ...] = ()) -> Machine:
    torch = TorchBuild(
        folder="/torch",
        version=version,
        build="rocm",
        hip="1.2.3",
        rocm=rocm,
        cuda=None,
        arches=arches,
        arches_from="library" if arches else "",
        bundles_rocm=True,
    )
    return msgspec.structs.replace(machine, torch=torch)


def test_the_files_of_a_wheel_are_believed_before_the_release_table(recorded: Recorded) -> None:
    machine = recorded.machine("rx7900xtx")

    by_files = gather(with_torch(machine, "2.5.1+rocm6.2", "6.2", ("gfx1010",)), recorded.knowledge)
    by_table = gather(with_torch(machine, "2.5.1+rocm6.2", "6.2"), recorded.knowledge)

    assert by_files.values("torch.arches") == ("gfx1010",)
    assert by_table.values("torch.arches") == ARCHES_2_5


@pytest.mark.parametrize(
    ("version", "rocm", "arches"),
    [
        ("2.5.1+rocm6.2", "6.2", ARCHES_2_5),
        ("2.4.0+rocm6.1", "6.1", ARCHES_2_5),
        ("2.5.0.dev20240901+rocm6.2", "6.2", ARCHES_2_5),
        ("2.3.1+rocm6.0", "6.0", ()),  # not in the table
        ("99.0+rocm9.9", "9.9", ()),
        ("2.5.1", "6.2", ()),  # somebody's own build
        ("2.9.1+rocm7.2.0.git7e1940d4", "7.2.0", ()),  # AMD's
        ("2.9.1+rocmsdk20251116", "7.1", ()),
        ("nonsense+rocm6.2", "6.2", ()),
    ],
)
def test_the_release_table_speaks_of_wheels_of_pytorch_org_only(
    recorded: Recorded, version: str, rocm: str, arches: tuple[str, ...]
) -> None:
    machine = with_torch(recorded.machine("rx7900xtx"), version, rocm)

    assert release_arches(machine, recorded.knowledge) == arches


def test_wsl_without_an_override_is_known_to_have_none(recorded: Recorded) -> None:
    facts = recorded.facts("wsl2")

    assert (facts.values("override.effect"), facts.why_unknown("override.effect")) == ((), "")


def test_the_sizes_of_a_windows_machine_do_not_stop_the_rest(recorded: Recorded) -> None:
    facts = recorded.facts("rx9070xt-windows")

    assert facts.values("gpu.gfx") == ("gfx1201",)  # by its PCI device: no driver says it


def laid_out(recording: Recording, folder: Path) -> Path:
    """Copy a recorded machine into a folder, as far as files can hold it."""
    for path, entry in recording.files.items():
        place = folder / path.lstrip("/")
        if isinstance(entry, str):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(entry)
        elif entry.link is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(entry.link)
        elif entry.names is not None:
            place.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.skipif(os.name == "nt", reason="a Linux machine has names that Windows has not")
def test_a_copied_folder_knows_the_hardware_and_neither_variables_nor_rights(
    recorded: Recorded, tmp_path: Path
) -> None:
    recording = read_recording(recorded.path("rx7900xt-pair"))
    root = DiskRoot(laid_out(recording, tmp_path), python="/opt/venv/bin/python")

    facts = gather(examine(root, recorded.knowledge.variables)[0], recorded.knowledge)

    for name in ("gpu.gfx", "gpu.link_width", "gpu.visible.count", "kernel.iommu", "torch.version"):
        assert (facts.values(name), facts.why_unknown(name)) == (
            recorded.facts("rx7900xt-pair").values(name),
            "",
        )
    for name in ("variable:HSA_XNACK", "variables.hsa", "override.effect", "override.settings"):
        assert facts.why_unknown(name) == NO_VARIABLES
    for name in ("device.kfd", "device.render"):
        assert facts.why_unknown(name) == ON_THE_MACHINE
