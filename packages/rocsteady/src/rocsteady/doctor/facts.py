"""The facts that rules speak of, by name. A fact has values, has none, or cannot be told.

``FACTS`` is the list a rule's author may choose from; ``variable:NAME`` is a fact too, for every
variable of the knowledge base.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from packaging.version import Version

from rocsteady.doctor.knowledge.gpu_names import gfx_of
from rocsteady.doctor.knowledge.reader import Knowledge
from rocsteady.doctor.machine.machine import Machine
from rocsteady.doctor.machine.torch_build import made_by
from rocsteady.doctor.training_gpus import code_used, effects, override_settings, trainable, visible
from rocsteady.model import Value
from rocsteady.versions import version_fits

Scalar = bool | int | float | str
GIB = 1 << 30
PYTORCH_INDEX = "https://download.pytorch.org/whl/rocm"
PACKAGES = (  # that rules speak of
    "amdsmi",
    "bitsandbytes",
    "flash_attn",
    "lightning",
    "torch_directml",
    "triton",
)

FACTS: Mapping[str, str] = {
    "os": "linux or windows",
    "wsl": "whether this is WSL2",
    "wsl.dxg": "whether WSL2's GPU device is there",
    "wsl.librocdxg": "whether ROCm's bridge to it is there",
    "container": "its kind; absent outside one",
    "kernel.version": "of the running kernel",
    "kernel.build": "the number after the version: 1018 of 6.17.0-1018-oem",
    "kernel.iommu": "passthrough, translated or off",
    "kernel.arguments": "words of its command line that matter to a GPU",
    "kernel.numa_balancing": "whether it moves memory between NUMA nodes on its own",
    "driver.loaded": "whether amdgpu is loaded",
    "driver.version": "of the separately installed driver; absent for the kernel's own",
    "driver.release": "of the separately installed driver, else of the kernel that brings it",
    "gpu.count": "GPUs that the driver offers us; each partition counts",
    "gpu.gfx": "one value a GPU",
    "gpu.discrete.count": "cards, not counting partitions and integrated GPUs",
    "gpu.discrete.gfx": "one value a GPU that is not integrated",
    "gpu.discrete.indices": "the numbers that ROCR_VISIBLE_DEVICES has for them, joined",
    "gpu.integrated.gfx": "one value an integrated GPU",
    "gpu.withheld": "GPUs in the machine that we may not read",
    "gpu.undescribed": "GPUs whose driver does not say what they are",
    "gpu.visible.count": "GPUs that the variables leave; each partition counts",
    "gpu.visible.discrete": "how many of these are not integrated",
    "gpu.extras": "extras of AMD's wheels for the GPUs one would train on, where one works",
    "gpu.not_offered": "AMD GPUs on the PCI bus that the compute driver does not offer",
    "gpu.not_offered.gfx": "what these are known for, where they are",
    "gpu.link_width": "PCIe lanes, one value a discrete card",
    "gpu.vram_gib": "one value a GPU",
    "gpu.discrete.vram_gib": "one value a GPU that is not integrated",
    "gpu.integrated.vram_gib": "memory set aside for an integrated GPU by the firmware",
    "gpu.integrated.gtt_share": "part of the machine's memory that an integrated GPU may map",
    "gpu.reachable": "whole or part: how much of its memory other cards reach; one a card",
    "gpu.peers": "direct or redirected, by ACS; one value a card where root may read it",
    "gpu.mes": "version of the scheduler's firmware, such as 0x83; one value a GPU",
    "gpu.processes": "processes that compute on GPUs now",
    "gpu.screens": "connectors of AMD GPUs that have a screen",
    "gpu.firmware": "component and version, such as mes 0x83; one value a GPU and component",
    "gpu.link_speed": "GT/s of a PCIe lane, one value a discrete card that is awake",
    "gpu.link_errors": "PCIe errors since boot that were not corrected, one value a GPU",
    "gpu.memory_errors": "uncorrectable errors that the driver counts (RAS), one value a GPU",
    "gpu.xgmi_peers": "GPUs that it reaches by XGMI, one value a GPU",
    "gpu.address": "on the PCI bus, one value a GPU",
    "rocm.version": "one value an install of the system",
    "torch.installed": "whether the environment that trains has torch",
    "torch.version": "without the local tag",
    "torch.build": "rocm, cuda or cpu",
    "torch.rocm": "the ROCm release it was built for; absent if it is not a ROCm build",
    "torch.extras": "device packages beside AMD's torch, such as amd_torch_device_gfx1100",
    "torch.made_by": "pytorch, amd or other; absent if it is not a ROCm build",
    "torch.arches": "gfx names it has code for",
    "device.kfd": "ok, denied or missing",
    "device.render": "the same, one value a GPU",
    "memory.gib": "of the machine",
    "memory.limit_gib": "of the cgroup; absent if there is none",
    "shm.gib": "the size of /dev/shm",
    "disk.free_gib": "in the working folder",
    "variables.hsa": "names of the HSA_ and ROCR_ variables that are set",
    "override.effect": "same, within-family, across-families or refused, one value a GPU",
    "override.code": "needed, instead or none, for each GPU overridden within its family",
    "override.settings": "the forms of HSA_OVERRIDE_GFX_VERSION that are set, with values",
    "wheels.amd": "the address of AMD's newest wheels, for pip",
    "wheels.pytorch": "what pip needs for the newest torch of pytorch.org with code for the"
    " GPUs; AMD's where there is none",
    "libraries.distro_hsa": "ROCm runtime libraries of the distribution",
    "libraries.libnuma": "whether a libnuma.so is there, of the system or in the wheel",
    **{f"package.{name}": "its version; absent if it is not installed" for name in PACKAGES},
}


NO_WSL_GPU = "WSL2 shows no GPU in its files"
NO_VARIABLES = "a copied folder does not record which variables were set"


class Facts:
    def __init__(self) -> None:
        self._values: dict[str, tuple[Scalar, ...]] = {}
        self._unknown: dict[str, str] = {}
        self.variables_known = True

    def know(self, name: str, values: Iterable[Scalar | None]) -> None:
        self._values[name] = tuple(value for value in values if value is not None)

    def cannot_tell(self, name: str, why: str) -> None:
        self._unknown[name] = why

    def names(self) -> Iterable[str]:
        return self._values

    def values(self, name: str) -> tuple[Scalar, ...]:
        return self._values.get(name, ())

    def why_unknown(self, name: str) -> str:
        """Return the reason, or "" if the fact is known."""
        if name.startswith("variable:") and not self.variables_known:
            return NO_VARIABLES
        return self._unknown.get(name, "")


def facts_of(example: Mapping[str, Scalar | tuple[Scalar, ...]]) -> Facts:
    """Return the facts that a rule's author wrote; other variables are not set."""
    facts = Facts()
    for name in FACTS:
        if name not in example:
            facts.cannot_tell(name, "not part of the example")
    for name, values in example.items():
        facts.know(name, values if isinstance(values, tuple) else (values,))
    return facts


