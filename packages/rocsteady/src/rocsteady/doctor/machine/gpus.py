"""GPUs that the amdgpu driver offers for compute, read from KFD and PCI files.

The driver publishes one folder per node; CPUs are nodes too. A container that was not handed a
GPU still sees its folder, but every read in it fails with EPERM. Such a node counts as withheld:
"there is no GPU" and "there is one you may not touch" need different fixes. A card on the PCI bus
that the compute driver says nothing about is a third case.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from rocsteady.doctor.machine.view import View, whole_number
from rocsteady.model import Value
from rocsteady.system.root import User, parent

NODES = "/sys/class/kfd/kfd/topology/nodes"
PROCESSES = "/sys/class/kfd/kfd/proc"
PCI = "/sys/bus/pci/devices"
DEBUGFS = "/sys/kernel/debug/dri"  # root's alone, mostly
MARKETING_NAMES = "/usr/share/libdrm/amdgpu.ids"
AMD = 0x1002  # graphics cards and the bridges on them; AMD's processors use 0x1022
DISPLAY, ACCELERATOR = "0x03", "0x12"  # PCI classes a GPU may have
MAX_NODES, MAX_DEVICES = 1024, 4096  # more is not a machine
MAX_DIGITS = 11  # of a process ID
XGMI = 11  # type of a link in KFD's topology
FRAME_BUFFER = (1, 2)  # heap_type of a memory bank: public and private frame buffer

# Instruction sets that exist only inside processors, and the one APU that shares its own.
INTEGRATED_GFX = frozenset({
    "gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1103",
    "gfx1150", "gfx1151", "gfx1152", "gfx1153",
})  # fmt: skip
MI300A = 0x74A0

_FIRMWARE = re.compile(
    r"^(\w+) feature version: \d+, firmware version: (0x[0-9a-f]+)", re.MULTILINE
)
_PROPERTY = re.compile(r"^(\w+) (\d{1,20})$", re.ASCII | re.MULTILINE)


class Gpu(Value, frozen=True, kw_only=True):
    """One compute device, as the kernel describes it before any ROCm library loads."""

    node: int | None  # KFD's number; None where there is no KFD, as on Windows
    gfx: str | None  # None: the driver does not say
    name: str  # what the machine itself calls it; "" where it does not
    pci_address: str
    device: int | None
    revision: int | None
    serial: str  # shared by all partitions of one card; "" where it is not told
    partition: int | None  # its place among the partitions of its card; None for a whole card
    integrated: bool
    compute_units: int | None
    vram_bytes: int | None
    gtt_bytes: int | None  # system memory that the GPU may map; what an APU really trains in
    reachable_bytes: int | None = None  # of the VRAM, by the processor and by other cards
    peers_redirected: bool | None = None  # ACS sends what cards tell each other through the root
    render_minor: int | None
    link: PcieLink | None
    iommu: str | None  # the type of its IOMMU group: "identity" is passthrough
    asleep: bool
    firmware: dict[str, str]
    used_bytes: int | None = None  # of its memory, or of what an integrated one may map
    uncorrected_errors: int | None = None  # of memory and caches (RAS), since the driver was loaded
    link_errors: int | None = None  # of PCIe (AER) that were not corrected, since boot
    xgmi_peers: int | None = None  # GPUs that it reaches by links of their own


class GpuUser(Value, frozen=True, kw_only=True):
    """One process that holds memory of one GPU; the number is the host's."""

    pid: int
    node: int
    used_bytes: int


class PciGpu(Value, frozen=True, kw_only=True):
    """An AMD GPU on the PCI bus that the compute driver does not offer."""

    pci_address: str
    device: int | None
    revision: int | None
    driver: str  # the kernel driver that holds it; "" if none does


class GpuSurvey(Value, frozen=True, kw_only=True):
    gpus: tuple[Gpu, ...] = ()
    withheld_nodes: tuple[int, ...] = ()
    not_offered: tuple[PciGpu, ...] = ()
    processes: int = 0  # that compute on them now
    screens: tuple[str, ...] | None = None  # connectors with one; None: cannot be told
    users: tuple[GpuUser, ...] = ()


