"""Puts GPUs into a machine: the PCI tree, the KFD topology, the device nodes."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, replace

from retyped.chips import GEN4, Chip
from retyped.recording import Recording

KFD_NODES = "/sys/class/kfd/kfd/topology/nodes"
PCI_BUS = "/sys/bus/pci/devices"
PCI_DRIVERS = "/sys/bus/pci/drivers"
BRIDGE = 0x060400

ORDER = (  # of the lines in a node's properties, as the kernel prints them
    "cpu_cores_count simd_count mem_banks_count caches_count io_links_count p2p_links_count "
    "cpu_core_id_base simd_id_base max_waves_per_simd lds_size_in_kb gds_size_in_kb num_gws "
    "wave_front_size array_count simd_arrays_per_engine cu_per_simd_array simd_per_cu "
    "max_slots_scratch_cu gfx_target_version vendor_id device_id location_id domain "
    "drm_render_minor hive_id num_sdma_engines num_sdma_xgmi_engines num_sdma_queues_per_engine "
    "num_cp_queues max_engine_clk_fcompute local_mem_size fw_version capability debug_prop "
    "sdma_fw_version unique_id num_xcc max_engine_clk_ccompute"
)


@dataclass(frozen=True)
class Bridge:
    """A PCI bridge of the board, seen from above."""

    address: str  # 0000:00:01.1
    vendor: int = 0x1022
    device: int = 0x14DB


@dataclass(frozen=True)
class Slot:
    """Where a card sits: the host bridge, the board's own bridges below it, the true link."""

    root: str  # pci0000:00
    board: tuple[Bridge, ...]
    lanes: int = 16
    speed: str = GEN4


@dataclass(frozen=True)
class Card:
    """One GPU in this machine, or one partition of it."""

    chip: Chip
    node: int  # of the KFD topology
    location: int  # bus << 8 | device << 3 | function
    minor: int  # of its render node
    serial: int  # made up; partitions of one card share it
    gpu_id: int
    hive: int | None = None
    domain: int | None = 0  # None: a kernel that does not tell

    @property
    def address(self) -> str:
        """Return the PCI address."""
        bus, slot, function = self.location >> 8, self.location >> 3 & 31, self.location & 7
        return f"{self.domain or 0:04x}:{bus:02x}:{slot:02x}.{function}"


def add_function(  # noqa: PLR0913 - a PCI function has this many faces
    machine: Recording,
    path: str,
    *,
    vendor: int,
    device: int,
    pci_class: int,
    link: tuple[int, str] | None,
    best: tuple[int, str] | None = None,
) -> None:
    """Add one PCI function at ``path`` below /sys/devices, and its name on the bus."""
    machine.link(f"{PCI_BUS}/{posixpath.basename(path)}", posixpath.relpath(path, PCI_BUS))
    machine.texts(
        path,
        {"vendor": f"0x{vendor:04x}", "device": f"0x{device:04x}", "class": f"0x{pci_class:06x}"},
    )
    if link is not None:
        lanes, speed = best or link
        machine.texts(path, {"current_link_width": str(link[0]), "current_link_speed": link[1]})
        machine.texts(path, {"max_link_width": str(lanes), "max_link_speed": speed})


def plug(
    machine: Recording, card: Card, slot: Slot, *, gtt: int | None, state: str = "active"
) -> str:
    """Add the card's PCI functions; without ``gtt`` as no driver has it. Return the GPU's path."""
    path, chip = f"/sys/devices/{slot.root}", card.chip
    true, own = (slot.lanes, slot.speed), (chip.lanes, chip.speed)
    for bridge in slot.board:
        path = f"{path}/{bridge.address}"
        if f"{path}/vendor" not in machine.files:
            add_function(
                machine,
                path,
                vendor=bridge.vendor,
                device=bridge.device,
                pci_class=BRIDGE,
                link=true,
            )
    if chip.bridges is not None:
        up, down = chip.bridges
        bus = card.location >> 8
        path = f"{path}/0000:{bus - 2:02x}:00.0"
        add_function(machine, path, vendor=0x1002, device=up, pci_class=BRIDGE, link=true, best=own)
        path = f"{path}/0000:{bus - 1:02x}:00.0"
        add_function(machine, path, vendor=0x1002, device=down, pci_class=BRIDGE, link=own)
        true = own  # all that the GPU itself can see
    path = f"{path}/{card.address}"
    add_function(
        machine,
        path,
        vendor=0x1002,
        device=chip.device,
        pci_class=chip.pci_class,
        link=true,
        best=own,
    )
    machine.text(f"{path}/revision", f"0x{chip.revision:02x}")
    machine.text(f"{path}/power/runtime_status", state)
    if gtt is not None:
        bind(machine, path, "amdgpu")
        machine.text(f"{path}/mem_info_vram_total", str(chip.vram))
        if chip.reachable is not None:
            machine.text(f"{path}/mem_info_vis_vram_total", str(chip.reachable))
        machine.text(f"{path}/mem_info_gtt_total", str(gtt))
    return path


