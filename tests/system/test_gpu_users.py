"""A reset of a GPU is proposed only if nobody holds it, or it cannot be known who does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocsteady.system.gpu_users import GpuUsers, find_gpu_users, reset_advice

if sys.platform != "linux":
    pytest.skip("KFD and /proc are of Linux", allow_module_level=True)

TROUBLE = "amdgpu 0000:0b:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1"
COMMAND = "sudo amd-smi reset --gpureset --gpu 0000:0b:00.0"


def process(proc: Path, pid: int, name: str, *opened: str) -> None:
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "comm").write_text(f"{name}\n")
    for number, target in enumerate(opened):
        (proc / str(pid) / "fd" / str(number)).symlink_to(target)


def test_who_computes_and_who_draws_is_found(tmp_path: Path) -> None:
    proc, kfd = tmp_path / "proc", tmp_path / "kfd"
    process(proc, 7, "bash", "/dev/null", "/dev/pts/1")
    process(proc, 8, "gnome-shell", "/dev/null", "/dev/dri/card0")
    process(proc, 9, "python", "/dev/kfd")
    (kfd / "4410").mkdir(parents=True)  # another container's: not in this /proc

    users = find_gpu_users(proc, kfd)

    assert [pid for pid, _ in users.holders] == [8, 9, 4410]
    assert (users.seen, users.unseen) == (3, 0)
    assert COMMAND not in reset_advice(users, TROUBLE)
    assert "gnome-shell" in reset_advice(users, TROUBLE)


def test_a_gpu_that_nobody_holds_may_be_reset(tmp_path: Path) -> None:
    process(tmp_path / "proc", 7, "bash", "/dev/null")

    users = find_gpu_users(tmp_path / "proc", tmp_path / "none")

    assert users == GpuUsers((), 1, 0)
    assert reset_advice(users, TROUBLE).endswith(COMMAND)
    assert reset_advice(users, "ring").endswith("--gpu <number>")


def test_what_could_not_be_seen_is_said_before_the_command() -> None:
    advice = reset_advice(GpuUsers((), 20, 3), TROUBLE)

    assert advice.index("fuser") < advice.index(COMMAND)


def test_the_processes_of_this_machine_are_looked_at() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:  # noqa: S607
        users = find_gpu_users()
        child.kill()

    assert users.seen >= 2
    assert os.getpid() not in dict(users.holders)
