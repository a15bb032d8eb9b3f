"""Machines on which one thing is wrong before any training starts. All but the GPUs is made up."""

from __future__ import annotations

from dataclasses import replace

from retyped.chips import NAMED_LATER, RAPHAEL, RX_7600, RX_7800_XT, RX_7900_XTX
from retyped.hardware import (
    Card,
    add_cpu_node,
    add_device_nodes,
    add_function,
    add_gpu_node,
    bind,
    plug,
)
from retyped.radeon import GIB_32, INSIDE, MAIN, desktop
from retyped.recording import Recording
from retyped.systems import (
    half_of_memory,
    install_names,
    install_rocm,
    load_driver,
    start,
    ubuntu,
)
from retyped.wheels import add_venv

TINYGRAD = "GPU: tinygrad/tinygrad, test/mockgpu/amd/amdgpu.py (KFD properties; memory size ours)."
UBUNTU = ubuntu("24.04", "6.14.0-33-generic")
MIXED = ("libamdhip64.so", "libamdhip64.so.6", "libhsa-runtime64.so.1", "librocblas.so.4")


def container_no_kfd() -> Recording:
    """One card that is visible in sysfs; its devices were not given to the container."""
    note = (
        f"{TINYGRAD} Everything else is ours: a container started without --device and --shm-size."
    )
    machine = start(
        "container-no-kfd",
        note,
        ubuntu("22.04", "6.8.0-85-generic"),
        boot=41,
        memory=GIB_32,
        container=True,
        limit=16 * 1024**3,
        shm=64 * 1024**2,
        groups=(),
    )
    card = Card(RX_7900_XTX, node=1, location=0x0300, minor=128, serial=1, gpu_id=20001)
    load_driver(machine)
    plug(machine, card, MAIN, gtt=half_of_memory(GIB_32))
    add_cpu_node(machine, 0, 16)
    add_gpu_node(machine, card)
    add_venv(machine, "2.9.1+rocm6.4", folder="/opt/venv")
    return machine


def kfd_denied() -> Recording:
    """User outside the group that may use the card."""
    note = f"{TINYGRAD} Everything else is ours: a fresh user in neither render nor video."
    machine = start("kfd-denied", note, UBUNTU, boot=42, memory=GIB_32, groups=())
    card = Card(RX_7900_XTX, node=1, location=0x0300, minor=128, serial=1, gpu_id=20001)
    load_driver(machine)
    plug(machine, card, MAIN, gtt=half_of_memory(GIB_32))
    add_cpu_node(machine, 0, 16)
    add_gpu_node(machine, card)
    add_device_nodes(machine, [128], render=UBUNTU.render, access="")
    add_venv(machine, "2.8.0+rocm6.4", python="3.12.3")
    return machine


def render_denied() -> Recording:
    """Container whose group number for the render node is not the host's."""
    note = (
        f"{TINYGRAD} Everything else is ours: an ordinary user in a container; everyone may open "
        "/dev/kfd, as on some distributions, and the render node belongs to a group of the host."
    )
    machine = start("render-denied", note, UBUNTU, boot=47, memory=GIB_32, groups=("video",))
    machine.text("/run/.containerenv")
    card = Card(RX_7900_XTX, node=1, location=0x0300, minor=128, serial=1, gpu_id=20001)
    load_driver(machine)
    plug(machine, card, MAIN, gtt=half_of_memory(GIB_32))
    add_cpu_node(machine, 0, 16)
    add_gpu_node(machine, card)
    machine.device("/dev/kfd", gid=105, mode="0666")
    machine.device("/dev/dri/renderD128", gid=105, access="")
    add_venv(machine, "2.8.0+rocm6.4", python="3.12.3")
    return machine


def render_missing() -> Recording:
    """Container that was given /dev/kfd alone, by a user whose containers have no device rules."""
    note = f"{TINYGRAD} Everything else is ours: podman run --device=/dev/kfd by an ordinary user."
    machine = start("render-missing", note, UBUNTU, boot=48, memory=GIB_32)
    machine.text("/run/.containerenv")
    card = Card(RX_7900_XTX, node=1, location=0x0300, minor=128, serial=1, gpu_id=20001)
    load_driver(machine)
    plug(machine, card, MAIN, gtt=half_of_memory(GIB_32))
    add_cpu_node(machine, 0, 16)
    add_gpu_node(machine, card)
    add_device_nodes(machine, [], render=UBUNTU.render)
    add_venv(machine, "2.8.0+rocm6.4", python="3.12.3")
    return machine


