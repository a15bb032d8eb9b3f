"""The operating system: what runs, where it runs, how it was started."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from rocsteady.doctor.machine.view import View, whole_number
from rocsteady.model import Value
from rocsteady.system.root import PATH_LIMIT, Disk

# The only words of the kernel command line that are kept: the rest may name disks and servers.
CMDLINE_WORDS = re.compile(
    r"(?:(?:amd_|intel_)?iommu|amdgpu\.\w+|amdkfd\.\w+|amdttm\.\w+|ttm\.\w+|pci|pcie_\w+|mem_encrypt"
    r"|numa_balancing|module_blacklist|modprobe\.blacklist|nomodeset)(?:=[\w.,:=+-]*)?"
)
IOMMUS = "/sys/class/iommu"
WINDOWS = "/HKLM/SOFTWARE/Microsoft/Windows NT/CurrentVersion"


class Driver(Value, frozen=True, kw_only=True):
    """The amdgpu kernel driver, or on Windows the display driver."""

    loaded: bool
    version: str | None  # published by the separately installed (DKMS) driver only
    kind: str  # "in kernel", "DKMS", "Windows" or "" if there is none


class System(Value, frozen=True, kw_only=True):
    os: str  # "linux" or "windows"
    distribution: str
    kernel: str
    cmdline: tuple[str, ...]  # words that matter to a GPU
    iommu_active: bool | None  # None: could not be told
    numa_balancing: bool | None = None  # the kernel moves memory between nodes on its own
    container: str  # the kind; "" outside one
    wsl: bool
    dxg: bool  # /dev/dxg: WSL2's GPU
    librocdxg: str  # where ROCm's bridge to it lies; "" if it does not
    boot_id: str
    processors: int | None = None  # that run threads; None: not told


def read_system(view: View, site_packages: tuple[str, ...] = ()) -> System:
    if view.platform == "win32":
        return _read_windows(view)
    kernel = view.text("/proc/sys/kernel/osrelease") or ""
    release = view.text("/etc/os-release") or view.text("/usr/lib/os-release") or ""
    balancing = view.text("/proc/sys/kernel/numa_balancing")
    return System(
        os="linux",
        distribution=_assigned(release, "PRETTY_NAME"),
        kernel=kernel,
        cmdline=relevant_words(view.text("/proc/cmdline") or ""),
        iommu_active=bool(view.names(IOMMUS)) if view.exists(IOMMUS) else None,
        numa_balancing=None if balancing is None else balancing != "0",
        container=_container(view),
        wsl="microsoft" in kernel.lower(),
        dxg=view.exists("/dev/dxg"),
        librocdxg=_librocdxg(view, site_packages),
        boot_id=view.text("/proc/sys/kernel/random/boot_id") or "",
        processors=_processors(view),
    )


def read_driver(view: View) -> Driver:
    folder = "/sys/module/amdgpu"
    state = view.text(f"{folder}/initstate")
    # A driver that is built into the kernel has a folder but no state.
    loaded = state == "live" or (state is None and view.is_folder(folder))
    version = view.text(f"{folder}/version")
    kind = "" if not loaded else "DKMS" if version else "in kernel"
    return Driver(loaded=loaded, version=version, kind=kind)


def relevant_words(cmdline: str) -> tuple[str, ...]:
    """Keep what matters to a GPU; drop what names disks, servers and people."""
    return tuple(word for word in cmdline.split() if CMDLINE_WORDS.fullmatch(word))


def _processors(view: View) -> int | None:
    """Count those of the nodes that the driver lists, which the survey of GPUs has read too."""
    nodes = "/sys/class/kfd/kfd/topology/nodes"
    told = (view.text(f"{nodes}/{node}/properties") or "" for node in view.names(nodes))
    counts = (re.search(r"^cpu_cores_count (\d{1,6})$", text, re.MULTILINE) for text in told)
    return sum(int(count[1]) for count in counts if count) or None


def _container(view: View) -> str:
    environment = view.environment or {}
    if view.exists("/.dockerenv"):
        return "docker"
    if view.exists("/run/.containerenv"):
        return "podman"
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    if environment.get("container"):
        return environment["container"]
    group = view.text("/proc/1/cgroup") or ""
    return next((kind for kind in ("docker", "kubepods", "lxc", "podman") if kind in group), "")


def _librocdxg(view: View, site_packages: tuple[str, ...]) -> str:
    folders = [f"{site}/_rocm_sdk_core/lib" for site in site_packages]  # AMD's wheels
    folders += ["/opt/rocm/lib", "/usr/lib", "/usr/local/lib"]
    folders += [f"/opt/rocm/{name}/lib" for name in view.names("/opt/rocm") if "core-" in name]
    names = ("librocdxg.so", "librocdxg.so.1")
    places = (f"{folder}/{name}" for folder in folders for name in names)
    return next((place for place in places if view.exists(place)), "")


def _assigned(text: str, name: str) -> str:
    match = re.search(rf"^{name}=[\"']?([^\"'\n]*)", text, re.MULTILINE)
    return match.group(1).strip() if match else ""


def _read_windows(view: View) -> System:
    build = view.text(f"{WINDOWS}/CurrentBuild") or ""
    return System(
        os="windows",
        distribution=view.text(f"{WINDOWS}/ProductName") or "Windows",
        kernel=f"10.0.{build}" if build else "",
        cmdline=(),
        iommu_active=None,
        container="",
        wsl=False,
        dxg=False,
        librocdxg="",
        boot_id="",
        processors=whole_number((view.environment or {}).get("NUMBER_OF_PROCESSORS")),
    )


# Memory, shared memory and disk, and the limits that a container or service puts on them.
NO_LIMIT = 1 << 60  # cgroup v1 writes a huge number for "none"


class Limits(Value, frozen=True, kw_only=True):
    """What a process here may use, in bytes. None: could not be read, or there is no limit."""

    memory_total: int | None
    memory_limit: int | None  # of the cgroup
    shared_memory: Disk | None  # /dev/shm: DataLoader workers hand batches over through it
    folder: Disk | None


def read_limits(view: View) -> Limits:
    meminfo = view.text("/proc/meminfo") or ""
    total = re.search(r"^MemTotal:\s+(\d{1,15}) kB", meminfo, re.MULTILINE)
    return Limits(
        memory_total=int(total[1]) * 1024 if total else None,
        memory_limit=_memory_limit(view),
        shared_memory=view.disk("/dev/shm") if view.platform == "linux" else None,  # noqa: S108 - read, not written
        folder=view.disk(view.root.folder),
    )


def cgroup_paths(text: str) -> tuple[str | None, str | None]:
    """Return this process's group in the unified hierarchy and in the memory one, if any."""
    unified = memory = None
    for line in text.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path.startswith("/") or ".." in path.split("/") or len(path) > PATH_LIMIT:
            continue
        if hierarchy == "0" and not controllers:
            unified = path.rstrip("/")
        elif "memory" in controllers.split(","):
            memory = path.rstrip("/")
    return unified, memory


