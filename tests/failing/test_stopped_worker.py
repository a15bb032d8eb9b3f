"""A loader worker that somebody stopped."""

from __future__ import annotations

import os
import signal

import pytest
from supervised import Project, Terminal

pytestmark = pytest.mark.slow

LOADS = """
    import os, signal, sys, time, torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __len__(self):
            return 4000

        def __getitem__(self, index):
            if index == 400 and sys.argv[1] == "stop":
                print(f"worker {os.getpid()}", flush=True)
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.005)
            return torch.randn(8)

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, batch in enumerate(DataLoader(Rows(), batch_size=8, num_workers=2), 1):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}/500", flush=True)
"""


def start(project: Project, python: str, how: str) -> Terminal:
    command = ("--", python, project.script(LOADS), how)
    return project.on_terminal(*project.program, "run", "--yes", "--name", project.name, *command)


def end(project: Project, terminal: Terminal) -> None:
    project.say("stop", project.name)
    terminal.code(within=60)


def test_a_stopped_worker_is_called_stopped_and_the_run_is_left_alone(
    project: Project, torch_python: str
) -> None:
    """As the example in examples/README.md, and not "waits for the network"."""
    terminal = start(project, torch_python, "stop")
    terminal.wait_for("stopped ", within=150)
    said = terminal.text

    assert "by a signal" in " ".join(said.split())
    assert "network" not in said
    os.kill(int(said.partition("worker ")[2].split()[0]), signal.SIGCONT)
    terminal.wait_for("moving", within=60)
    end(project, terminal)


def test_without_a_terminal_a_stopped_worker_is_continued_after_ten_seconds(
    project: Project, torch_python: str
) -> None:
    ended = project.run("--", torch_python, project.script(LOADS), "stop", within=150)

    (said,) = [line for line in ended.said if "continued it" in line]
    assert int(said.partition("suspended for ")[2].split(" s")[0].partition(".")[0]) in range(
        10, 20
    )
    assert ended.code == 0
    assert "step 500/500" in ended.out
