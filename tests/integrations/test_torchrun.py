"""Stock torchrun with rocsteady's rendezvous: chosen by a variable, by ``run``, or not at all."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

import rocsteady_train
from supervised import Project

from rocsteady.run.engines.plain_command import without_own_restarts

pytestmark = pytest.mark.slow
WITHIN = 150.0
LOGS = ("--log-dir", "logs")  # torchrun leaves its folder there, and not in TMPDIR
RANKS = (*LOGS, "--nproc-per-node", "2", "--max-restarts", "3")
# Rank 1 of the first generation is killed; the next one must meet at an address of its own.
TRAIN = """
    import os, pathlib, signal, torch
    import torch.distributed as dist
    from torch import nn
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    generation, port = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["MASTER_PORT"]
    net = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(10):
        net(torch.ones(2, 8)).mean().backward(); optimizer.step()
        if (step, dist.get_rank()) == (5, 1) and not os.path.exists("killed"):
            pathlib.Path("killed").touch()
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


def test_the_key_of_a_job_does_not_reach_a_rank_of_one_host(
    project: Project, torch_python: str, beside_torch: str
) -> None:
    script = project.script(  # one write each: two ranks share the pipe
        "import os\nos.write(1, f'key: {\"ROCSTEADY_JOB_KEY\" in os.environ}\\n'.encode())"
    )
    chosen = {"PET_RDZV_BACKEND": "rocsteady", "PYTHONPATH": beside_torch, "ROCSTEADY_RUN": "t"}

    code, out, err = launched(
        torch_python, project.folder, script, **chosen, ROCSTEADY_JOB_KEY="k" * 32
    )

    assert (code, out) == (0, ["key: False"] * 2), err


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
    (failure,) = project.story()["failures"]  # rocsteady restarts, and not torchrun
    assert (failure["failure"]["kind"], failure["failure"]["rank"]) == ("killed", 1)


RAISES = """
    import os, torch
    import torch.distributed as dist
    from torch import nn
    dist.init_process_group("gloo")
    os.write(1, b"starts\\n")  # at once: two ranks share the pipe
    net = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(10):
        net(torch.ones(2, 8)).mean().backward(); optimizer.step()
    if dist.get_rank() == 1:
        raise ValueError("an error in the script")
    dist.barrier()
"""


def test_an_error_in_the_script_ends_a_run_as_it_ends_the_plugin(
    project: Project, torch_python: str, beside_torch: str
) -> None:
    script = project.script(RAISES)
    command = f"{sys.executable} -m rocsteady"
    chosen = {
        "PET_RDZV_BACKEND": "rocsteady",
        "PYTHONPATH": beside_torch,
        "ROCSTEADY_COMMAND": command,
    }

    code, out, err = launched(torch_python, project.folder, script, **chosen)
    torchrun = (torch_python, "-m", "torch.distributed.run", *RANKS)
    ended = project.run("--", *torchrun, script, within=WITHIN)

    assert (code, out) == (1, ["starts"] * 2), err
    assert (ended.code, ended.out.splitlines()) == (1, ["starts"] * 2), ended.err


@pytest.mark.parametrize(
    ("command", "started"),
    [
        ("torchrun --max-restarts 3 a.py", "torchrun --max-restarts=0 a.py"),
        ("torchrun --max_restarts=3 a.py", "torchrun --max-restarts=0 a.py"),
        ("python -m torch.distributed.run --max-restarts 3 -m a --max-restarts 3",
         "python -m torch.distributed.run --max-restarts=0 -m a --max-restarts 3"),
        ("torchrun a.py --max-restarts 3", None),
        ("torchrun --nnodes 2 --max-restarts 3 a.py", None),
        ("python a.py --max-restarts 3", None),
    ],
)  # fmt: skip
def test_restarts_of_a_torchrun_on_one_host_are_rocsteadys(
    command: str, started: str | None
) -> None:
    assert " ".join(without_own_restarts(tuple(command.split()))) == (started or command)


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
    handler._hangs.heard({"part": {"part": "proven"}})  # before its watcher was killed
    handler.num_nodes_waiting()
    print(channel.count("alive.1", 0), channel.count("still", 0))
