"""The operating system: what runs, where it runs, how it was started."""

from __future__ import annotations

import re

from rocsteady.machine.view import View
from rocsteady.model import Value

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
    """What runs on this computer."""

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
    as_root: bool | None  # permissions were not really tested


def read_system(view: View) -> System:
    """Read it from files; on Windows from the registry."""
    if view.platform == "win32":
        return _read_windows(view)
    kernel = view.text("/proc/sys/kernel/osrelease") or ""
    release = view.text("/etc/os-release") or view.text("/usr/lib/os-release") or ""
    user = view.user
    return System(
        os="linux",
        distribution=_assigned(release, "PRETTY_NAME"),
        kernel=kernel,
        cmdline=relevant_words(view.text("/proc/cmdline") or ""),
        iommu_active=bool(view.names(IOMMUS)) if view.exists(IOMMUS) else None,
        numa_balancing=_switched_on(view.text("/proc/sys/kernel/numa_balancing")),
        container=_container(view),
        wsl="microsoft" in kernel.lower(),
        dxg=view.exists("/dev/dxg"),
        librocdxg=_librocdxg(view),
        boot_id=view.text("/proc/sys/kernel/random/boot_id") or "",
        as_root=None if user is None else user.uid == 0,
    )


def read_driver(view: View) -> Driver:
    """Tell whether the driver is there, and which."""
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


def _switched_on(text: str | None) -> bool | None:
    return None if text is None else text != "0"


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


def _librocdxg(view: View) -> str:
    places = ("/opt/rocm/lib/librocdxg.so", "/usr/lib/librocdxg.so", "/usr/local/lib/librocdxg.so")
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
        as_root=None,
    )
