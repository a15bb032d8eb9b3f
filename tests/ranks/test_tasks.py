"""One rocsteady for each rank, as srun and mpirun start it: the first of a host leads the others.

What mpirun does is done here: N processes with Open MPI's variables. Open MPI 4.1.4 and Slurm
22.05 themselves were tried by hand (docs/howto/torchrun.md).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from tests.integrations.test_torchrun import free_port

pytestmark = pytest.mark.slow
WITHIN = 150.0  # seconds
ROCSTEADY = (sys.executable, "-m", "rocsteady")
SCRIPT = """
    import os, signal, sys, threading, time
    if os.environ.get("FAULT") == "no torch, all fail":
        again = os.path.exists("faulted")
        time.sleep(1.0 if sys.argv[-1] == "1" else 3.0)
        open("faulted", "w").close()
        os._exit(0 if again else 3)
    if os.environ.get("FAULT") == "no torch":
        if sys.argv[-1] == "1":
            os._exit(3)
        time.sleep(6.0)
        print("rank 0 is done", flush=True)
        sys.exit()
    import torch
    import torch.distributed as dist
    from torch import nn

    rank, ranks = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    meet = f"tcp://127.0.0.1:{os.environ['PORT']}"
    fault = os.environ.get("FAULT", "")
    if fault == "alone":  # no ranks of one job
        net = nn.DataParallel(nn.Linear(8, 1))
        dist.barrier = lambda: None
    else:
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=ranks)
        net = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.Adam(net.parameters())
    if fault == "none, but a signal":  # a handler could end a wait, so not in the hang
        signal.signal(signal.SIGUSR1, lambda *_: os.write(1, f"rank {rank} heard it\\n".encode()))
    first = 0
    if os.path.exists("ckpt.pt"):
        saved = torch.load("ckpt.pt")
        net.module.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    os.write(1, f"rank {rank} begins at {first} {sys.argv[1:]}\\n".encode())
    for step in range(first, 60):
        strikes = step == 45 and rank == 1 and fault[:4] not in ("", "none")
        if strikes and not os.path.exists("faulted"):
            open("faulted", "w").close()
            if fault == "hang":
                lock = threading.Lock()
                lock.acquire()
                lock.acquire()
            if fault == "exit":
                os._exit(3)
            if fault == "error":
                raise ValueError("bad sample")
            os.kill(os.getpid(), 9)
        optimizer.zero_grad()
        net(torch.randn(8, 8)).pow(2).mean().backward()
        optimizer.step()
        time.sleep(0.05)
        if (step + 1) % 20 == 0:
            if rank == 0:
                state = {"net": net.module.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "step": step + 1}, "ckpt.tmp")
                os.replace("ckpt.tmp", "ckpt.pt")
            dist.barrier()
    os.write(1, f"rank {rank} is done\\n".encode())
    if dist.is_initialized():
        dist.destroy_process_group()
"""


class Tasks:
    """The tasks of one launch, on one host or more."""

    def __init__(
        self, folder: Path, command: list[str], fault: str, hosts: int, launcher: list[str]
    ) -> None:
        self.folder, self._port = folder, free_port()
        self.processes = [
            subprocess.Popen(
                [*launcher, *ROCSTEADY, "run", "--plain", "--", *command, *own],
                cwd=folder,
                env=self._environment(rank, hosts, fault),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                process_group=0,
            )
            for rank, own in enumerate([["--task", "0"], ["--task", "1"]] * hosts)
        ]

    def _environment(self, rank: int, hosts: int, fault: str) -> dict[str, str]:
        host, local = divmod(rank, 2)
        state = self.folder / f"state-{host}"
        return {
            **os.environ,
            "PORT": str(self._port),
            "FAULT": fault,
            "XDG_STATE_HOME": str(state),
            "PMIX_NAMESPACE": f"{self.folder} {host}",  # two hosts of one machine do not meet
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": str(2 * hosts),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(local),
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        }

    def until_they_train(self) -> None:
        deadline = time.monotonic() + WITHIN
        while not (self.folder / "ckpt.pt").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def ended(self) -> tuple[list[int], str]:
        out = [process.communicate(timeout=WITHIN)[0] for process in self.processes]
        return [process.returncode for process in self.processes], "".join(out)


Launch = Callable[..., Tasks]


@pytest.fixture
def launch(tmp_path: Path, torch_python: str) -> Iterator[Launch]:
    script = tmp_path / "train.py"
    script.write_text("\n".join(line.removeprefix("    ") for line in SCRIPT.split("\n")))
    launched: list[Tasks] = []

    def start(fault: str = "", hosts: int = 1, launcher: Sequence[str] = ()) -> Tasks:
        command = [torch_python, str(script)]
        launched.append(Tasks(tmp_path, command, fault, hosts, [*launcher]))
        return launched[-1]

    yield start
    for process in (each for tasks in launched for each in tasks.processes):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def left(folder: Path) -> list[str]:
    """Name the processes that still run the script of this folder."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            if f"{folder}/train.py".encode() in command.read_bytes():
                found.append(command.parent.name)
    return found