def gather(machine: Machine, knowledge: Knowledge) -> Facts:
    facts = Facts()
    _system(facts, machine)
    _gpus(facts, machine, knowledge)
    _torch(facts, machine, knowledge)
    _access(facts, machine)
    _limits(facts, machine)
    _variables(facts, machine, knowledge)
    return facts


def release_arches(machine: Machine, knowledge: Knowledge) -> tuple[str, ...]:
    """Return the gfx names of PyTorch's own wheels of this release; none for other builds."""
    torch = machine.torch
    if torch is None or made_by(torch) != "pytorch":
        return ()
    matching = (wheel for wheel in knowledge.wheels if version_fits(torch.version, wheel.torch))
    return next((wheel.arches for wheel in matching), ())


def _system(facts: Facts, machine: Machine) -> None:
    system = machine.system
    facts.know("os", [system.os])
    facts.know("wsl", [system.wsl])
    facts.know("wsl.dxg", [system.dxg])
    facts.know("wsl.librocdxg", [bool(system.librocdxg)])
    facts.know("container", [system.container or None])
    facts.know("driver.loaded", [machine.driver.loaded])
    facts.know("driver.version", [machine.driver.version])
    facts.know("rocm.version", (install.version for install in machine.rocm))
    facts.know("libraries.distro_hsa", machine.distribution_hsa)
    in_wheel = machine.torch is not None and machine.torch.brings_libnuma
    facts.know("libraries.libnuma", [bool(machine.libnuma) or in_wheel])
    for name in PACKAGES:
        older = machine.packages.get(f"pytorch_{name}")  # what Lightning was called
        facts.know(f"package.{name}", [machine.packages.get(name) or older])
    facts.know("kernel.version", [system.kernel or None])
    build = re.match(r"\d+(?:\.\d+)+-(\d+)", system.kernel or "")
    facts.know("kernel.build", [int(build[1]) if build else None])
    facts.know("kernel.arguments", system.cmdline)
    facts.know("kernel.numa_balancing", [system.numa_balancing])
    facts.know("driver.release", [machine.driver.version or system.kernel or None])
    if not system.kernel:
        facts.cannot_tell("kernel.version", "the kernel does not say")
    iommu = _iommu(machine)
    facts.know("kernel.iommu", [iommu])
    if iommu is None:
        facts.cannot_tell("kernel.iommu", "neither the PCI files nor the command line say")