def survey_gpus(view: View) -> GpuSurvey:
    """Read every node, in number order. No driver is an answer, not an error."""
    withheld: list[int] = []
    found: dict[int, dict[str, int]] = {}
    nodes = (whole_number(name) for name in view.names(NODES) if name.isdecimal())
    for node in sorted(node for node in nodes if node is not None)[:MAX_NODES]:
        folder = f"{NODES}/{node}"
        if view.refused(f"{folder}/gpu_id") or view.refused(f"{folder}/properties"):
            withheld.append(node)
            continue
        properties = parse_properties(view.text(f"{folder}/properties") or "")
        if properties.get("simd_count", 0) > 0 or view.number(f"{folder}/gpu_id"):
            found[node] = properties
    whole_cards = Counter(_card(properties) for properties in found.values())
    names = _marketing_names(view.text(MARKETING_NAMES) or "") if found else {}
    gpus = tuple(
        _read_gpu(
            view, node, properties, partitioned=whole_cards[_card(properties)] > 1, names=names
        )
        for node, properties in found.items()
    )
    offered = {gpu.pci_address.rpartition(".")[0] for gpu in gpus}
    return GpuSurvey(
        gpus=gpus,
        withheld_nodes=tuple(withheld),
        not_offered=() if withheld else _not_offered(view, offered),
        processes=sum(name.isdecimal() for name in view.names(PROCESSES)),
        screens=displays(view),
        users=_users(view, found),
    )


def _users(view: View, nodes: Iterable[int]) -> tuple[GpuUser, ...]:
    ids = {f"vram_{view.text(f'{NODES}/{node}/gpu_id')}": node for node in nodes}
    return tuple(
        GpuUser(pid=int(pid), node=node, used_bytes=used)
        for pid in view.names(PROCESSES)
        if pid.isdecimal() and len(pid) < MAX_DIGITS
        for file, node in ids.items()
        if (used := view.number(f"{PROCESSES}/{pid}/{file}"))
    )


def gfx_name(target_version: int) -> str:
    """Spell the kernel's decimal version the way LLVM does: 90010 is ``gfx90a``."""
    major, rest = divmod(target_version, 10_000)
    minor, stepping = divmod(rest, 100)
    return f"gfx{major}{minor:x}{stepping:x}"


def parse_properties(text: str) -> dict[str, int]:
    """Read ``name number`` lines; a line that is anything else is passed over."""
    return {name: int(value) for name, value in _PROPERTY.findall(text)}


def pci_address(domain: int, location: int) -> str:
    """Unpack KFD's location id: bus, device and function in one number.

    On a partitioned card some drivers add the partition to the function, others put it into
    bits 28 to 31.
    """
    return (
        f"{domain & 0xFFFF:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 31:02x}.{location & 7}"
    )


def _read_gpu(
    view: View,
    node: int,
    facts: Mapping[str, int],
    *,
    partitioned: bool,
    names: Mapping[tuple[int, int], str],
) -> Gpu:
    location = facts.get("location_id", 0)
    address = pci_address(facts.get("domain", 0), location)
    card = f"{PCI}/{address[:-1]}0" if partitioned else f"{PCI}/{address}"
    version = facts.get("gfx_target_version")
    gfx = gfx_name(version) if version else None
    device = facts.get("device_id") or view.number(f"{card}/device")
    revision = view.number(f"{card}/revision")
    integrated = gfx in INTEGRATED_GFX or device == MI300A
    asleep = view.text(f"{card}/power/runtime_status") == "suspended"
    per_unit = facts.get("simd_per_cu", 0)
    return Gpu(
        node=node,
        gfx=gfx,
        name=view.text(f"{card}/product_name") or names.get((device or 0, revision or 0), ""),
        pci_address=address,
        device=device,
        revision=revision,
        serial=str(facts.get("unique_id") or ""),
        partition=(location >> 28 or location & 7) if partitioned else None,
        integrated=integrated,
        compute_units=facts.get("simd_count", 0) // per_unit if per_unit else None,
        vram_bytes=_vram(view, node, facts, card, integrated=integrated),
        gtt_bytes=view.number(f"{card}/mem_info_gtt_total"),
        reachable_bytes=view.number(f"{card}/mem_info_vis_vram_total"),
        peers_redirected=redirects_peers(view, card),
        render_minor=facts.get("drm_render_minor") or None,
        link=None if asleep else read_link(view, card),
        iommu=view.text(f"{card}/iommu_group/type"),
        asleep=asleep,
        firmware=_firmware(view, card, facts),
        used_bytes=view.number(f"{card}/mem_info_{'gtt' if integrated else 'vram'}_used"),
        uncorrected_errors=None if asleep else _memory_errors(view, card),
        link_errors=_link_errors(view, card),
        xgmi_peers=_xgmi_peers(view, node),
    )