"""


def test_a_host_without_a_watcher_gives_signs_of_life_and_survives_faults_of_the_store(
    project: Project, torch_python: str, beside_torch: str
) -> None:
    done = run_beside(beside_torch, torch_python, project, SIGNS_OF_LIFE)

    assert done.stdout == "4 0\n", done.stderr
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


WHY_ABSENT = """
    import sys
    from rocsteady_train.integrations.torchrun import _why_absent
    chosen = {"PET_RDZV_BACKEND": "rocsteady"}
    for words in (
        "torchrun --nproc-per-node 2 train.py --standalone",  # an option of the script
        "torchrun --rdzv_backend=rocsteady train.py",
        "torchrun --master_addr host --node-rank 1 --nnodes 2 train.py",
        "torchrun --standalone train.py",
        "torchrun --rdzv-backend c10d train.py",
        "torchrun --rdzv_backend=static train.py",
        "/venv/bin/accelerate launch --num_processes 2 train.py",
        "/venv/bin/accelerate launch --rdzv_backend rocsteady train.py",
    ):
        under_run = _why_absent(words.split(), {**chosen, "ROCSTEADY_RUN": "x"})
        print(bool(_why_absent(words.split(), chosen)), bool(_why_absent(words.split(), {})
              or under_run or _why_absent(words.split(), {**chosen, "TORCHELASTIC_RUN_ID": "x"})))
"""


def test_it_is_known_when_torchrun_will_not_use_it(
    project: Project, torch_python: str, beside_torch: str
) -> None:
    done = run_beside(beside_torch, torch_python, project, WHY_ABSENT)

    lines = [line.split() for line in done.stdout.splitlines()]
    absent = [False, False, False, True, True, True, True, False]
    assert lines == [[str(each), "False"] for each in absent], done.stderr


@pytest.mark.ci
@pytest.mark.parametrize(
    ("options", "absent"), [(("--standalone",), True), ((), False), (("--master-port", "0"), False)]
)
def test_a_torchrun_that_goes_on_without_it_says_so_in_one_line(
    project: Project,
    torch_python: str,
    beside_torch: str,
    options: tuple[str, ...],
    absent: object,
) -> None:
    script = project.script("import os; print(os.environ.get('PET_RDZV_ENDPOINT'))")
    variables = {"PET_RDZV_BACKEND": "rocsteady", "PYTHONPATH": beside_torch}
    variables |= {"ROCSTEADY_COMMAND": "true"}  # a watcher that ends at once
    done = subprocess.run(
        [torch_python, "-m", "torch.distributed.run", *LOGS, *options, script],
        env={"PATH": os.environ["PATH"], "HOME": str(project.folder), **variables},
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN,
    )

    said = [line for line in done.stderr.splitlines() if "not active" in line]
    assert (done.returncode, done.stdout, len(said)) == (0, "None\n", int(bool(absent))), (
        done.stderr
    )
    assert "master_addr" not in done.stderr


def waiting_host(  # noqa: PLR0913, PLR0917 - what a host is started with
    torch_python: str,
    project: Project,
    beside_torch: str,
    conf: str,
    port: int,
    text: str = "print('trained')",
) -> subprocess.Popen[str]:
    """Start the torchrun of the second of two hosts; nothing watches its ranks."""
    options = ("--nnodes", "2", "--rdzv-id", "job", "--rdzv-endpoint", f"127.0.0.1:{port}")
    return subprocess.Popen(
        [
            torch_python,
            "-m",
            "torch.distributed.run",
            *LOGS,
            *options,
            "--rdzv-conf",
            conf,
            project.script(text),
        ],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(project.folder),
            "PET_RDZV_BACKEND": "rocsteady",
            "PET_MAX_RESTARTS": "3",
            "PYTHONPATH": beside_torch,
            "ROCSTEADY_RUN": "t",
        },
        cwd=project.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_store_that_never_appears_ends_with_a_code_to_start_it_again(
    project: Project, torch_python: str, beside_torch: str
) -> None:
    conf = "is_host=false,read_timeout=2,join_timeout=5"

    host = waiting_host(torch_python, project, beside_torch, conf, free_port())

    out, err = host.communicate(timeout=WITHIN)
    assert (host.returncode, out) == (75, ""), err
    assert "Traceback" not in err


def test_a_store_whose_host_starts_later_is_waited_for(
    project: Project, torch_python: str, beside_torch: str
) -> None:
    port, conf = free_port(), "is_host=false,read_timeout=2,join_timeout=120"
    late = waiting_host(torch_python, project, beside_torch, conf, port)
    assert late.stderr is not None
    first = late.stderr.readline()
    while "waiting" not in first:
        assert late.poll() is None, first
        first = late.stderr.readline()

    host = waiting_host(torch_python, project, beside_torch, "is_host=true", port)

    assert host.communicate(timeout=WITHIN)[0] == late.communicate(timeout=WITHIN)[0] == "trained\n"
    assert (host.returncode, late.returncode) == (0, 0)


def test_a_spare_host_that_was_never_needed_ends_well(
    project: Project, torch_python: str, beside_torch: str
) -> None:
    port = free_port()
    text = "import time; time.sleep(10.0)"  # the third host is there by then
    hosts = [
        waiting_host(torch_python, project, beside_torch, f"is_host={at == 0}".lower(), port, text)
        for at in range(3)
    ]

    said = [host.communicate(timeout=WITHIN)[1] for host in hosts]

    assert [host.returncode for host in hosts] == [0, 0, 0], said
    assert sum("not needed" in each for each in said) == 1


ONCE = """
    import os, pathlib, time
    rank = os.environ["RANK"]
    time.sleep(8.0)  # the third host is there by then
    killed = pathlib.Path("killed")
    if rank == "1" and not killed.exists():
        killed.write_text(str(os.getppid()))
        os.kill(os.getpid(), 9)
    time.sleep(8.0)
    pathlib.Path(f"agent-{rank}").write_text(str(os.getppid()))
