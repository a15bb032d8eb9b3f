"""Real runs with other versions of torch: heartbeat, loader, hang, resume, torchrun.

ROCSTEADY_TEST_OTHER_TORCH names their interpreters, separated like those of PATH; without it, the
one of ROCSTEADY_TEST_TORCH_PYTHON is used. docs/reference/torch-versions.md says what was seen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

import rocsteady_train
from supervised import Project

pytestmark = pytest.mark.slow
OTHERS = os.environ.get("ROCSTEADY_TEST_OTHER_TORCH", "")
LIBRARY = Path(rocsteady_train.__file__).parents[1]
WITHIN = 240.0

TRAIN = """
    import argparse, os, pathlib, signal, threading, time
    import torch
    from torch.utils.data import DataLoader, Dataset
    torch.set_num_threads(1)

    class Numbers(Dataset):
        def __len__(self): return 400
        def __getitem__(self, index):
            if index == 230 and not os.path.exists("hung"):
                open("hung", "w").close()
                lock = threading.Lock(); lock.acquire(); lock.acquire()
            return torch.full((4,), float(index))

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--resume")
        resume = parser.parse_args().resume
        torch.manual_seed(1)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.AdamW(model.parameters())
        done = 0
        if resume:
            state = torch.load(resume)
            model.load_state_dict(state["model"]); optimizer.load_state_dict(state["optimizer"])
            done = state["step"]
            print("from", done, flush=True)
        loader = DataLoader(Numbers(), batch_size=4, num_workers=2)
        for step, batch in enumerate(loader, 1):
            if step <= done: continue
            if step == 85 and not os.path.exists("killed"):
                open("killed", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad(); model(batch).mean().backward(); optimizer.step()
            time.sleep(0.02)
            if step % 10 == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "step": step}, "part.pt"); os.replace("part.pt", "last.pt")
        print("done", step, flush=True)
"""
RANKS = """
    import os, signal, torch
    import torch.distributed as dist
    from torch import nn
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    net = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(10):
        net(torch.ones(2, 8)).mean().backward(); optimizer.step()
        if (step, dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]) == (5, 1, "0"):
            os.kill(os.getpid(), signal.SIGKILL)
    if dist.get_rank() == 1:
        print("restarts", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
    dist.destroy_process_group()
"""
LOOP = """
    import hashlib, os, signal, sys, torch
    import rocsteady_train
    from torch.utils.data import DataLoader, TensorDataset
    torch.set_num_threads(1); torch.manual_seed(1)
    data = TensorDataset(torch.arange(400.0).reshape(100, 4))
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    loop = rocsteady_train.Loop(model=model, optimizer=optimizer,
                                loader=DataLoader(data, 4, shuffle=True), epochs=3,
                                checkpoints=sys.argv[1], lose_at_most=0.0)
    for batch in loop:
        loop.step(batch, lambda part: model(part[0]).mean(), reduction="mean")
        if loop.steps == 40 and loop.checkpointer.newest and not os.path.exists(sys.argv[2]):
            open(sys.argv[2], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
    weights = torch.cat([each.flatten() for each in model.parameters()]).detach()
    print(loop.steps, hashlib.sha256(weights.numpy().tobytes()).hexdigest())
"""


@pytest.fixture(params=OTHERS.split(os.pathsep))
def python(request: pytest.FixtureRequest, project: Project) -> Iterator[str]:
    yield str(request.param or request.getfixturevalue("torch_python"))
    for left in project.temporary.glob("tmp*/_remote_module_non_scriptable.py"):
        shutil.rmtree(left.parent)  # torch 2.8 leaves it there when it is killed


def test_a_worker_that_hangs_and_a_kill_end_in_a_whole_training(
    project: Project, python: str
) -> None:
    ended = project.run("--", python, project.script(TRAIN), within=WITHIN)

    story = project.story()
    (incident,) = story["incidents"]
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "done 100"), ended.err
    assert ended.out.splitlines()[:-1] == ["from 50", "from 80"]
    assert "train.py:12" in incident["place"]
    assert [each["failure"]["kind"] for each in story["failures"]][-1] == "killed"
    assert [line for line in ended.said if "hook" in line] == []


def test_torchrun_restarts_its_ranks_through_the_plug_in(project: Project, python: str) -> None:
    torchrun = (python, "-m", "torch.distributed.run", "--log-dir", "logs")
    ranks = ("--nproc-per-node", "2", "--max-restarts", "3")
    about = project.folder / "rocsteady_train.dist-info"
    about.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (about / name).write_text(distribution("rocsteady-train").read_text(name) or "")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{project.folder}:{LIBRARY}",
        "PET_RDZV_BACKEND": "rocsteady",
        "ROCSTEADY_RUN": "t",  # nobody watches
    }

    ended = subprocess.run(
        [*torchrun, *ranks, project.script(RANKS)],
        cwd=project.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN,
    )

    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "restarts 1"), ended.stderr
    assert "has not been tried" not in ended.stderr


def test_loop_goes_on_to_the_same_bits(python: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("\n".join(line[4:] for line in LOOP.splitlines()))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(LIBRARY)}

    def run(folder: str, mark: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, script, tmp_path / folder, tmp_path / mark],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN,
        )

    (tmp_path / "never").touch()
    alone = run("alone", "never")
    killed, resumed = run("cut", "once"), run("cut", "once")

    assert killed.returncode == -9, killed.stderr
    assert resumed.stdout == alone.stdout != "", resumed.stderr
    assert "resuming from step" in resumed.stderr