def bind(machine: Recording, path: str, driver: str) -> None:
    """Give the function at ``path`` to a driver."""
    machine.link(f"{path}/driver", posixpath.relpath(f"{PCI_DRIVERS}/{driver}", path))
    machine.files[PCI_DRIVERS] = {"names": [driver]}


def add_iommu_group(machine: Recording, path: str, number: int, kind: str) -> None:
    """Put the function at ``path`` into an IOMMU group of its own: "identity" or "DMA-FQ"."""
    group = f"/sys/kernel/iommu_groups/{number}"
    machine.link(f"{path}/iommu_group", posixpath.relpath(group, path))
    machine.text(f"{group}/type", kind)


def add_cpu_node(machine: Recording, node: int, cores: int, *, domain: bool = True) -> None:
    """Add a KFD node that is a processor."""
    values = {"cpu_cores_count": cores, "mem_banks_count": 1}
    if domain:
        values |= {"gfx_target_version": 0, "domain": 0}
    for key in ("simd_count", "vendor_id", "device_id", "location_id", "drm_render_minor"):
        values[key] = 0
    machine.text(f"{KFD_NODES}/{node}/gpu_id", "0")
    machine.text(f"{KFD_NODES}/{node}/properties", *_lines(values))


def add_gpu_node(machine: Recording, card: Card) -> None:
    """Add the KFD node of a GPU."""
    here = {"location_id": card.location, "drm_render_minor": card.minor, "unique_id": card.serial}
    if card.domain is not None:
        here["domain"] = card.domain
    if card.hive is not None:
        here["hive_id"] = card.hive
    folder, chip = f"{KFD_NODES}/{card.node}", card.chip
    machine.text(f"{folder}/gpu_id", str(card.gpu_id))
    machine.text(f"{folder}/properties", *_lines(chip.properties(**here)))
    machine.text(
        f"{folder}/mem_banks/0/properties",
        f"heap_type {chip.heap}",
        f"size_in_bytes {chip.bank or chip.vram}",
        "flags 0",
        f"width {chip.width}",
        f"mem_clk_max {chip.clock}",
    )


def add_withheld_node(machine: Recording, node: int) -> None:
    """Add a KFD node that the device cgroup keeps from us."""
    folder = f"{KFD_NODES}/{node}"
    machine.refused(f"{folder}/gpu_id", f"{folder}/properties", f"{folder}/mem_banks/0/properties")


def add_device_nodes(
    machine: Recording, minors: Iterable[int], *, render: int, access: str = "rw"
) -> None:
    """Add /dev/kfd and the render nodes, owned by the group ``render``."""
    machine.device("/dev/kfd", gid=render, access=access)
    for minor in minors:
        machine.device(f"/dev/dri/renderD{minor}", gid=render, access=access)


def partitions(card: Card, count: int) -> list[Card]:
    """Return a card and its further partitions, which follow it in every numbering."""
    return [
        replace(
            card,
            node=card.node + number,
            location=card.location + number,
            minor=card.minor + number,
            gpu_id=card.gpu_id + number,
        )
        for number in range(count)
    ]


def _lines(values: dict[str, int]) -> list[str]:
    return [f"{key} {values[key]}" for key in ORDER.split() if key in values]