def _iommu(machine: Machine) -> str | None:
    gpus = machine.gpus.gpus
    cards = [gpu for gpu in gpus if not gpu.integrated] or gpus
    kinds = {gpu.iommu for gpu in cards if gpu.iommu}
    if kinds:
        return "passthrough" if kinds == {"identity"} else "translated"
    words = machine.system.cmdline
    if "iommu=pt" in words:
        return "passthrough"
    if {"iommu=off", "amd_iommu=off", "intel_iommu=off"} & set(words):
        return "off"
    return "off" if machine.system.iommu_active is False else None


def _gpus(facts: Facts, machine: Machine, knowledge: Knowledge) -> None:
    survey = machine.gpus
    discrete = [gpu for gpu in survey.gpus if not gpu.integrated]
    cards = {gpu.pci_address[:-1] or index: gpu for index, gpu in enumerate(discrete)}
    facts.know("gpu.count", [len(survey.gpus)])
    facts.know("gpu.gfx", (gfx_of(gpu, knowledge) for gpu in survey.gpus))
    facts.know("gpu.discrete.count", [len(cards)])
    facts.know("gpu.discrete.gfx", (gfx_of(gpu, knowledge) for gpu in discrete))
    facts.know(
        "gpu.integrated.gfx", (gfx_of(gpu, knowledge) for gpu in survey.gpus if gpu.integrated)
    )
    facts.know("gpu.withheld", [len(survey.withheld_nodes)])
    facts.know("gpu.undescribed", [sum(gpu.gfx is None for gpu in survey.gpus)])
    facts.know("gpu.not_offered", (gpu.pci_address for gpu in survey.not_offered))
    products = (knowledge.product(gpu.device, gpu.revision) for gpu in survey.not_offered)
    facts.know("gpu.not_offered.gfx", (product.gfx for product in products if product))
    facts.know("gpu.link_width", (gpu.link.width for gpu in cards.values() if gpu.link))
    _gpu_memory(facts, machine)
    facts.know("gpu.processes", [survey.processes])
    facts.know("gpu.screens", survey.screens or ())
    redirected = (gpu.peers_redirected for gpu in cards.values())
    named = {True: "redirected", False: "direct", None: None}
    facts.know("gpu.peers", (named[it] for it in redirected))
    facts.know("gpu.mes", (_mes(gpu.firmware.get("mes", "")) for gpu in survey.gpus))
    firmware = (f"{name} {it}" for gpu in survey.gpus for name, it in gpu.firmware.items())
    facts.know("gpu.firmware", firmware)
    facts.know("gpu.link_speed", (gpu.link.speed for gpu in cards.values() if gpu.link))
    facts.know("gpu.link_errors", (gpu.link_errors for gpu in survey.gpus))
    facts.know("gpu.memory_errors", (gpu.uncorrected_errors for gpu in survey.gpus))
    facts.know("gpu.xgmi_peers", (gpu.xgmi_peers for gpu in survey.gpus))
    facts.know("gpu.address", (gpu.pci_address or None for gpu in survey.gpus))
    places = (str(place) for place, gpu in enumerate(survey.gpus) if not gpu.integrated)
    facts.know("gpu.discrete.indices", [",".join(places) or None])
    facts.know("gpu.visible.count", [len(visible(machine))])
    facts.know("gpu.visible.discrete", [sum(not gpu.integrated for gpu in visible(machine))])
    wanted = dict.fromkeys(gfx_of(gpu, knowledge) for gpu in trainable(machine))
    newest = knowledge.indexes[:1]
    built = {gfx for index in newest for gfx in {*index.arches} - {*index.avoid}}
    extras = ",".join(f"device-{gfx}" for gfx in wanted if gfx in built)
    facts.know("gpu.extras", [extras or None])
    amd = next((index.address for index in newest), None)
    facts.know("wheels.amd", [amd])
    facts.know("wheels.pytorch", [_of_pytorch(knowledge, {*filter(None, wanted)}, amd, extras)])
    if machine.system.wsl:
        for name in FACTS:
            if name.startswith("gpu."):
                facts.cannot_tell(name, NO_WSL_GPU)


