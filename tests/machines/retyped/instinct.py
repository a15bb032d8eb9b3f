"""Servers with Instinct cards, and an old one with two Vegas."""

from __future__ import annotations

from dataclasses import replace

from retyped.chips import GEN3, GEN4, GEN5, MI210, MI300X, MI300X_EIGHTH, NAMED_LATER, VEGA
from retyped.hardware import (
    Bridge,
    Card,
    Slot,
    add_cpu_node,
    add_device_nodes,
    add_gpu_node,
    add_iommu_group,
    add_withheld_node,
    partitions,
    plug,
)
from retyped.recording import Recording
from retyped.systems import (
    ROCKY_8,
    half_of_memory,
    install_names,
    install_rocm,
    load_driver,
    start,
    ubuntu,
)
from retyped.wheels import add_conda, add_venv

PLUGIN = "ROCm/k8s-device-plugin"
MI210_LOCATIONS = (25344, 17152, 768, 9728, 58112, 49920, 33536, 41728)
MI300X_LOCATIONS = (1280, 9984, 18176, 25856, 34048, 42752, 50944, 58624)
PARTITIONS = (8, 8, 8, 8, 8, 8, 8, 7)  # the eighth card lacks one in the recording
HALF_TERABYTE = 527_988_000  # KiB
TERABYTES_2 = 2_113_400_000


def server_slot(location: int, speed: str) -> Slot:
    """Return a slot on a root port of its own, on the host bridge that owns the card's bus."""
    root = location >> 8 & 0xF0
    return Slot(
        f"pci0000:{root:02x}", (Bridge(f"0000:{root:02x}:01.1", device=0x14AB),), speed=speed
    )


def mi210_cards() -> list[Card]:
    """Return the eight cards of the recording: two hives of four."""
    return [
        Card(
            MI210,
            node=number + 2,
            location=location,
            minor=128 + number,
            serial=number + 1,
            gpu_id=30001 + number,
            hive=1 + number // 4,
        )
        for number, location in enumerate(MI210_LOCATIONS)
    ]


def mi300x_cards() -> list[Card]:
    """Return eight cards that are not divided."""
    return [
        Card(
            MI300X,
            node=number + 2,
            location=location,
            minor=128 + number,
            serial=number + 1,
            gpu_id=40001 + number,
            hive=1,
        )
        for number, location in enumerate(MI300X_LOCATIONS)
    ]


def mi210_8() -> Recording:
    """Eight cards whose transfers the IOMMU translates, and two allocator settings at once."""
    note = (
        f"KFD properties: {PLUGIN}, testdata/topo-mi210-xgmi-pcie (unique and hive ids replaced; "
        "gpu_id, mem_banks and simd_id_base are not in it: ours, or left out). VRAM: facts "
        "re-typed from a public copy without a stable address. System, driver 6.8.5, IOMMU and "
        "both variables are ours."
    )
    system = ubuntu("22.04", "5.15.0-157-generic", cmdline="quiet")
    machine = start("mi210-8", note, system, boot=21, memory=HALF_TERABYTE, cores=128)
    load_driver(machine, dkms="6.8.5")
    install_rocm(machine, "6.2.0")
    machine.text("/proc/sys/kernel/numa_balancing", "1")
    for node in (0, 1):
        add_cpu_node(machine, node, 64)
    cards = mi210_cards()
    for number, card in enumerate(cards):
        path = plug(
            machine, card, server_slot(card.location, GEN4), gtt=half_of_memory(HALF_TERABYTE)
        )
        add_iommu_group(machine, path, 40 + number, "DMA-FQ")
        add_gpu_node(machine, card)
    add_device_nodes(machine, [card.minor for card in cards], render=system.render)
    install_names(machine, NAMED_LATER)
    add_venv(machine, "2.9.0+rocm6.4", kernels=True)
    machine.environment |= {
        "PYTORCH_ALLOC_CONF": "max_split_size_mb:256",
        "PYTORCH_HIP_ALLOC_CONF": "garbage_collection_threshold:0.8,max_split_size_mb:512",
    }
    return machine


def mi300x_8() -> Recording:
    """Eight whole cards in a container; two variables that choose among them disagree."""
    note = (
        "KFD properties of a card in SPX mode: facts re-typed from a public copy without a stable "
        f"address; addresses: {PLUGIN}, testdata/topo-mi300-cpx; VRAM: rocminfo in ROCm#4021 (now "
        "ROCm/legacy-rocm-build). Hive, serials, gpu_id, system, driver and both variables are "
        "ours."
    )
    system = ubuntu("22.04", "5.15.0-157-generic", cmdline="quiet iommu=pt numa_balancing=disable")
    machine = start(
        "mi300x-8",
        note,
        system,
        boot=22,
        memory=TERABYTES_2,
        cores=192,
        container=True,
        shm=64 * 1024**3,
    )
    load_driver(machine, dkms="6.10.5")
    install_rocm(machine, "6.3.0")
    machine.text("/proc/sys/kernel/numa_balancing", "0")
    for node in (0, 1):
        add_cpu_node(machine, node, 96)
    cards = mi300x_cards()
    for number, card in enumerate(cards):
        path = plug(
            machine, card, server_slot(card.location, GEN5), gtt=half_of_memory(TERABYTES_2)
        )
        add_iommu_group(machine, path, 40 + number, "identity")
        add_gpu_node(machine, card)
    add_device_nodes(machine, [card.minor for card in cards], render=system.render)
    add_venv(machine, "2.7.1+rocm6.3", folder="/opt/venv")
    machine.environment |= {
        "ROCR_VISIBLE_DEVICES": "0,1,2,3",
        "HIP_VISIBLE_DEVICES": "0,1,2,3,4,5",
    }
    return machine