def _memory_errors(view: View, card: str) -> int | None:
    """Sum what the driver counts for each block: lines such as "ue: 0"."""
    counts = [
        int(found[1])
        for name in view.names(f"{card}/ras")
        if name.endswith("_err_count")
        and (text := view.text(f"{card}/ras/{name}"))
        and (found := re.search(r"^ue: *(\d{1,18})\b", text, re.ASCII | re.MULTILINE))
    ]
    return sum(counts) if counts else None


def _link_errors(view: View, card: str) -> int | None:
    """Sum the totals of errors that cost data: lines such as "TOTAL_ERR_FATAL 0"."""
    texts = (view.text(f"{card}/aer_dev_{kind}") or "" for kind in ("fatal", "nonfatal"))
    found = [re.search(r"^TOTAL_ERR_\w+ (\d{1,18})$", it, re.ASCII | re.MULTILINE) for it in texts]
    counts = [int(match[1]) for match in found if match]
    return sum(counts) if counts else None


def _xgmi_peers(view: View, node: int) -> int | None:
    folder = f"{NODES}/{node}/io_links"
    links = view.names(folder)
    kinds = (parse_properties(view.text(f"{folder}/{link}/properties") or "") for link in links)
    return sum(kind.get("type") == XGMI for kind in kinds) if links else None


def _vram(
    view: View, node: int, facts: Mapping[str, int], card: str, *, integrated: bool
) -> int | None:
    """Return the memory of the GPU's own; KFD may count what an integrated one borrows."""
    of_card = view.number(f"{card}/mem_info_vram_total")
    of_node = _bank_bytes(view, node) or facts.get("local_mem_size")
    return (of_card or of_node if integrated else of_node or of_card) or None


def _card(facts: Mapping[str, int]) -> tuple[int, int]:
    serial = facts.get("unique_id", 0)
    place = facts.get("location_id", 0) & 0xFFF8
    return (-1, serial) if serial else (facts.get("domain", 0), place)


def _bank_bytes(view: View, node: int) -> int:
    folder = f"{NODES}/{node}/mem_banks"
    banks = [
        parse_properties(view.text(f"{folder}/{bank}/properties") or "")
        for bank in view.names(folder)
    ]
    return sum(
        bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in FRAME_BUFFER
    )


def _firmware(view: View, card: str, facts: Mapping[str, int]) -> dict[str, str]:
    """Return the versions the driver publishes; the two that KFD tells are decimal."""
    folder = f"{card}/fw_version"
    published = {
        name.removesuffix("_fw_version"): view.text(f"{folder}/{name}") or ""
        for name in view.names(folder)
        if name.endswith("_fw_version")
    }
    decimal = {"kfd": "fw_version", "kfd_sdma": "sdma_fw_version"}
    minor = facts.get("drm_render_minor")
    info = view.text(f"{DEBUGFS}/{minor}/amdgpu_firmware_info") if minor else None
    return (
        {name.lower(): version for name, version in _FIRMWARE.findall(info or "")}
        | published
        | {name: str(facts[key]) for name, key in decimal.items() if key in facts}
    )


def _not_offered(view: View, offered: set[str]) -> tuple[PciGpu, ...]:
    found = []
    for address in view.names(PCI)[:MAX_DEVICES]:
        folder = f"{PCI}/{address}"
        if address.rpartition(".")[0] in offered or view.number(f"{folder}/vendor") != AMD:
            continue
        if not (view.text(f"{folder}/class") or "").startswith((DISPLAY, ACCELERATOR)):
            continue
        driver = f"{folder}/driver"
        held_by = view.resolve(driver).rpartition("/")[2] if view.exists(driver) else ""
        found.append(
            PciGpu(
                pci_address=address,
                device=view.number(f"{folder}/device"),
                revision=view.number(f"{folder}/revision"),
                driver=held_by,
            )
        )
    return tuple(found)


def _marketing_names(text: str) -> dict[tuple[int, int], str]:
    """Read libdrm's table: device, revision, name."""
    names = {}
    for line in text.splitlines():
        device, _, rest = line.partition(",")
        revision, _, name = rest.partition(",")
        key = (whole_number(f"0x{device.strip()}"), whole_number(f"0x{revision.strip()}"))
        if key[0] is not None and key[1] is not None and not line.startswith("#"):
            names[key[0], key[1]] = name.strip().removeprefix("AMD ")
    return names


# May this user use the GPU? The device nodes themselves decide, not the group names.
KFD, DRI = "/dev/kfd", "/dev/dri"


class Node(Value, frozen=True, kw_only=True):
    """One device node and what the user may do with it."""

    path: str
    mode: str
    group: str  # its name where that is known, else the number
    usable: bool  # readable and writable, which is what ROCm needs


