"""Which task of srun, mpirun or flux a process is, by the variables that each of them sets."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from rocsteady.errors import LauncherError
from rocsteady.system.tasks import Task, leave, listening, meeting_place, task_here

OPEN_MPI = {  # mpirun 4.1.4 -n 4 over two hosts; within Slurm it starts its helpers by srun
    "PMIX_NAMESPACE": "2712797185",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
BATCH_SHELL = {  # of `sbatch --ntasks=20`, before any srun (22.05)
    "SLURM_JOB_ID": "7",
    "SLURM_NTASKS": "20",
    "SLURM_TASKS_PER_NODE": "8(x2),4",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
}
SLURM = {
    **BATCH_SHELL,
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "20",
    "SLURM_STEP_TASKS_PER_NODE": "8(x2),4",
    "SLURM_PROCID": "17",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
}
FLUX = {
    "FLUX_JOB_ID": "f3x",
    "FLUX_TASK_RANK": "9",
    "FLUX_JOB_SIZE": "16",
    "FLUX_TASK_LOCAL_ID": "1",
    "FLUX_JOB_NNODES": "2",
}


@pytest.mark.parametrize(
    ("variables", "task"),
    [
        (OPEN_MPI, Task("2712797185", 3, 4, 1, 2)),
        (
            {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "1(x2)", **OPEN_MPI},
            Task("2712797185", 3, 4, 1, 2),
        ),
        (MPICH, Task(f"below {os.getppid()}", 1, 2, 1, 2)),
        (SLURM, Task("7.0", 17, 20, 1, 4)),
        ({**SLURM, "SLURM_NODEID": "1"}, Task("7.0", 17, 20, 1, 8)),
        (FLUX, Task("f3x", 9, 16, 1, 8)),
    ],
)
def test_a_task_knows_its_place(variables: dict[str, str], task: Task) -> None:
    assert task_here(variables) == task
    assert task.several_hosts is (variables is not MPICH)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        BATCH_SHELL,
        {**SLURM, "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"},
        {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
    ],
)
def test_what_is_alone_on_its_host_is_no_task(variables: dict[str, str]) -> None:
    assert task_here(variables) is None


def test_tasks_meet_only_where_nobody_else_can_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    task = Task("7.0", 0, 2, 0, 2)
    folder = meeting_place(task).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.parent == short
    assert meeting_place(task._replace(job="7.1")).parent != folder

    folder.chmod(0o755)
    with pytest.raises(LauncherError, match="somebody else's"):
        meeting_place(task)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(LauncherError, match="somebody else's"):
        meeting_place(task)
    shutil.rmtree(short)
    assert meeting_place(task).parent.parent == Path(tempfile.gettempdir())  # of a login node
    leave(task)


def test_the_path_of_a_socket_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    task = Task("7.0", 0, 2, 0, 2)
    listening(task).close()
    leave(task)
