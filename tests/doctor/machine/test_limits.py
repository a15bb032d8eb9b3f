"""The smallest limit on the way up counts; "none" is none; no path leads out of the hierarchy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocsteady.doctor.machine.recording import Entry, RecordedRoot, Recording
from rocsteady.doctor.machine.root import Disk
from rocsteady.doctor.machine.system import Limits, cgroup_paths, read_limits
from rocsteady.doctor.machine.view import View

GIB = 1024**3


def limits(
    files: dict[str, str | Entry], *, platform: str = "linux", folder: str = "/work"
) -> Limits:
    recording = Recording(
        version=1, note="", platform=platform, folder=folder, files=files, environment={}
    )
    return read_limits(View(RecordedRoot(recording)))


def in_groups(cgroup: str, **groups: str) -> int | None:
    """Return the limit found by a process in ``cgroup``; a group is named by its path."""
    files: dict[str, str | Entry] = {"/proc/self/cgroup": cgroup}
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
            "/dev/shm": Entry(disk=shared),
            "/work": Entry(disk=work),
        }
    ) == Limits(
        memory_total=65536 * 1024,
        memory_available=1024 * 1024,
        memory_limit=None,
        shared_memory=shared,
        folder=work,
    )


def test_nothing_readable_is_nothing_known() -> None:
    assert limits({}) == Limits(
        memory_total=None,
        memory_available=None,
        memory_limit=None,
        shared_memory=None,
        folder=None,
    )


def test_windows_has_no_shared_memory_file_system() -> None:
    shared = Disk(total=64, free=60, filesystem="tmpfs", writable=True)

    found = limits({"/dev/shm": Entry(disk=shared)}, platform="win32", folder="C:/work")

    assert found.shared_memory is None


def test_version_2_limit_of_the_own_group() -> None:
    assert in_groups("0::/job\n", **{"/job/memory.max": f"{8 * GIB}\n"}) == 8 * GIB


def test_a_tighter_limit_further_up_counts() -> None:
    groups = {
        "/a/memory.max": f"{2 * GIB}\n",
        "/a/b/memory.max": "max\n",
        "/a/b/c/memory.max": f"{4 * GIB}\n",
    }

    assert in_groups("0::/a/b/c\n", **groups) == 2 * GIB


def test_max_is_no_limit() -> None:
    assert in_groups("0::/job\n", **{"/job/memory.max": "max\n"}) is None


def test_a_container_sees_its_own_group_as_the_root() -> None:
    assert in_groups("0::/\n", **{"/memory.max": f"{GIB}\n"}) == GIB


def test_version_1_limit() -> None:
    cgroup = "12:cpuset:/\n9:hugetlb,memory:/slurm/job_7\n1:name=systemd:/\n"
    groups = {"/memory/slurm/job_7/memory.limit_in_bytes": f"{3 * GIB}\n"}

    assert in_groups(cgroup, **groups) == 3 * GIB


def test_version_1_writes_a_huge_number_for_none() -> None:
    groups = {"/memory/memory.limit_in_bytes": "9223372036854771712\n"}

    assert in_groups("4:memory:/\n", **groups) is None


def test_version_1_in_a_container_climbs_from_the_path_of_the_host_to_its_own_root() -> None:
    groups = {"/memory/memory.limit_in_bytes": f"{5 * GIB}\n"}

    assert in_groups("4:memory:/docker/0123\n", **groups) == 5 * GIB


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