def _memory_limit(view: View) -> int | None:
    unified, memory = cgroup_paths(view.text("/proc/self/cgroup") or "")
    limits = [
        *_limits_up(view, "/sys/fs/cgroup", unified, "memory.max"),
        *_limits_up(view, "/sys/fs/cgroup/memory", memory, "memory.limit_in_bytes"),
    ]
    return min((limit for limit in limits if limit < NO_LIMIT), default=None)


def _limits_up(view: View, mount: str, group: str | None, name: str) -> list[int]:
    """Return the limit of the group and of every group above it."""
    if group is None:
        return []
    found = []
    while True:
        limit = whole_number(view.text(f"{mount}{group}/{name}"))
        found += [limit] if limit is not None else []
        if not group:
            return found
        group = group.rpartition("/")[0]


# The variables in force that ROCm and PyTorch read, or look as if they did. The value of a
# variable that is not on the list is not kept: it may be a secret.
FAMILIES = (
    "AMD_", "AOTRITON_", "GPU_", "HIP_", "HIPBLASLT_", "HIPBLAS_", "HSA_", "HSAKMT_", "MIOPEN_",
    "NCCL_", "PAL_", "PYTORCH_", "RCCL_", "ROC_", "ROCBLAS_", "ROCM_", "ROCR_", "TORCH_",
    "TORCHDYNAMO_", "TORCHINDUCTOR_", "TRITON_",
)  # fmt: skip
_OF_ONE_NODE = re.compile(r"_\d+$")  # HSA_OVERRIDE_GFX_VERSION_1 is for node 1 only


class SetVariable(Value, frozen=True, kw_only=True):
    name: str
    value: str | None  # None: not on the list, so not kept


def read_variables(
    environment: Mapping[str, str], known: Collection[str]
) -> tuple[SetVariable, ...]:
    return tuple(
        SetVariable(name=name, value=environment[name] if listed(name, known) else None)
        for name in sorted(environment)
        if listed(name, known) or name.startswith(FAMILIES)
    )


def listed(name: str, known: Collection[str]) -> bool:
    """Whether a variable is on the list, also in its form for one node."""
    return name in known or _OF_ONE_NODE.sub("", name) in known
