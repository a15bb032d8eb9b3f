"""Radeon cards on Linux: one or two in a desktop, or a processor with a large GPU."""

from __future__ import annotations

from dataclasses import replace

from retyped.chips import (
    GEN5,
    NAMED,
    NAMED_LATER,
    RAPHAEL,
    RX_580,
    RX_5700_XT,
    RX_6700_XT,
    RX_6900_XT,
    RX_7900_XT,
    RX_7900_XTX,
    RX_9070_XT,
    STRIX_HALO,
    Chip,
)
from retyped.hardware import (
    Bridge,
    Card,
    Slot,
    add_cpu_node,
    add_device_nodes,
    add_gpu_node,
    add_iommu_group,
    plug,
)
from retyped.recording import Recording
from retyped.systems import (
    System,
    half_of_memory,
    install_names,
    install_rocm,
    load_driver,
    start,
    ubuntu,
)
from retyped.wheels import add_venv

COPY = "a public copy without a stable address"
REST = "The rest (system, memory, disks, PCI addresses, serials, kernel) was filled in by us."

MAIN = Slot("pci0000:00", (Bridge("0000:00:01.1"),))
CHIPSET = Slot(  # a slot that hangs on the chipset, behind its own switch, with four lanes
    "pci0000:00",
    (
        Bridge("0000:00:02.1"),
        Bridge("0000:04:00.0", device=0x43F4),
        Bridge("0000:05:08.0", device=0x43F5),
    ),
    lanes=4,
)
INSIDE = Slot("pci0000:00", (Bridge("0000:00:08.1", device=0x14DD),))  # a GPU in the processor
GIB_32 = 32_768_000  # KiB that a machine with about so much memory has left
GIB_64 = 65_541_856


def desktop(name: str, note: str, chip: Chip, system: System, *, boot: int) -> Recording:
    """Return a desktop with one card in its first slot, everything in order, and no torch yet."""
    machine = start(name, note, system, boot=boot, memory=GIB_32)
    card = Card(chip, node=1, location=0x0300, minor=128, serial=1, gpu_id=20001)
    load_driver(machine)
    plug(machine, card, MAIN, gtt=half_of_memory(GIB_32))
    add_cpu_node(machine, 0, 16)
    add_gpu_node(machine, card)
    add_device_nodes(machine, [128], render=system.render)
    return machine


def rx5700xt_override() -> Recording:
    """One card that no wheel was built for, masked as another."""
    note = (
        "Scenario: field note E of October 2025 (RX 5700 XT, torch 2.5.1, ROCm 6.2, overridden). "
        f"GPU: rocminfo in preda/gpuowl#223 and {COPY}. The note names no value of the override: "
        f"10.3.0 is ours, the usual one. VRAM size is ours. {REST}"
    )
    system = ubuntu("22.04", "6.8.0-85-generic")
    machine = desktop("rx5700xt-override", note, RX_5700_XT, system, boot=1)
    machine.environment["HSA_OVERRIDE_GFX_VERSION"] = "10.3.0"
    install_rocm(machine, "6.2.0")
    install_names(machine, NAMED)
    add_venv(machine, "2.5.1+rocm6.2", kernels=True)
    return machine


def rx6700xt() -> Recording:
    """One card that no wheel was built for, with nothing done about it."""
    note = (
        "GPU: influxdata/telegraf, plugins/inputs/amd_rocm_smi/testdata (RX 6700 XT) and rocminfo "
        "in ollama/ollama#6003; its memory is not wholly reachable by the CPU (no resizable BAR). "
        f"{REST}"
    )
    machine = desktop("rx6700xt", note, RX_6700_XT, ubuntu("24.04", "6.8.0-79-generic"), boot=2)
    add_venv(machine, "2.7.1+rocm6.3", python="3.12.3", kernels=True)
    return machine


def rx6700xt_override() -> Recording:
    """One such card made to pass for its larger sibling, as many people train on it."""
    note = (
        "GPU: as rx6700xt. HSA_OVERRIDE_GFX_VERSION=10.3.0 is the value that guides give for this "
        f"card; that it is set here is ours. {REST}"
    )
    system = ubuntu("24.04", "6.8.0-79-generic")
    machine = desktop("rx6700xt-override", note, RX_6700_XT, system, boot=9)
    machine.environment["HSA_OVERRIDE_GFX_VERSION"] = "10.3.0"
    add_venv(machine, "2.7.1+rocm6.3", python="3.12.3", kernels=True)
    return machine