def _of_pytorch(knowledge: Knowledge, gfxs: set[str], amd: str | None, extras: str) -> str | None:
    """Return requirement and index; of two builds of one release, the first listed."""
    fitting = [wheel for wheel in knowledge.wheels if gfxs <= {*wheel.arches}]
    if not fitting:
        return f"--index-url {amd} 'torch[{extras}]'" if amd and extras else None
    newest = max(fitting, key=lambda wheel: Version(wheel.latest))
    return f"torch=={newest.latest}+rocm{newest.rocm} --index-url {PYTORCH_INDEX}{newest.rocm}"


def _gpu_memory(facts: Facts, machine: Machine) -> None:
    gpus = [gpu for gpu in machine.gpus.gpus if gpu.vram_bytes]
    memory = machine.limits.memory_total
    for name, those in (
        ("gpu.vram_gib", gpus),
        ("gpu.discrete.vram_gib", [gpu for gpu in gpus if not gpu.integrated]),
        ("gpu.integrated.vram_gib", [gpu for gpu in gpus if gpu.integrated]),
    ):
        facts.know(name, ((gpu.vram_bytes or 0) / GIB for gpu in those))
    shared = (gpu.gtt_bytes for gpu in machine.gpus.gpus if gpu.integrated)
    facts.know("gpu.integrated.gtt_share", (it / memory for it in shared if it and memory))
    cards = (gpu for gpu in gpus if not gpu.integrated and gpu.reachable_bytes)
    whole = ((gpu.reachable_bytes or 0) >= (gpu.vram_bytes or 0) * 0.9 for gpu in cards)
    facts.know("gpu.reachable", ("whole" if it else "part" for it in whole))


def _mes(version: str) -> str | None:
    """Spell it as people do: 0x00000083 is 0x83. Only the low twelve bits are the version."""
    try:
        return f"0x{int(version, 16) & 0xFFF:x}"
    except ValueError:
        return None