def mi300x_cpx() -> Recording:
    """Eight cards, each divided into eight; the last partition is not there."""
    note = (
        f"KFD properties: {PLUGIN}, testdata/topo-mi300-cpx (63 GPU nodes; unique and hive ids "
        "replaced; gpu_id, mem_banks and simd_id_base are not in it: ours, or left out). That a "
        "partition has an eighth of the memory is from general knowledge of the kernel, not "
        "recorded. System and driver are ours."
    )
    system = ubuntu("22.04", "5.15.0-157-generic", cmdline="quiet iommu=pt")
    machine = start("mi300x-cpx", note, system, boot=23, memory=TERABYTES_2, cores=192)
    load_driver(machine, dkms="6.12.12")
    install_rocm(machine, "6.4.0")
    for node in (0, 1):
        add_cpu_node(machine, node, 96)
    minors: list[int] = []
    for number, (card, count) in enumerate(zip(mi300x_cards(), PARTITIONS, strict=True)):
        first = replace(
            card,
            chip=MI300X_EIGHTH,
            node=2 + 8 * number,
            minor=128 + 8 * number,
            gpu_id=41001 + 8 * number,
        )
        plug(machine, first, server_slot(first.location, GEN5), gtt=half_of_memory(TERABYTES_2))
        for part in partitions(first, count):
            add_gpu_node(machine, part)
            minors.append(part.minor)
    add_device_nodes(machine, minors, render=system.render)
    add_venv(machine, "2.9.1+rocm6.4")
    return machine


def withheld() -> Recording:
    """Container that was given one of two cards."""
    note = (
        f"KFD properties: {PLUGIN}, testdata/topo-mi210-xgmi-pcie, its first two GPUs. That the "
        "kernel answers EPERM for the one that was not given: facts re-typed from a public copy "
        "without a stable address. gpu_id, serials, mem_banks, system, driver and limits are "
        "ours."
    )
    system = ubuntu("22.04", "5.15.0-157-generic", cmdline="quiet iommu=pt")
    machine = start(
        "withheld",
        note,
        system,
        boot=24,
        memory=HALF_TERABYTE,
        cores=128,
        container=True,
        limit=128 * 1024**3,
        shm=16 * 1024**3,
    )
    load_driver(machine, dkms="6.8.5")
    for node in (0, 1):
        add_cpu_node(machine, node, 64)
    given, kept = mi210_cards()[:2]
    for card in (given, kept):
        plug(machine, card, server_slot(card.location, GEN4), gtt=half_of_memory(HALF_TERABYTE))
    add_gpu_node(machine, given)
    add_withheld_node(machine, kept.node)
    add_device_nodes(machine, [given.minor], render=system.render)
    add_venv(machine, "2.6.0+rocm6.2.4", folder="/opt/venv")
    return machine


def all_withheld() -> Recording:
    """Container that was given /dev/kfd and no card."""
    note = (
        "As the machine withheld, with neither card given: a container started with "
        "--device=/dev/kfd alone. All but the two cards is ours."
    )
    system = ubuntu("22.04", "5.15.0-157-generic", cmdline="quiet iommu=pt")
    machine = start(
        "all-withheld",
        note,
        system,
        boot=26,
        memory=HALF_TERABYTE,
        cores=128,
        container=True,
        shm=16 * 1024**3,
    )
    load_driver(machine, dkms="6.8.5")
    for node in (0, 1):
        add_cpu_node(machine, node, 64)
    for card in mi210_cards()[:2]:
        plug(machine, card, server_slot(card.location, GEN4), gtt=half_of_memory(HALF_TERABYTE))
        add_withheld_node(machine, card.node)
    machine.device("/dev/kfd", gid=system.render)
    add_venv(machine, "2.6.0+rocm6.2.4", folder="/opt/venv")
    return machine


def old_kernel() -> Recording:
    """Two cards under a kernel whose KFD does not name the architecture."""
    note = (
        f"KFD properties, gpu_id and mem_banks: {PLUGIN}, testdata/topology-parsing, whose README "
        "says that its second GPU is a copy of the first; we gave that one a location_id (9984) "
        "and gpu_id (13262) of its own, and replaced the unique ids. System, kernel 4.18, conda "
        "and torch are ours."
    )
    memory = 65_581_564  # the recorded 67155521536 bytes of the processor's memory bank
    machine = start("old-kernel", note, ROCKY_8, boot=25, memory=memory, cores=20)
    load_driver(machine)
    add_cpu_node(machine, 0, 20, domain=False)
    for number, location in enumerate((6400, 9984)):
        card = Card(
            VEGA,
            node=number + 1,
            location=location,
            minor=128 + number,
            serial=number + 1,
            gpu_id=13261 + number,
            domain=None,
        )
        root = (location >> 8) - 3
        slot = Slot(
            f"pci0000:{root:02x}",
            (Bridge(f"0000:{root:02x}:00.0", vendor=0x8086, device=0x2030),),
            speed=GEN3,
        )
        plug(machine, card, slot, gtt=half_of_memory(memory))
        add_gpu_node(machine, card)
    add_device_nodes(machine, [128, 129], render=ROCKY_8.render)
    prefix = "/home/user/miniconda3/envs/train"
    add_conda(machine, "1.13.1+rocm5.2", python="3.10.13", folder=prefix)
    return machine


MACHINES = (mi210_8, mi300x_8, mi300x_cpx, withheld, all_withheld, old_kernel)
