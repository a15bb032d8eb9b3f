"""Stock torchrun with rocsteady's rendezvous: chosen by a variable, by ``run``, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

import rocsteady_train
from supervised import Project

pytestmark = pytest.mark.slow
WITHIN = 150.0
LOGS = ("--log-dir", "logs")  # torchrun leaves its folder there, and not in TMPDIR
RANKS = (*LOGS, "--nproc-per-node", "2", "--max-restarts", "3")
# Rank 1 of the first generation is killed; the next one must meet at an address of its own.
TRAIN = """
    import os, signal, torch
    import torch.distributed as dist
    from torch import nn
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    generation, port = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["MASTER_PORT"]
    net = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(10):
        net(torch.ones(2, 8)).mean().backward(); optimizer.step()
        if (step, dist.get_rank(), generation) == (5, 1, "0"):
            print("port", port, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    if dist.get_rank() == 1:
        print("generation", generation, "port", port, flush=True)
        print("shared", os.environ["TORCHELASTIC_USE_AGENT_STORE"], flush=True)
    dist.destroy_process_group()
"""


@pytest.fixture
def beside_torch(tmp_path: Path) -> str:
    """Return a folder that is to PYTHONPATH what pip installs beside torch."""
    folder = tmp_path / "beside"
    about = folder / "rocsteady_train.dist-info"
    about.mkdir(parents=True)
    (folder / "rocsteady_train").symlink_to(Path(rocsteady_train.__file__).parent)
    for name in ("METADATA", "entry_points.txt"):
        (about / name).write_text(distribution("rocsteady-train").read_text(name) or "")
    return str(folder)


def launched(python: str, folder: Path, script: str, **more: str) -> tuple[int, list[str], str]:
    """Start torchrun itself; return its code, what ranks printed, and what it complained of."""
    done = subprocess.run(
        [python, "-m", "torch.distributed.run", *RANKS, script],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **more},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.ci
def test_one_variable_gives_each_generation_a_store(
    project: Project, torch_python: str, beside_torch: str
) -> None:
    chosen = {"PET_RDZV_BACKEND": "rocsteady", "PYTHONPATH": beside_torch, "ROCSTEADY_RUN": "t"}

    code, out, err = launched(torch_python, project.folder, project.script(TRAIN), **chosen)

    assert (code, out[2:]) == (0, ["shared False"]), err
    first, second = out[0].split(), out[1].split()
    assert second[:2] == ["generation", "1"]
    assert first[-1] != second[-1]  # another port


def test_an_unknown_version_is_named(
    project: Project, torch_python: str, beside_torch: str
) -> None:
    script = project.script(
        """
        import torch.distributed.elastic.rendezvous
        from rocsteady_train.integrations.torchrun import _check_version
        for version in ("2.13.0+rocm7.2", "2.13.1", "2.5.1", "3.0.0a0+git", "odd"):
            _check_version(version)
        """
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": beside_torch}

    said = subprocess.run(
        [torch_python, script],
        env=environment,
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=WITHIN,
    ).stderr.splitlines()

    assert [line.split()[2] for line in said] == ["2.5.1", "3.0.0a0+git", "odd"]
    assert "unset PET_RDZV_BACKEND" in said[0]


@pytest.mark.ci
def test_run_chooses_it_without_rocsteady_beside_torch(project: Project, torch_python: str) -> None:
    torchrun = (torch_python, "-m", "torch.distributed.run", *RANKS)

    ended = project.run("--", *torchrun, project.script(TRAIN), within=WITHIN)

    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[2:] == ["shared False"]
    assert not [line for line in ended.said if "rendezvous" in line]


def test_the_users_own_rendezvous_is_used(project: Project, torch_python: str) -> None:
    script = project.script(
        "import os, sys; print(os.environ['TORCHELASTIC_USE_AGENT_STORE'], len(sys.argv))"
    )
    torchrun = (torch_python, "-m", "torch.distributed.run", *LOGS, "--rdzv-backend=c10d")

    ended = project.run("--", *torchrun, script, "--rdzv-backend", within=WITHIN)

    assert (ended.code, ended.out) == (0, "False 2\n")
    assert "torchrun uses the rendezvous that you chose: c10d." in ended.said


def test_a_single_process_loads_none_of_it(project: Project, torch_python: str) -> None:
    script = project.script(
        """
        import sys, torch
        net = torch.nn.Linear(2, 1); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.ones(2)).sum().backward(); optimizer.step()
        print([name for name in sys.modules
               if name.startswith(("_rocsteady_inside.torchrun", "_rocsteady_inside.launcher",
                                   "rocsteady", "torch.distributed.elastic"))])
        """
    )

    ended = project.run("--", torch_python, script, within=WITHIN)

    assert (ended.code, ended.out) == (0, "[]\n")


def run_beside(
    folder: str, python: str, project: Project, text: str
) -> subprocess.CompletedProcess[str]:
    """Run a script with what lies in a folder."""
    return subprocess.run(
        [python, project.script(text)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": folder},
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN,
    )


SIGNS_OF_LIFE = """
    import torch.distributed as dist
    from rocsteady_train.integrations import torchrun_channels
    from rocsteady_train.integrations.torchrun import Rendezvous

    class Alone:
        def num_nodes_waiting(self): return 0

    class Flaky(dist.HashStore):
        fails = False
        def add(self, key, amount):
            if self.fails: raise RuntimeError("connection reset")
            return super().add(key, amount)

    store, clock = Flaky(), [0.0]
    handler = Rendezvous(Alone(), hosts=2, watched=False)  # it has no watcher
    channel = torchrun_channels.HostChannel(store, 1, 2)
    handler._hangs = torchrun_channels.HangChannel(channel, lambda: clock[0])
    for minute in range(6):
        clock[0] += torchrun_channels.BEAT
        store.fails = minute in (2, 3)
        assert handler.num_nodes_waiting() == 0
    store.fails = False
    print(channel.count("alive.1", 0))
"""


def test_a_host_without_a_watcher_gives_signs_of_life_and_survives_faults_of_the_store(
    project: Project, torch_python: str, beside_torch: str
) -> None:
    done = run_beside(beside_torch, torch_python, project, SIGNS_OF_LIFE)

    assert done.stdout == "4\n", done.stderr
    assert done.stderr.count("may not be found: RuntimeError('connection reset')") == 1


CLOCK_BEHIND = """
    from torch.distributed.elastic.rendezvous.api import RendezvousInfo
    from rocsteady_train.integrations.torchrun import Rendezvous

    class OneLeft:
        def next_rendezvous(self): return RendezvousInfo(None, 0, 1, None)

    for hosts, fewest in ((1, 1), (4, 4), (4, 1)):
        handler = Rendezvous(OneLeft(), hosts=hosts, watched=False, fewest=fewest)
        print(handler.next_rendezvous().world_size)
"""


def test_no_job_of_a_fixed_size_starts_with_fewer_hosts(
    project: Project, torch_python: str, beside_torch: str
) -> None:
    done = run_beside(beside_torch, torch_python, project, CLOCK_BEHIND)

    assert done.stdout.split() == ["1", "4", "1"], done.stderr  # the last may have 1 to 4 hosts
    assert done.stderr.count("1 of 4 hosts seem to be alive") == 1