def line_of(text: str) -> int:
    """Return the first line of the script with this text."""
    return [line.strip() for line in SCRIPT.split("\n")].index(text) + 1


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("kill", "crashed  step 45 · the process was killed (SIGKILL) on rank 1"),
        ("exit", "crashed  step 45 · exit code 3, no error message on rank 1"),
        pytest.param(
            "hang",
            "hung     step 45 · rank 1 is waiting for a lock at train.py:",
            marks=pytest.mark.ci,
        ),
    ],
)
def test_all_ranks_of_a_host_are_restarted_in_place(
    launch: Launch, tmp_path: Path, fault: str, said: str
) -> None:
    codes, out = launch(fault).ended()

    assert codes == [0, 0], out
    assert said in out
    begun = sorted(line for line in out.splitlines() if " begins at " in line)
    assert begun == [  # each with its own words, and all in the same step
        f"rank {rank} begins at {first} ['--task', '{rank}']"
        for rank in (0, 1)
        for first in (0, 40)
    ]
    assert not left(tmp_path)
    assert len(list(tmp_path.glob(".rocsteady/runs/*"))) == 1  # one run, and one story


def test_an_error_of_one_rank_ends_them_all(launch: Launch, tmp_path: Path) -> None:
    codes, out = launch("error").ended()

    assert codes == [1, 1]
    line = line_of('raise ValueError("bad sample")')
    assert f"crashed  ValueError: bad sample on rank 1 at train.py:{line} (your script" in out
    assert not left(tmp_path)


@pytest.mark.parametrize("fault", ["alone", "no torch"])
def test_trainings_that_have_nothing_to_do_with_each_other_are_not_ended(
    launch: Launch, fault: str
) -> None:
    codes, out = launch(fault).ended()

    assert codes == [76, 76], out
    assert "rank 0 is done" in out
    assert "the tasks trained on their own, and rank 1 failed" in out


def test_ranks_that_fail_together_are_those_of_one_job(launch: Launch) -> None:
    _, out = launch("no torch, all fail").ended()

    assert "trained on their own" not in out
    assert "exit code 3" in out


@pytest.mark.parametrize(("whom", "expected"), [(0, [-9, 75]), (1, [75, -9])])
def test_a_task_that_is_killed_ends_the_others(
    launch: Launch, tmp_path: Path, whom: int, expected: list[int]
) -> None:
    tasks = launch()
    tasks.until_they_train()
    tasks.processes[whom].kill()

    codes, out = tasks.ended()

    assert codes == expected, out
    deadline = time.monotonic() + 20.0  # the guard looks now and then
    while left(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left(tmp_path)


def test_a_launcher_that_is_killed_takes_its_tasks_along(launch: Launch, tmp_path: Path) -> None:
    tasks = launch(launcher=["/bin/sh", "-c", '"$@" & wait', "sh"])
    tasks.until_they_train()
    tasks.processes[0].kill()

    deadline = time.monotonic() + 30.0
    while left(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left(tmp_path)
    assert (tmp_path / "ckpt.pt").exists()


@pytest.mark.parametrize("whom", [slice(0, 1), slice(None)])
def test_sigterm_ends_all_ranks_in_order(launch: Launch, tmp_path: Path, whom: slice) -> None:
    tasks = launch()
    tasks.until_they_train()
    for process in tasks.processes[whom]:
        process.terminate()

    codes, out = tasks.ended()

    assert codes == [143, 143], out
    assert "To continue: rocsteady run --resume" in out
    assert not left(tmp_path)


def test_what_a_scheduler_sends_to_all_tasks_reaches_each_rank(launch: Launch) -> None:
    tasks = launch("none, but a signal")
    tasks.until_they_train()
    for process in tasks.processes:
        process.send_signal(signal.SIGUSR1)

    codes, out = tasks.ended()

    assert codes == [0, 0], out
    assert [out.count(f"rank {rank} heard it") for rank in (0, 1)] == [1, 1]


def end_as_srun(tasks: Tasks) -> None:
    """Wait for the first task to end, and end the others: srun --kill-on-bad-exit=1 does."""
    deadline = time.monotonic() + WITHIN
    while all(process.poll() is None for process in tasks.processes):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for process in tasks.processes:
        process.terminate()


def test_an_error_of_the_script_is_not_hidden_by_hosts_that_are_ended_for_it(
    launch: Launch,
) -> None:
    tasks = launch("error", hosts=2)
    end_as_srun(tasks)

    codes, out = tasks.ended()

    assert codes[:2] == [76, 76], out  # srun ends with the highest of all
    assert set(codes[2:]) <= {75, 76}, out


@pytest.mark.parametrize("fault", ["kill", "hang"])
def test_on_several_hosts_the_launcher_restarts_the_job(
    launch: Launch, tmp_path: Path, fault: str
) -> None:
    tasks = launch(fault, hosts=2)
    end_as_srun(tasks)

    codes, out = tasks.ended()

    assert codes == [75, 75, 75, 75], out
    assert "its ranks on other hosts can only be restarted by the scheduler" in out
    again, out = launch("", hosts=2).ended()
    assert again == [0, 0, 0, 0], out
    assert out.count("begins at 40") == 4
    assert not left(tmp_path)
