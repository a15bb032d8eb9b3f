"""What runs here: distribution, kernel, container, WSL2, driver."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocsteady.doctor.machine.recording import Entry, RecordedRoot, Recording
from rocsteady.doctor.machine.root import User
from rocsteady.doctor.machine.system import (
    WINDOWS,
    Driver,
    System,
    read_driver,
    read_system,
    relevant_words,
)
from rocsteady.doctor.machine.view import View

Files = dict[str, str | Entry]
NOTHING_KNOWN = System(
    os="linux",
    distribution="",
    kernel="",
    cmdline=(),
    iommu_active=None,
    container="",
    wsl=False,
    dxg=False,
    librocdxg="",
    boot_id="",
    as_root=None,
)


def view(
    files: Files,
    *,
    platform: str = "linux",
    user: User | None = None,
    environment: dict[str, str] | None = None,
) -> View:
    return View(
        RecordedRoot(
            Recording(
                version=1,
                note="",
                platform=platform,
                folder="/",
                files=files,
                environment=environment or {},
                user=user,
            )
        )
    )


def test_nothing_readable_is_nothing_known() -> None:
    assert read_system(view({})) == NOTHING_KNOWN


def test_a_linux_host() -> None:
    files: Files = {
        "/etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n',
        "/proc/sys/kernel/osrelease": "6.8.0-79-generic\n",
        "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=1 quiet iommu=pt amdgpu.gpu_recovery=1\n",
        "/sys/class/iommu": Entry(names=("ivhd0",)),
        "/proc/sys/kernel/random/boot_id": "b1\n",
        "/proc/1/cgroup": "0::/init.scope\n",
    }

    assert read_system(view(files, user=User(uid=1000, groups={}))) == System(
        os="linux",
        distribution="Ubuntu 24.04.3 LTS",
        kernel="6.8.0-79-generic",
        cmdline=("iommu=pt", "amdgpu.gpu_recovery=1"),
        iommu_active=True,
        container="",
        wsl=False,
        dxg=False,
        librocdxg="",
        boot_id="b1",
        as_root=False,
    )


def test_wsl2_is_known_by_its_kernel_its_device_and_the_bridge_to_it() -> None:
    found = read_system(
        view(
            {
                "/proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n",
                "/dev/dxg": "",
                "/opt/rocm": Entry(link="rocm-7.0.0"),
                "/opt/rocm-7.0.0/lib/librocdxg.so": "",
            }
        )
    )

    assert (found.wsl, found.dxg, found.librocdxg) == (True, True, "/opt/rocm/lib/librocdxg.so")


def test_an_iommu_class_without_members_is_an_iommu_that_is_off() -> None:
    assert read_system(view({"/sys/class/iommu": Entry(names=())})).iommu_active is False


def test_root_is_told() -> None:
    assert read_system(view({}, user=User(uid=0, groups={}))).as_root is True


@pytest.mark.parametrize(
    ("files", "environment", "kind"),
    [
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"container": "lxc"}, "lxc"),
        ({"/proc/1/cgroup": "4:memory:/kubepods/burstable/pod1\n"}, {}, "kubepods"),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, {}, ""),
    ],
)
def test_the_kind_of_container(files: Files, environment: dict[str, str], kind: str) -> None:
    assert read_system(view(files, environment=environment)).container == kind


def test_the_older_place_of_os_release_is_known() -> None:
    found = read_system(view({"/usr/lib/os-release": "PRETTY_NAME='Alpine Linux v3.20'\n"}))

    assert found.distribution == "Alpine Linux v3.20"


@pytest.mark.parametrize(
    ("files", "driver"),
    [
        ({}, Driver(loaded=False, version=None, kind="")),
        ({"initstate": "live\n"}, Driver(loaded=True, version=None, kind="in kernel")),
        ({"parameters/vm_size": "-1\n"}, Driver(loaded=True, version=None, kind="in kernel")),
        (
            {"initstate": "live\n", "version": "6.12.12\n"},
            Driver(loaded=True, version="6.12.12", kind="DKMS"),
        ),
        ({"initstate": "coming\n"}, Driver(loaded=False, version=None, kind="")),
    ],
    ids=["absent", "module", "built in", "DKMS", "being loaded"],
)
def test_driver(files: dict[str, str], driver: Driver) -> None:
    found = view({f"/sys/module/amdgpu/{name}": text for name, text in files.items()})

    assert read_driver(found) == driver


def test_words_of_the_command_line_that_name_disks_servers_and_people_are_dropped() -> None:
    line = (
        "root=/dev/sda1 nfsroot=10.0.0.1:/alice ip=dhcp amd_iommu=on iommu=pt pcie_aspm=off "
        "amdgpu.lockup_timeout=10000,10000 nomodeset pci=realloc=off modprobe.blacklist=nouveau "
        "amdgpu.x=/home/alice iommu=pt;rm"
    )

    assert relevant_words(line) == (
        "amd_iommu=on",
        "iommu=pt",
        "pcie_aspm=off",
        "amdgpu.lockup_timeout=10000,10000",
        "nomodeset",
        "pci=realloc=off",
        "modprobe.blacklist=nouveau",
    )


def test_windows_is_read_from_the_registry() -> None:
    files: Files = {
        f"{WINDOWS}/CurrentBuild": "26100",
        f"{WINDOWS}/ProductName": "Windows 11 Pro",
    }

    assert read_system(view(files, platform="win32")) == System(
        os="windows",
        distribution="Windows 11 Pro",
        kernel="10.0.26100",
        cmdline=(),
        iommu_active=None,
        container="",
        wsl=False,
        dxg=False,
        librocdxg="",
        boot_id="",
        as_root=None,
    )


@settings(derandomize=True, max_examples=80, deadline=None)
@given(st.text())
def test_no_command_line_is_too_strange_and_words_are_kept_as_they_are(line: str) -> None:
    assert set(relevant_words(line)) <= set(line.split())