def _variables(facts: Facts, machine: Machine, knowledge: Knowledge) -> None:
    for variable in machine.variables:
        facts.know(f"variable:{variable.name}", [variable.value])
    names = (variable.name for variable in machine.variables)
    facts.know("variables.hsa", (name for name in names if name.startswith(("HSA_", "ROCR_"))))
    overrides = override_settings(machine)
    facts.know("override.settings", overrides)
    facts.know("override.effect", effects(machine, knowledge))
    arches = {str(arch) for arch in facts.values("torch.arches")}
    facts.know("override.code", code_used(machine, arches, knowledge) if overrides else ())
    unknown = facts.why_unknown("torch.arches")
    if overrides and unknown:
        facts.cannot_tell("override.code", unknown)
    facts.variables_known = machine.variables_known
    if machine.system.wsl and overrides:
        facts.cannot_tell("override.effect", NO_WSL_GPU)
        facts.cannot_tell("override.code", NO_WSL_GPU)
    if not machine.variables_known:
        for name in ("variables.hsa", "override.settings", "override.effect", "override.code"):
            facts.cannot_tell(name, NO_VARIABLES)


def _torch(facts: Facts, machine: Machine, knowledge: Knowledge) -> None:
    python, torch = machine.python, machine.torch
    if torch is None:
        why = "no Python environment was found"
        if python is not None:
            why = (
                f"{python.prefix}: {python.why_not}"
                if python.why_not
                else f"no torch in {python.prefix}"
            )
            facts.know("torch.installed", [False])
        if python is None or python.why_not:
            facts.cannot_tell("torch.installed", why)
        for name in FACTS:
            if name.startswith("torch.") and name != "torch.installed":
                facts.cannot_tell(name, why)
        return
    facts.know("torch.installed", [True])
    facts.know("torch.version", [torch.version.partition("+")[0] or None])
    facts.know("torch.build", [torch.build])
    facts.know("torch.extras", (it for it in machine.packages if "torch_device_gfx" in it))
    facts.know("torch.rocm", [torch.rocm])
    facts.know("torch.made_by", [made_by(torch) if torch.build == "rocm" else None])
    arches = torch.arches or release_arches(machine, knowledge)
    facts.know("torch.arches", arches)
    if torch.build == "rocm" and not arches:
        facts.cannot_tell("torch.arches", "neither its files nor the release table say")


def _access(facts: Facts, machine: Machine) -> None:
    access = machine.access
    if not access.kfd_known or machine.system.os != "linux":
        for name in ("device.kfd", "device.render"):
            facts.cannot_tell(name, "device nodes can only be tried on the machine itself")
        return
    kfd = access.kfd
    facts.know("device.kfd", ["missing" if kfd is None else "ok" if kfd.usable else "denied"])
    nodes = {node.path: node for node in access.render}
    minors = (gpu.render_minor for gpu in machine.gpus.gpus if gpu.render_minor)
    wanted = (nodes.get(f"/dev/dri/renderD{minor}") for minor in minors)
    facts.know(
        "device.render",
        ("missing" if node is None else "ok" if node.usable else "denied" for node in wanted),
    )


def _limits(facts: Facts, machine: Machine) -> None:
    limits = machine.limits
    amounts = {
        "memory.gib": limits.memory_total,
        "shm.gib": limits.shared_memory.total if limits.shared_memory else None,
        "disk.free_gib": limits.folder.free if limits.folder else None,
    }
    for name, amount in amounts.items():
        facts.know(name, [None if amount is None else amount / GIB])
        if amount is None:
            facts.cannot_tell(name, "could not be read")
    facts.know("memory.limit_gib", [limits.memory_limit / GIB if limits.memory_limit else None])


class VisibleGpus(Value, frozen=True, kw_only=True):
    gpus: int
    gfx: tuple[str, ...]
    arches: tuple[str, ...]


def visible_to_a_run(machine: Machine, knowledge: Knowledge) -> VisibleGpus:
    """Judge by masks, driver and torch.

    WSL2 and NVIDIA's driver show nothing to us: that counts as one GPU of any kind.
    """
    gfx = (gfx_of(gpu, knowledge) for gpu in trainable(machine))
    torch = machine.torch
    unseen = machine.system.dxg or (torch is not None and torch.build == "cuda")
    count = len(visible(machine)) or int(unseen)
    return VisibleGpus(
        gpus=0 if torch is not None and torch.build == "cpu" else count,
        gfx=tuple(filter(None, dict.fromkeys(gfx))),
        arches=release_arches(machine, knowledge),
    )
