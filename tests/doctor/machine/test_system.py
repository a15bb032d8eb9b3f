"""What runs here: distribution, kernel, container, WSL2, driver."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rocsteady.doctor.machine.recording import RecordedPath
from rocsteady.doctor.machine.system import (
    WINDOWS,
    Driver,
    Limits,
    SetVariable,
    System,
    cgroup_paths,
    listed,
    read_driver,
    read_limits,
    read_system,
    read_variables,
    relevant_words,
)
from rocsteady.system.root import Disk, User
from tests.doctor.machine.recorded_files import Files, view_of

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
)


def test_nothing_readable_is_nothing_known() -> None:
    assert read_system(view_of({})) == NOTHING_KNOWN


def test_a_linux_host() -> None:
    files: Files = {
        "/etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n',
        "/proc/sys/kernel/osrelease": "6.8.0-79-generic\n",
        "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=1 quiet iommu=pt amdgpu.gpu_recovery=1\n",
        "/sys/class/iommu": RecordedPath(names=("ivhd0",)),
        "/proc/sys/kernel/random/boot_id": "b1\n",
        "/proc/1/cgroup": "0::/init.scope\n",
    }

    assert read_system(view_of(files, user=User(uid=1000, groups={}))) == replace(
        NOTHING_KNOWN,
        distribution="Ubuntu 24.04.3 LTS",
        kernel="6.8.0-79-generic",
        cmdline=("iommu=pt", "amdgpu.gpu_recovery=1"),
        iommu_active=True,
        boot_id="b1",
    )


def test_wsl2_is_known_by_its_kernel_its_device_and_the_bridge_to_it() -> None:
    found = read_system(
        view_of(
            {
                "/proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n",
                "/dev/dxg": "",
                "/opt/rocm": RecordedPath(link="rocm-7.0.0"),
                "/opt/rocm-7.0.0/lib/librocdxg.so": "",
            }
        )
    )

    assert (found.wsl, found.dxg, found.librocdxg) == (True, True, "/opt/rocm/lib/librocdxg.so")


@pytest.mark.parametrize(
    "place",
    [
        "/home/u/venv/lib/python3.12/site-packages/_rocm_sdk_core/lib/librocdxg.so.1",
        "/opt/rocm/core-10.0/lib/librocdxg.so",
    ],
)
def test_the_bridge_of_a_wheel_and_of_a_newer_package_is_found(place: str) -> None:
    sites = ("/home/u/venv/lib/python3.12/site-packages",)

    assert read_system(view_of({place: ""}), sites).librocdxg == place


def test_an_iommu_class_without_members_is_an_iommu_that_is_off() -> None:
    assert read_system(view_of({"/sys/class/iommu": RecordedPath(names=())})).iommu_active is False


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
    assert read_system(view_of(files, environment=environment)).container == kind


def test_the_older_place_of_os_release_is_known() -> None:
    found = read_system(view_of({"/usr/lib/os-release": "PRETTY_NAME='Alpine Linux v3.20'\n"}))

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
    found = view_of({f"/sys/module/amdgpu/{name}": text for name, text in files.items()})

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
    files: Files = {f"{WINDOWS}/CurrentBuild": "26100", f"{WINDOWS}/ProductName": "Windows 11 Pro"}

    assert read_system(view_of(files, platform="win32")) == replace(
        NOTHING_KNOWN, os="windows", distribution="Windows 11 Pro", kernel="10.0.26100"
    )


@settings(derandomize=True, max_examples=80, deadline=None)
@given(st.text())
def test_no_command_line_is_too_strange_and_words_are_kept_as_they_are(line: str) -> None:
    assert set(relevant_words(line)) <= set(line.split())


GIB = 1024**3


def limits(files: Files, *, platform: str = "linux", folder: str = "/work") -> Limits:
    return read_limits(view_of(files, platform=platform, folder=folder))


def in_groups(cgroup: str, **groups: str) -> int | None:
    """Return the limit found by a process in ``cgroup``; a group is named by its path."""
    files: Files = {"/proc/self/cgroup": cgroup}
    return limits(
        files | {f"/sys/fs/cgroup{path}": text for path, text in groups.items()}
    ).memory_limit


def test_memory_and_file_systems_are_read() -> None:
    shared = Disk(total=64, free=60, filesystem="tmpfs", writable=True)
    work = Disk(total=1000, free=10, filesystem="ext4", writable=True)
    meminfo = "MemTotal:       65536 kB\nMemFree:  1 kB\nMemAvailable:    1024 kB\n"

    assert limits(
        {
            "/proc/meminfo": meminfo,
            "/dev/shm": RecordedPath(disk=shared),
            "/work": RecordedPath(disk=work),
        }
    ) == Limits(
        memory_total=65536 * 1024,
        memory_limit=None,
        shared_memory=shared,
        folder=work,
    )


def test_no_limit_is_known_where_nothing_is_readable() -> None:
    assert limits({}) == Limits(
        memory_total=None, memory_limit=None, shared_memory=None, folder=None
    )


def test_windows_has_no_shared_memory_file_system() -> None:
    shared = Disk(total=64, free=60, filesystem="tmpfs", writable=True)

    found = limits({"/dev/shm": RecordedPath(disk=shared)}, platform="win32", folder="C:/work")

    assert found.shared_memory is None


def test_a_tighter_limit_further_up_counts() -> None:
    groups = {
        "/a/memory.max": f"{2 * GIB}\n",
        "/a/b/memory.max": "max\n",
        "/a/b/c/memory.max": f"{4 * GIB}\n",
    }

    assert in_groups("0::/a/b/c\n", **groups) == 2 * GIB


SLURM = "12:cpuset:/\n9:hugetlb,memory:/slurm/job_7\n1:name=systemd:/\n"
V1 = "memory.limit_in_bytes"


@pytest.mark.parametrize(
    ("cgroup", "file", "text", "limit"),
    [
        pytest.param("0::/job\n", "/job/memory.max", f"{8 * GIB}\n", 8 * GIB, id="own group"),
        pytest.param("0::/job\n", "/job/memory.max", "max\n", None, id="max is no limit"),
        pytest.param("0::/\n", "/memory.max", f"{GIB}\n", GIB, id="a container's root"),
        pytest.param(SLURM, f"/memory/slurm/job_7/{V1}", f"{3 * GIB}\n", 3 * GIB, id="version 1"),
        pytest.param("4:memory:/\n", f"/memory/{V1}", f"{2**63 - 4096}\n", None, id="v1: none"),
        pytest.param("4:memory:/docker/01\n", f"/memory/{V1}", "5\n", 5, id="v1: from the host"),
    ],
)
def test_the_limit_of_a_group(cgroup: str, file: str, text: str, limit: int | None) -> None:
    assert in_groups(cgroup, **{file: text}) == limit


@pytest.mark.parametrize("text", ["-1", "1_000", "0x", "1e9", "", "12 34", "١٢"])
def test_a_limit_that_is_no_number_is_none(text: str) -> None:
    assert in_groups("0::/job\n", **{"/job/memory.max": text}) is None


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("0::/user.slice/a\n", ("/user.slice/a", None)),
        ("0::/\n4:memory:/x\n", ("", "/x")),
        ("4:cpu,memory:/x:y\n", (None, "/x:y")),
        ("0::/../../etc\n4:memory:/../..\n", (None, None)),
        ("0::relative\n", (None, None)),
        (f"0::{'/a' * 30_000}\n", (None, None)),
        ("garbage", (None, None)),
        ("", (None, None)),
    ],
)
def test_cgroup_paths(text: str, paths: tuple[str | None, str | None]) -> None:
    assert cgroup_paths(text) == paths


@settings(derandomize=True, max_examples=80, deadline=None)
@given(
    cgroup=st.text(max_size=60) | st.from_regex(r"(0::|4:memory:)(/[a.]{0,3}){0,5}\n"),
    limit=st.text(max_size=30),
    meminfo=st.text(max_size=60) | st.from_regex(r"MemTotal: {1,4}[0-9]{0,25} kB"),
)
def test_no_cgroup_file_is_too_strange(cgroup: str, limit: str, meminfo: str) -> None:
    found = limits(
        {
            "/proc/self/cgroup": cgroup,
            "/proc/meminfo": meminfo,
            "/sys/fs/cgroup/memory.max": limit,
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": limit,
        }
    )

    assert found.memory_limit is None or found.memory_limit >= 0


KNOWN = {"HSA_OVERRIDE_GFX_VERSION", "OMP_NUM_THREADS"}


def test_listed_variables_keep_their_values_and_come_by_name() -> None:
    environment = {"OMP_NUM_THREADS": "8", "HSA_OVERRIDE_GFX_VERSION": "10.3.0"}

    assert read_variables(environment, KNOWN) == (
        SetVariable(name="HSA_OVERRIDE_GFX_VERSION", value="10.3.0"),
        SetVariable(name="OMP_NUM_THREADS", value="8"),
    )


def test_the_value_of_an_unlisted_one_of_our_families_is_not_kept() -> None:
    assert read_variables({"HIP_SECRET": "hunter2"}, KNOWN) == (
        SetVariable(name="HIP_SECRET", value=None),
    )


def test_everything_else_is_left_out_whole() -> None:
    assert read_variables({"HF_TOKEN": "hf_x", "PATH": "/bin", "HIPSTER": "1"}, KNOWN) == ()


def test_the_form_for_one_node_is_listed_with_the_form_for_all() -> None:
    assert read_variables({"HSA_OVERRIDE_GFX_VERSION_1": "11.0.0"}, KNOWN) == (
        SetVariable(name="HSA_OVERRIDE_GFX_VERSION_1", value="11.0.0"),
    )
    assert not listed("HSA_OVERRIDE_GFX_VERSION_X", KNOWN)