"""


def test_a_spare_does_not_take_the_place_of_a_host_whose_rank_was_killed(
    project: Project, torch_python: str, beside_torch: str
) -> None:
    port = free_port()
    hosts = [
        waiting_host(torch_python, project, beside_torch, f"is_host={at == 0}".lower(), port, ONCE)
        for at in range(3)
    ]

    said = [host.communicate(timeout=WITHIN)[1] for host in hosts]

    assert [host.returncode for host in hosts] == [0, 0, 0], said
    (spare,) = [host.pid for host, text in zip(hosts, said, strict=True) if "not needed" in text]
    agents = {int((project.folder / f"agent-{rank}").read_text()) for rank in range(2)}
    assert int((project.folder / "killed").read_text()) in agents
    assert agents == {host.pid for host in hosts} - {spare}


FAILS = """
    import os, pathlib, sys, time
    rank = os.environ["RANK"]
    pathlib.Path(f"up-{rank}").touch()
    while not pathlib.Path("up-1").exists():
        time.sleep(0.1)
    if rank == "1":
        time.sleep(2.0)
        os.kill(os.getpid(), 9)
    time.sleep(120.0)
"""


def test_above_a_number_of_hosts_the_scheduler_restarts_all_of_them(
    project: Project, torch_python: str, beside_torch: str
) -> None:
    """As with more than 256 hosts: torch's static rendezvous, and every failure ends all."""
    script, port = project.script(FAILS), free_port()
    hosts = [
        subprocess.Popen(
            [
                torch_python,
                "-m",
                "torch.distributed.run",
                *LOGS,
                "--nnodes",
                "2",
                "--master-addr",
                "127.0.0.1",
                "--master-port",
                str(port),
                "--max-restarts",
                "3",
                "--node-rank",
                str(rank),
                "--rdzv-conf",
                "c10d_hosts=1",
                script,
            ],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(project.folder),
                "PET_RDZV_BACKEND": "rocsteady",
                "PYTHONPATH": beside_torch,
                "ROCSTEADY_RUN": "t",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
            cwd=project.folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]

    said = [host.communicate(timeout=WITHIN)[1] for host in hosts]

    assert [host.returncode for host in hosts] == [75, 75], said
    for rank in range(2):  # torch prints that it would ignore the number
        assert f"node_rank {rank} counts" in said[rank]