class Access(Value, frozen=True, kw_only=True):
    """The device nodes that ROCm opens. None: could not be told here."""

    kfd: Node | None
    kfd_known: bool  # False: a copied folder cannot say
    render: tuple[Node, ...]
    user: User | None


def read_access(view: View) -> Access:
    """Look at /dev/kfd and the render nodes with the rights of whoever runs this."""
    user = view.user
    minors = (name for name in view.names(DRI) if name.startswith("renderD"))
    nodes = (_node(view, f"{DRI}/{name}", user) for name in minors)
    return Access(
        kfd=_node(view, KFD, user),
        kfd_known=user is not None,
        render=tuple(node for node in nodes if node),
        user=user,
    )


def _node(view: View, path: str, user: User | None) -> Node | None:
    device = view.device(path)
    if device is None:
        return None
    groups = user.groups if user else {}
    gid = str(device.gid)
    return Node(
        path=path,
        mode=device.mode,
        group=groups.get(gid, gid),
        usable=device.access == "rw",
    )


# The PCIe link that really feeds a card. Radeon cards since RDNA 1 carry a bridge of their own: the
# GPU itself always reports the wide link inside the card, and the slot's width stands at the bridge
# above it. So we climb as long as the bridge above is the card's, and take the narrowest link.
BRIDGE = "0x0604"
EXTENDED, END = 0x100, 0x1000  # where PCIe's own capabilities lie; only root may read there
ACS, REDIRECTS = 0x000D, 0b1100  # the capability, and its two bits for requests and completions


class PcieLink(Value, frozen=True, kw_only=True):
    """A PCIe connection as it runs now."""

    width: int
    speed: float  # GT/s


def read_link(view: View, card: str) -> PcieLink | None:
    links = [found for found in (_link(view, card),) if found]
    above = parent(view.resolve(card))
    while above != "/" and _is_card_bridge(view, above):
        links += [found for found in (_link(view, above),) if found]
        above = parent(above)
    return min(links, key=lambda link: link.width * link.speed, default=None)


def redirects_peers(view: View, card: str) -> bool | None:
    """Whether a bridge above the card sends what cards tell each other up to the root."""
    found = None
    above = parent(view.resolve(card))
    while (view.text(f"{above}/class") or "").startswith(BRIDGE):
        control = _acs(view.piece(f"{above}/config", EXTENDED, END - EXTENDED))
        if control is not None:
            found = bool(found) or bool(control & REDIRECTS)
        above = parent(above)
    return found


def _acs(space: bytes) -> int | None:
    """Return ACS's control register, from the list of extended capabilities."""
    at = EXTENDED
    for _ in range((END - EXTENDED) // 4):
        start = at - EXTENDED
        if not EXTENDED <= at <= EXTENDED + len(space) - 8:
            return None
        header = int.from_bytes(space[start : start + 4], "little")
        if header & 0xFFFF == ACS:
            return int.from_bytes(space[start + 6 : start + 8], "little")
        at = header >> 20
    return None


def _is_card_bridge(view: View, folder: str) -> bool:
    is_bridge = (view.text(f"{folder}/class") or "").startswith(BRIDGE)
    return is_bridge and view.number(f"{folder}/vendor") == AMD


def _link(view: View, folder: str) -> PcieLink | None:
    width = view.number(f"{folder}/current_link_width")
    told = view.text(f"{folder}/current_link_speed") or ""
    speed = re.match(r"(\d{1,4}(?:\.\d{1,3})?) GT/s", told)
    return PcieLink(width=width, speed=float(speed[1])) if width and speed else None


# Whether a screen hangs on an AMD GPU: who resets that GPU takes the picture away.
CARDS = "/sys/class/drm"
_CONNECTOR = re.compile(r"(card\d+)-.+", re.ASCII)


def displays(view: View) -> tuple[str, ...] | None:
    """Name the connectors of AMD GPUs that have a screen; None if that cannot be told.

    What the kernel remembers is read; no GPU is asked, and none is woken.
    """
    matches = [match for match in map(_CONNECTOR.fullmatch, view.names(CARDS)) if match]
    unread = any(it.path.startswith(CARDS) for it in view.unread)
    if unread or not view.is_folder(CARDS):
        return None
    return tuple(
        match.group()
        for match in matches
        if view.number(f"{CARDS}/{match.group(1)}/device/vendor") == AMD
        and view.text(f"{CARDS}/{match.group()}/status") == "connected"
    )