def rx6900xt_igpu() -> Recording:
    """One card beside the small GPU of the processor, which KFD offers too."""
    note = (
        "GPUs: facts of an RX 6900 XT beside gfx1036 from mudler/LocalAI#7761 and ROCm#6137 (now "
        "ROCm/legacy-rocm-build). KFD offers half of the main memory as that of the small one, as "
        f"kernels since 6.10 do (from general knowledge of the kernel, not recorded). {REST}"
    )
    system = ubuntu("24.04", "6.14.0-33-generic")
    machine = start("rx6900xt-igpu", note, system, boot=3, memory=GIB_64)
    big = Card(RX_6900_XT, node=1, location=0x0300, minor=128, serial=1, gpu_id=20001)
    small = Card(RAPHAEL, node=2, location=0x0E00, minor=129, serial=0, gpu_id=20002)
    load_driver(machine)
    add_cpu_node(machine, 0, 24)
    for card, slot, group in ((big, MAIN, 15), (small, INSIDE, 28)):
        path = plug(machine, card, slot, gtt=half_of_memory(GIB_64))
        add_iommu_group(machine, path, group, "DMA-FQ")
        add_gpu_node(machine, card)
    add_device_nodes(machine, [128, 129], render=system.render)
    install_names(machine, NAMED)
    add_venv(machine, "2.8.0+rocm6.4", python="3.12.3", kernels=True)
    return machine


def two_rx7900xt(name: str, note: str, *, boot: int, rocm: str) -> Recording:
    """Return the container of field notes B and D, with torch and without its variables."""
    system = ubuntu("22.04", "6.8.0-85-generic")
    machine = start(name, note, system, boot=boot, memory=GIB_64, container=True, shm=8 * 1024**3)
    load_driver(machine)
    add_cpu_node(machine, 0, 32)
    for number, (location, slot) in enumerate(((0x0300, MAIN), (0x0900, CHIPSET))):
        card = Card(
            RX_7900_XT,
            node=number + 1,
            location=location,
            minor=128 + number,
            serial=number + 1,
            gpu_id=20001 + number,
        )
        path = plug(machine, card, slot, gtt=half_of_memory(GIB_64))
        add_iommu_group(machine, path, 15 + number, "DMA-FQ")
        add_gpu_node(machine, card)
    add_device_nodes(machine, [128, 129], render=system.render)
    install_rocm(machine, rocm)
    return machine


def rx7900xt_pair() -> Recording:
    """Two cards in a container, seven variables, and one slot with four lanes."""
    note = (
        "Scenario and all seven variables: field note B of October 2025. GPU: "
        f"marimo-team/marimo#9237. That the second slot has four lanes is ours. {REST}"
    )
    machine = two_rx7900xt("rx7900xt-pair", note, boot=4, rocm="6.2.0")
    add_venv(machine, "2.5.1+rocm6.2", folder="/opt/venv", kernels=True)
    machine.environment |= {
        "TORCH_BLAS_PREFER_HIPBLASLT": "0",
        "PYTORCH_HIP_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:256",
        "HSA_XNACK": "1",
        "ROCM_ALLOW_HIDDEN_KERNEL_FLAGS": "1",
        "HSA_OVERRIDE_GFX_VERSION": "11.0.0",
        "PYTORCH_ROCM_ARCH": "gfx1100",
        "HIP_VISIBLE_DEVICES": "0,1",
    }
    return machine


def rx7900xt_allocator() -> Recording:
    """Two cards as before, one in use, with variables that cancel each other."""
    note = (
        "Scenario and all variables: field note D of October 2025, which says ROCm 6.3 and names "
        "no torch; its sister note B says 2.5.1. pytorch.org has no 2.5.1 for ROCm 6.3, so this "
        "is 2.5.1+rocm6.2 beside a system ROCm 6.3.0. GPU: marimo-team/marimo#9237. That the "
        f"second slot has four lanes is ours. {REST}"
    )
    machine = two_rx7900xt("rx7900xt-allocator", note, boot=5, rocm="6.3.0")
    add_venv(machine, "2.5.1+rocm6.2", folder="/opt/venv")
    machine.environment |= {
        "PYTORCH_HIP_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:32,"
        "garbage_collection_threshold:0.95,roundup_power2_divisions:32",
        "HIP_FORCE_DEV_KERNARG": "1",
        "PYTORCH_NO_HIP_MEMORY_CACHING": "1",
        "AMD_SERIALIZE_KERNEL": "3",
        "HIP_VISIBLE_DEVICES": "0",
        "MIOPEN_USER_DB_PATH": "/tmp/miopen_cache",
        "MIOPEN_ENABLE_LOGGING": "1",
        "MIOPEN_LOG_LEVEL": "4",
        "MIOPEN_DISABLE_CACHE": "1",
    }
    return machine


def rx7900xtx() -> Recording:
    """One card with everything in order."""
    note = (
        "GPU: tinygrad/tinygrad, test/mockgpu/amd/amdgpu.py (KFD properties); memory size and "
        f"slot are ours. Made to be healthy. {REST}"
    )
    system = ubuntu("24.04", "6.14.0-37-generic", cmdline="quiet splash iommu=pt")
    machine = desktop("rx7900xtx", note, RX_7900_XTX, system, boot=6)
    bridges = "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0"
    add_iommu_group(machine, f"{bridges}/0000:03:00.0", 15, "identity")
    install_names(machine, NAMED_LATER)
    add_venv(machine, "2.12.0+rocm7.2", python="3.12.3", kernels=True)
    return machine


