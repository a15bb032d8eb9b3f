"""The operating system around the GPUs: kernel, memory, limits, disks, driver, system ROCm.

All of it is ours unless a machine's note says otherwise: recordings of GPUs rarely have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retyped.chips import Chip
from retyped.recording import Recording

GB = 1000**3
KIB = 1024
SESSION = "/user.slice/user-1000.slice/session-2.scope"
UNLIMITED_V1 = "9223372036854771712"


@dataclass(frozen=True)
class System:
    """A distribution with its kernel."""

    name: str
    version: str
    pretty: str
    kernel: str
    render: int = 109  # the group that owns /dev/kfd
    cmdline: str = "quiet splash"
    cgroups: int = 2


def ubuntu(version: str, kernel: str, *, cmdline: str = "quiet splash") -> System:
    """Return an Ubuntu; the render group's number changed with 24.04."""
    pretty = {"22.04": "Ubuntu 22.04.5 LTS", "24.04": "Ubuntu 24.04.3 LTS"}.get(version)
    return System(
        name="ubuntu",
        version=version,
        pretty=pretty or f"Ubuntu {version}",
        kernel=kernel,
        render=109 if version == "22.04" else 992,
        cmdline=cmdline,
    )


ROCKY_8 = System(
    "rocky", "8.10", "Rocky Linux 8.10 (Green Obsidian)", "4.18.0-553.el8_10.x86_64", cgroups=1
)


def start(  # noqa: PLR0913 - a machine has this many properties of its own
    name: str,
    note: str,
    system: System,
    *,
    boot: int,
    memory: int,
    cores: int = 16,
    container: bool = False,
    limit: int | None = None,
    shm: int | None = None,
    groups: Sequence[str] = ("video", "render"),
) -> Recording:
    """Begin a Linux machine: ``memory`` and ``shm`` in KiB and bytes, ``limit`` of a container."""
    home = "/root" if container else "/home/user"
    machine = Recording(
        name=name,
        note=note,
        folder="/workspace" if container else "/home/user/work",
        uid=0 if container else 1000,
        environment={"HOME": home, "PATH": "/usr/bin"},
    )
    numbers = {"root": 0, "user": 1000, "video": 44, "render": system.render}
    everyone = ("root" if container else "user", *groups)
    machine.groups.update({numbers[group]: group for group in everyone})
    machine.text("/etc/group", *(f"{group}:x:{number}:" for group, number in numbers.items()))
    machine.text(
        "/etc/os-release",
        f'PRETTY_NAME="{system.pretty}"',
        f"ID={system.name}",
        f'VERSION_ID="{system.version}"',
    )
    machine.text("/proc/sys/kernel/osrelease", system.kernel)
    machine.text("/proc/sys/kernel/random/boot_id", f"00000000-0000-4000-8000-{boot:012d}")
    image = f"BOOT_IMAGE=/boot/vmlinuz-{system.kernel}"
    machine.text("/proc/cmdline", f"{image} root=/dev/nvme0n1p2 ro {system.cmdline}")
    machine.text(
        "/proc/meminfo",
        f"MemTotal:       {memory} kB",
        f"MemFree:        {memory // 2} kB",
        f"MemAvailable:   {memory * 7 // 8} kB",
    )
    machine.text("/sys/devices/system/cpu/online", f"0-{cores - 1}")
    _add_cgroup(machine, system, container=container, limit=limit)
    filesystem = "overlay" if container else "ext4"
    machine.disk(machine.folder, total=1000 * GB, free=400 * GB, filesystem=filesystem)
    size = memory * KIB // 2 if shm is None else shm
    machine.disk("/dev/shm", total=size, free=size, filesystem="tmpfs")
    if container:
        machine.text("/.dockerenv")
    return machine


def half_of_memory(memory: int) -> int:
    """Return the bytes that the driver lets GPUs use of ``memory`` KiB, when not told otherwise."""
    return memory * KIB // 2


def load_driver(machine: Recording, *, dkms: str | None = None) -> None:
    """Load amdgpu; only AMD's own package of it says its version."""
    machine.text("/sys/module/amdgpu/initstate", "live")
    if dkms is not None:
        machine.text("/sys/module/amdgpu/version", dkms)


def install_rocm(machine: Recording, version: str, libraries: Sequence[str] = ()) -> None:
    """Install a ROCm for the whole system."""
    machine.link("/opt/rocm", f"/opt/rocm-{version}")
    machine.text(f"/opt/rocm-{version}/.info/version", version)
    if libraries:
        machine.names(f"/opt/rocm-{version}/lib", libraries)


def install_names(machine: Recording, chips: Sequence[Chip]) -> None:
    """Install libdrm's list of product names, as old or new as ``chips``."""
    rows = sorted((chip.device, chip.revision, chip.name) for chip in chips)
    machine.text(
        "/usr/share/libdrm/amdgpu.ids",
        "# List of AMDGPU IDs",
        "",
        "1.0.0",
        *(f"{device:04X},\t{revision:02X},\t{name}" for device, revision, name in rows),
    )


def _add_cgroup(machine: Recording, system: System, *, container: bool, limit: int | None) -> None:
    if system.cgroups == 1:
        machine.text("/proc/self/cgroup", f"9:memory:{SESSION}", f"1:name=systemd:{SESSION}")
        machine.text("/sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED_V1)
        machine.text(f"/sys/fs/cgroup/memory{SESSION}/memory.limit_in_bytes", UNLIMITED_V1)
        return
    here = "/" if container else SESSION
    machine.text("/proc/self/cgroup", f"0::{here}")
    folder = "/sys/fs/cgroup" + ("" if container else SESSION)
    machine.text(f"{folder}/memory.max", "max" if limit is None else str(limit))
