"""Memory of the machine, of its control groups in both versions, and of each process."""

from __future__ import annotations

import os
from pathlib import Path

from rocsteady.hangs.looking.cgroups import is_frozen
from rocsteady.hangs.looking.memory import GroupMemory, read_groups, read_memory

GROUP = "sys/fs/cgroup"


def put(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_version_2(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "proc/7/cgroup": "0::/user.slice/run\n",
            f"{GROUP}/user.slice/run/memory.max": "419430400\n",
            f"{GROUP}/user.slice/run/memory.current": "1000\n",
            f"{GROUP}/user.slice/run/memory.events": "low 0\nmax 3\noom 1\noom_kill 2\n",
        },
    )
    assert read_groups([7, 7], tmp_path) == (
        GroupMemory(
            folder=str(tmp_path / GROUP / "user.slice/run"),
            limit_bytes=419430400,
            used_bytes=1000,
            oom_kills=2,
        ),
    )


def test_a_group_that_does_not_count_memory_is_in_one_that_does(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "proc/7/cgroup": "0::/user.slice/scope/rocsteady-run\n",
            f"{GROUP}/user.slice/scope/memory.max": "max\n",
            f"{GROUP}/user.slice/scope/memory.events": "oom_kill 3\n",
            f"{GROUP}/user.slice/scope/rocsteady-run/cgroup.procs": "7\n",
        },
    )
    (group,) = read_groups([7], tmp_path)
    assert group.folder == str(tmp_path / GROUP / "user.slice/scope")
    assert group.oom_kills == 3


def test_version_1_beside_version_2(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "proc/7/cgroup": "4:memory:/job\n3:cpu,cpuacct:/\n0::/\n",
            f"{GROUP}/unified/cgroup.procs": "",
            f"{GROUP}/memory/job/memory.limit_in_bytes": "9223372036854771712\n",
            f"{GROUP}/memory/job/memory.usage_in_bytes": "2000\n",
            f"{GROUP}/memory/job/memory.oom_control": "under_oom 0\noom_kill 1\n",
        },
    )
    assert read_groups([7], tmp_path) == (
        GroupMemory(
            folder=str(tmp_path / GROUP / "memory/job"),
            limit_bytes=None,
            used_bytes=2000,
            oom_kills=1,
        ),
    )


def test_a_container_sees_its_own_group_at_the_top(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "proc/7/cgroup": "0::/../../system.slice/docker-abc.scope\n",
            f"{GROUP}/memory.max": "max\n",
            f"{GROUP}/memory.events": "oom_kill 0\n",
        },
    )
    (group,) = read_groups([7], tmp_path)
    assert (group.limit_bytes, group.used_bytes, group.oom_kills) == (None, None, 0)


def test_frozen_in_either_version(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "proc/7/cgroup": "0::/a\n",
            f"{GROUP}/a/cgroup.events": "populated 1\nfrozen 1\n",
            "proc/8/cgroup": "0::/b\n",
            f"{GROUP}/b/cgroup.events": "populated 1\nfrozen 0\n",
            "proc/9/cgroup": "6:freezer:/c\n",
            f"{GROUP}/freezer/c/freezer.state": "FROZEN\n",
        },
    )
    assert [is_frozen(pid, tmp_path) for pid in (7, 8, 9, 10)] == [True, False, True, False]


def test_this_machine_tells() -> None:
    memory = read_memory([os.getpid(), 2**22 - 1])

    assert memory.machine["MemTotal"] > memory.machine["MemAvailable"] > 0
    assert list(memory.processes) == [os.getpid()]
    assert memory.processes[os.getpid()]["VmRSS"] > 1_000_000
    assert memory.shared_total is not None


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    memory = read_memory([1], tmp_path)

    assert (memory.machine, memory.groups, memory.processes) == ({}, (), {})
    assert (memory.shared_total, memory.pressure) == (None, "")
