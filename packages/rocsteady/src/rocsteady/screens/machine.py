"""A machine's facts, for a person."""

from __future__ import annotations

from collections.abc import Iterable

from rocsteady.doctor.knowledge.gpu_names import card_name, gfx_of
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.gpus import Gpu, Node
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.root import Disk
from rocsteady.screens.text_page import BOLD, Page
from rocsteady.wording import size

LABEL = 20


def render_machine(machine: Machine, knowledge: Knowledge, *, width: int, colour: bool) -> str:
    page = Page(width, colour=colour)
    _section(page, "System", _system(machine))
    for gpu in machine.gpus.gpus:
        _section(
            page, f"GPU {gpu.node if gpu.node is not None else ''}".strip(), _gpu(gpu, knowledge)
        )
    _section(page, "GPUs not available", _missing(machine, knowledge))
    _section(page, "Access", _access(machine))
    _section(page, "Limits", _limits(machine))
    _section(page, "ROCm", _rocm(machine))
    _section(page, "Python and torch", _torch(machine, knowledge))
    _section(
        page,
        "Variables",
        (
            (var.name, var.value if var.value is not None else "(unknown variable; value not kept)")
            for var in machine.variables
        ),
    )
    _section(page, "Not readable", ((unread.why, unread.path) for unread in machine.unread))
    page.line(f"{machine.facts_read} facts read.")
    return str(page)


def _section(page: Page, title: str, rows: Iterable[tuple[str, str]]) -> None:
    shown = [(label, text) for label, text in rows if text]
    if not shown:
        return
    page.line(title, style=BOLD)
    for label, text in shown:
        page.row(label, text, indent=2, column=max(LABEL, max(len(row[0]) for row in shown) + 2))
    page.line()


def _system(machine: Machine) -> list[tuple[str, str]]:
    system, driver = machine.system, machine.driver
    return [
        ("system", system.distribution),
        ("kernel", system.kernel),
        ("command line", " ".join(system.cmdline)),
        ("container", system.container),
        ("WSL2", "yes" if system.wsl else ""),
        ("librocdxg", system.librocdxg),
        ("driver", f"{driver.kind} {driver.version or ''}" if driver.loaded else "not loaded"),
        ("boot id", system.boot_id),
        ("run as", "root, so permissions were not tested" if system.as_root else ""),
    ]


def _gpu(gpu: Gpu, knowledge: Knowledge) -> list[tuple[str, str]]:
    link = gpu.link
    place = f", partition {gpu.partition}" if gpu.partition is not None else ""
    device = f"{gpu.device:#06x}" if gpu.device is not None else "?"
    revision = f" revision {gpu.revision:#04x}" if gpu.revision is not None else ""
    return [
        ("card", card_name(gpu, knowledge)),
        ("kind", "integrated" if gpu.integrated else "discrete"),
        ("gfx", gfx_of(gpu, knowledge) or "not reported by the driver"),
        ("PCI", f"{gpu.pci_address}{place}, device {device}{revision}".lstrip(", ")),
        ("compute units", str(gpu.compute_units or "")),
        ("memory", _size(gpu.vram_bytes)),
        ("shared with system", _size(gpu.gtt_bytes) if gpu.integrated else ""),
        ("render node", f"renderD{gpu.render_minor}" if gpu.render_minor else ""),
        ("link", f"x{link.width} at {link.speed:g} GT/s" if link else ""),
        ("IOMMU type", gpu.iommu or ""),
        ("power", "asleep; PCIe link not read" if gpu.asleep else ""),
        ("firmware", ", ".join(f"{name} {version}" for name, version in gpu.firmware.items())),
    ]


def _missing(machine: Machine, knowledge: Knowledge) -> list[tuple[str, str]]:
    survey = machine.gpus
    rows = [("withheld", f"KFD node {node}") for node in survey.withheld_nodes]
    return rows + [
        (
            "not offered",
            f"{card_name(gpu, knowledge)} at {gpu.pci_address}, driver: {gpu.driver or 'none'}",
        )
        for gpu in survey.not_offered
    ]


def _access(machine: Machine) -> list[tuple[str, str]]:
    access = machine.access
    user = access.user
    nodes = [*([access.kfd] if access.kfd else []), *access.render]
    rows = [(node.path, _node(node)) for node in nodes]
    return [*rows, ("groups", ", ".join(user.groups.values()) if user else "")]


def _node(node: Node) -> str:
    usable = "usable" if node.usable else "not usable by this user"
    return f"{usable} (mode {node.mode}, group {node.group})"


def _limits(machine: Machine) -> list[tuple[str, str]]:
    limits = machine.limits
    return [
        ("memory", _size(limits.memory_total)),
        ("available", _size(limits.memory_available)),
        ("cgroup limit", _size(limits.memory_limit)),
        ("shared memory", _disk(limits.shared_memory)),
        ("working folder", _disk(limits.folder)),
    ]


def _rocm(machine: Machine) -> list[tuple[str, str]]:
    rows = [(install.path, install.version) for install in machine.rocm]
    rows += [
        ("library path", f"{shadow.folder}: {' '.join(shadow.libraries)}")
        for shadow in machine.library_shadows
    ]
    rows += [("distribution's", path) for path in machine.distribution_hsa]
    return rows + [
        (f"MIOpen {cache.name}", ", ".join(filter(None, (cache.path, _disk(cache.disk)))))
        for cache in machine.caches
    ]


def _torch(machine: Machine, knowledge: Knowledge) -> list[tuple[str, str]]:
    del knowledge
    python, torch = machine.python, machine.torch
    if python is None:
        return [("Python", "no environment found; name one with --python")]
    rows = [
        ("Python", f"{python.version} in {python.prefix} (from {python.chosen})"),
        ("not examined", python.why_not),
    ]
    if torch is None:
        return [*rows, ("torch", "none")]
    return [
        *rows,
        ("torch", torch.version),
        ("build", torch.build),
        ("HIP", torch.hip or ""),
        ("ROCm", torch.rocm or ""),
        ("CUDA", torch.cuda or ""),
        ("code for", " ".join(torch.arches)),
        ("known by", torch.arches_from),
        ("includes ROCm", "yes" if torch.bundles_rocm else "no"),
        ("registered twice", ", ".join(torch.twice)),
        ("packages", ", ".join(f"{name} {version}" for name, version in machine.packages.items())),
    ]


def _disk(disk: Disk | None) -> str:
    if disk is None:
        return ""
    kind = disk.filesystem or "file system not known"
    how = "" if disk.writable else ", read-only"
    return f"{_size(disk.free)} free of {_size(disk.total)}, {kind}{how}"


def _size(amount: int | None) -> str:
    return "" if amount is None else size(amount)