def override_refused() -> Recording:
    """One good card, and an override that the runtime cannot read."""
    note = f"{TINYGRAD} Everything else is ours: the architecture's name where a version belongs."
    machine = desktop("override-refused", note, RX_7900_XTX, UBUNTU, boot=49)
    machine.environment["HSA_OVERRIDE_GFX_VERSION"] = "gfx1100"
    add_venv(machine, "2.8.0+rocm6.4", python="3.12.3")
    return machine


def nvidia_card() -> Recording:
    """Desktop that trains on another vendor's card; the processor's own GPU is AMD's."""
    note = (
        "Made up by us: an NVIDIA card (10de:2684) with the CUDA build of torch, in a machine "
        "whose processor brings gfx1036 along."
    )
    machine = start("nvidia-card", note, UBUNTU, boot=50, memory=GIB_32)
    small = Card(RAPHAEL, node=1, location=0x0E00, minor=128, serial=0, gpu_id=20001)
    load_driver(machine)
    plug(machine, small, INSIDE, gtt=half_of_memory(GIB_32))
    add_cpu_node(machine, 0, 16)
    add_gpu_node(machine, small)
    path = "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0"
    add_function(machine, path, vendor=0x10DE, device=0x2684, pci_class=0x030000, link=None)
    add_device_nodes(machine, [128], render=UBUNTU.render)
    add_venv(machine, "2.9.0+cu128", python="3.12.3")
    return machine


def no_amd_gpu() -> Recording:
    """Laptop with no GPU but Intel's."""
    note = "Made up by us: a laptop with an Intel GPU (8086:9a49) and the CPU build of torch."
    machine = start("no-amd-gpu", note, UBUNTU, boot=43, memory=16_200_000, cores=8)
    path = "/sys/devices/pci0000:00/0000:00:02.0"
    add_function(machine, path, vendor=0x8086, device=0x9A49, pci_class=0x030000, link=None)
    bind(machine, path, "i915")
    machine.text(f"{path}/revision", "0x01")
    machine.text(f"{path}/power/runtime_status", "active")
    machine.device("/dev/dri/renderD128", gid=UBUNTU.render)
    add_venv(machine, "2.9.0+cpu", python="3.12.3")
    return machine


def cpu_wheel() -> Recording:
    """One good card that sleeps, because torch was installed without ROCm."""
    note = (
        "Made up by us around an RX 7800 XT (device and compute units: public lists). The card "
        "sleeps (runtime_status suspended), as one does that nobody uses."
    )
    machine = start("cpu-wheel", note, UBUNTU, boot=44, memory=GIB_32)
    card = Card(RX_7800_XT, node=1, location=0x0300, minor=128, serial=1, gpu_id=20001)
    load_driver(machine)
    plug(machine, card, MAIN, gtt=half_of_memory(GIB_32), state="suspended")
    add_cpu_node(machine, 0, 16)
    add_gpu_node(machine, card)
    add_device_nodes(machine, [128], render=UBUNTU.render)
    install_names(machine, NAMED_LATER)
    add_venv(machine, "2.10.0+cpu", python="3.12.3")
    return machine


def driver_not_loaded() -> Recording:
    """One card on the bus that no driver has taken."""
    note = "Made up by us: an RX 7600 on the PCI bus of a machine that was started with nomodeset."
    system = ubuntu("24.04", UBUNTU.kernel, cmdline="quiet nomodeset")
    machine = start("driver-not-loaded", note, system, boot=45, memory=GIB_32)
    card = Card(RX_7600, node=1, location=0x0300, minor=128, serial=1, gpu_id=20001)
    plug(machine, card, replace(MAIN, lanes=8), gtt=None)
    install_names(machine, NAMED_LATER)
    add_venv(machine, "2.11.0+rocm7.2", python="3.12.3")
    return machine


def mixed_libraries() -> Recording:
    """Wheel with its own ROCm; a variable puts another one in front of it."""
    note = f"{TINYGRAD} Everything else is ours: a system ROCm 6.1.0 in LD_LIBRARY_PATH."
    system = ubuntu("22.04", "6.8.0-85-generic")
    machine = desktop("mixed-libraries", note, RX_7900_XTX, system, boot=46)
    install_rocm(machine, "6.1.0", MIXED)
    machine.environment["LD_LIBRARY_PATH"] = "/opt/rocm/lib"
    add_venv(machine, "2.7.1+rocm6.3", kernels=True)
    return machine


MACHINES = (
    container_no_kfd,
    kfd_denied,
    render_denied,
    render_missing,
    override_refused,
    nvidia_card,
    no_amd_gpu,
    cpu_wheel,
    driver_not_loaded,
    mixed_libraries,
)