def rx7900xtx_old_card() -> Recording:
    """One good card, and an old one beside it that the compute driver leaves out."""
    note = (
        "RX 7900 XTX: as rx7900xtx. RX 580: lspci in ROCm#722; that KFD leaves it out where PCIe "
        "atomics are missing: ROCm#1214 (both now ROCm/legacy-rocm-build). That the two are in "
        f"one machine is ours. {REST}"
    )
    system = ubuntu("24.04", "6.14.0-37-generic", cmdline="quiet splash iommu=pt")
    machine = desktop("rx7900xtx-old-card", note, RX_7900_XTX, system, boot=10)
    old = Card(RX_580, node=2, location=0x0900, minor=129, serial=2, gpu_id=20002)
    plug(machine, old, CHIPSET, gtt=half_of_memory(GIB_32))
    machine.device("/dev/dri/renderD129", gid=system.render)
    install_names(machine, NAMED_LATER)
    add_venv(machine, "2.12.0+rocm7.2", python="3.12.3", kernels=True)
    return machine


def rx7900xtx_rx6700xt() -> Recording:
    """Two cards, of which the wheel knows one; and a list that names a third."""
    note = (
        "GPUs: as rx7900xtx and rx6700xt. That they are in one machine, and "
        f"HIP_VISIBLE_DEVICES=0,1,2, is ours. {REST}"
    )
    system = ubuntu("24.04", "6.14.0-37-generic", cmdline="quiet splash iommu=pt")
    machine = desktop("rx7900xtx-rx6700xt", note, RX_7900_XTX, system, boot=11)
    other = Card(RX_6700_XT, node=2, location=0x0900, minor=129, serial=2, gpu_id=20002)
    plug(machine, other, replace(CHIPSET, lanes=16), gtt=half_of_memory(GIB_32))
    add_gpu_node(machine, other)
    machine.device("/dev/dri/renderD129", gid=system.render)
    install_names(machine, NAMED_LATER)
    machine.environment["HIP_VISIBLE_DEVICES"] = "0,1,2"
    add_venv(machine, "2.12.0+rocm7.2", python="3.12.3", kernels=True)
    return machine


def rx9070xt() -> Recording:
    """One card of the newest family."""
    note = (
        f"GPU: rocminfo in ROCm/TheRock#7712, and facts re-typed from {COPY} (a gfx1201 node "
        f"whose card is not named). {REST}"
    )
    system = ubuntu("24.04", "6.14.0-37-generic")
    machine = start("rx9070xt", note, system, boot=7, memory=GIB_64)
    card = Card(RX_9070_XT, node=1, location=0x0300, minor=128, serial=1, gpu_id=20001)
    load_driver(machine)
    plug(machine, card, Slot(MAIN.root, MAIN.board, speed=GEN5), gtt=half_of_memory(GIB_64))
    add_cpu_node(machine, 0, 16)
    add_gpu_node(machine, card)
    add_device_nodes(machine, [128], render=system.render)
    add_venv(machine, "2.9.1+rocm6.4", python="3.12.3")
    return machine


def strix_halo() -> Recording:
    """Processor whose GPU shares the main memory, with a variable that does nothing here."""
    memory, gtt = 127_098_456, 120_259_084_288
    note = (
        f"GPU, memory, GTT and ttm.pages_limit: facts re-typed from {COPY}; rocminfo in "
        "ROCm/TheRock#2417. That KFD offers the GTT as the GPU's memory is from general knowledge "
        f"of the kernel, not recorded. HSA_XNACK=1 is ours. {REST}"
    )
    system = ubuntu("25.10", "6.17.0-8-generic", cmdline="quiet splash ttm.pages_limit=29360128")
    machine = start("strix-halo", note, system, boot=8, memory=memory)
    card = Card(STRIX_HALO, node=1, location=49664, minor=128, serial=0, gpu_id=20001)
    load_driver(machine)
    plug(machine, card, INSIDE, gtt=gtt)
    machine.text("/sys/module/ttm/parameters/pages_limit", "29360128")
    add_cpu_node(machine, 0, 32)
    add_gpu_node(machine, card)
    add_device_nodes(machine, [128], render=system.render)
    install_names(machine, NAMED_LATER)
    machine.environment["HSA_XNACK"] = "1"
    add_venv(machine, "2.12.0+rocm7.2", python="3.13.7", kernels=True)
    return machine


MACHINES = (
    rx5700xt_override,
    rx6700xt,
    rx6700xt_override,
    rx6900xt_igpu,
    rx7900xt_pair,
    rx7900xt_allocator,
    rx7900xtx,
    rx7900xtx_old_card,
    rx7900xtx_rx6700xt,
    rx9070xt,
    strix_halo,
)
