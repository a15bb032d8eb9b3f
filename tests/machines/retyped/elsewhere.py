"""Machines that are not native Linux: WSL2, and Windows itself."""

from __future__ import annotations

from collections.abc import Sequence

from retyped.chips import RX_9070_XT
from retyped.hardware import add_function
from retyped.recording import Recording
from retyped.systems import GB, install_rocm, start, ubuntu
from retyped.wheels import add_torch, add_venv

WSL_KERNEL = "6.6.87.2-microsoft-standard-WSL2"
AMD_TORCH = "2.9.1+rocm7.2.0.git7e1940d4"
ROCM_LIBRARIES = ("libamdhip64.so.7", "libhsa-runtime64.so.1", "librocblas.so.5")
HOST = (
    "/sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/00000000-0000-0000-0000-000000000001"
)
CONTROL = "/HKLM/SYSTEM/CurrentControlSet/Control/Class/{4d36e968-e325-11ce-bfc1-08002be10318}/0000"
WINDOWS = "/HKLM/SOFTWARE/Microsoft/Windows NT/CurrentVersion"


def wsl(
    name: str, note: str, *, boot: int, libraries: Sequence[str], torch: str = AMD_TORCH
) -> Recording:
    """Return a WSL2 with AMD's torch and a system ROCm that has these libraries."""
    machine = start(name, note, ubuntu("24.04", WSL_KERNEL), boot=boot, memory=32_768_000)
    machine.device("/dev/dxg", gid=0, mode="0666")
    path = f"{HOST}/pci5582:00/5582:00:00.0"
    add_function(machine, path, vendor=0x1414, device=0x008E, pci_class=0x030200, link=None)
    machine.names("/usr/lib/wsl/lib", ["libd3d12.so", "libd3d12core.so", "libdxcore.so"])
    install_rocm(machine, "7.2.0", libraries)
    add_venv(machine, torch, python="3.12.3")
    return machine


def wsl2() -> Recording:
    """One card behind WSL2 without the bridge that ROCm 7.2 needs, and two GPUs wanted of one."""
    note = (
        "Scenario: unslothai/unsloth#9729 and ROCm/librocdxg#34 (no /dev/kfd, /dev/dxg, no "
        "bridge). Of an RX 7900 XT nothing can be seen from inside. The torch build is one that "
        "users print; HIP_VISIBLE_DEVICES=0,1 and everything else is ours."
    )
    machine = wsl("wsl2", note, boot=31, libraries=ROCM_LIBRARIES)
    machine.environment["HIP_VISIBLE_DEVICES"] = "0,1"
    return machine


def wsl2_bridge() -> Recording:
    """Bridge present but not switched on; Ubuntu's older runtime lies in its way."""
    note = (
        "Scenario: unslothai/unsloth#9729, ROCm/librocdxg#34, andweng/wsl-rocm (Ubuntu's own "
        "libhsa-runtime64 and libhsakmt, 5.7, lie in front). Everything else is ours."
    )
    machine = wsl("wsl2-bridge", note, boot=32, libraries=[*ROCM_LIBRARIES, "librocdxg.so"])
    machine.names(
        "/usr/lib/x86_64-linux-gnu",
        ["libhsa-runtime64.so.1", "libhsa-runtime64.so.1.9.0", "libhsakmt.so.1"],
    )
    return machine


def windows(
    name: str, note: str, torch: str, variables: dict[str, str], *, more: str = ""
) -> Recording:
    """Return a Windows 11 with one RX 9070 XT; the registry is a tree of files."""
    venv = "C:/Users/user/venv"
    machine = Recording(
        name=name,
        note=note,
        platform="win32",
        folder="C:/Users/user/work",
        uid=None,
        environment={"USERPROFILE": "C:\\Users\\user", "VIRTUAL_ENV": venv, **variables},
    )
    machine.disk(machine.folder, total=1000 * GB, free=400 * GB, filesystem="NTFS")
    add_adapter(machine, CONTROL)
    machine.files.update(  # values, not lines: nothing follows them
        {f"{WINDOWS}/ProductName": "Windows 11 Pro", f"{WINDOWS}/CurrentBuild": "26100"}
    )
    machine.text(
        f"{venv}/pyvenv.cfg",
        "home = C:\\Users\\user\\AppData\\Local\\Programs\\Python\\Python312",
        "include-system-site-packages = false",
        "version = 3.12.10",
    )
    machine.names(f"{venv}/Scripts", ["python.exe"])
    add_torch(machine, f"{venv}/Lib/site-packages", torch, more=more)
    return machine


def add_adapter(machine: Recording, key: str) -> None:
    """Add an RX 9070 XT to the registry."""
    machine.files.update(
        {
            f"{key}/DriverDesc": RX_9070_XT.name,
            f"{key}/DriverVersion": "32.0.21025.1024",
            f"{key}/MatchingDeviceId": "PCI\\VEN_1002&DEV_7550&REV_C0",
            f"{key}/HardwareInformation.qwMemorySize": str(RX_9070_XT.vram),
        }
    )


def rx9070xt_windows() -> Recording:
    """One card under Windows itself."""
    note = (
        "Scenario and both variables: field note A of 2025 (Windows, RX 9070 XT, backward hangs). "
        "torch: the build of November 2025 that users of AMD's Windows wheels print (re-typed "
        "from a public copy without a stable address); the VRAM size is that of rocminfo in "
        "ROCm/TheRock#7712. Driver version, Windows build and everything else is ours."
    )
    variables = {"HSA_ENABLE_SDMA": "0", "HIP_LAUNCH_BLOCKING": "1"}
    return windows("rx9070xt-windows", note, "2.9.1+rocmsdk20251116", variables)


MACHINES = (wsl2, wsl2_bridge, rx9070xt_windows)
