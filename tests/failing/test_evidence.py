"""Failures of real runs are named by what happened to them, not by what happened beside them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from supervised import Project, until

KMSG = Path("/dev/kmsg")
FAILS = """
    import subprocess, sys, time
    for step in range(1, 31):
        print(f"step {step}/60 loss: 0.5", flush=True)
        time.sleep(0.05)
    sys.exit(3)
"""
CRASHES = """
    import ctypes, torch
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.01)

    def step(number):
        weight.square().sum().backward()
        optimizer.step()
        if number == 5:
            ctypes.string_at(0)

    for number in range(9):
        step(number)
"""
NOT_A_NUMBER = """
    import contextlib, sys, time, torch
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    half = torch.autocast("cpu", torch.float16) if sys.argv[1] == "fp16" else None
    for number in range(1, 9):
        with half or contextlib.nullcontext():
            loss = model(torch.ones(4, 4)).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {number}/20", flush=True)
    raise FloatingPointError("loss is nan")
"""
HUNG = """
    import threading, time, torch
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.01)
    for number in range(40):
        weight.square().sum().backward()
        optimizer.step()
        time.sleep(0.05)
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
"""
OUT_OF_MEMORY = """
    print("step 1/60 loss: 0.5", flush=True)
    raise RuntimeError("HIP out of memory. Tried to allocate 256.00 MiB")
"""


UNGUARDED = """
    import time, torch
    from torch.utils.data import DataLoader, TensorDataset
    for (batch,) in DataLoader(TensorDataset(torch.zeros(8, 2)), batch_size=4, num_workers=1):
        time.sleep(2)
    print("the end of the data", flush=True)
"""


def crash_another() -> None:
    code = "import ctypes; ctypes.string_at(0)"
    subprocess.run([sys.executable, "-c", code], check=False, stderr=subprocess.DEVNULL)


@pytest.mark.skipif(not os.access(KMSG, os.R_OK), reason="/dev/kmsg may not be read here")
def test_a_crash_of_another_process_is_not_this_runs(project: Project) -> None:
    started = project.start("--", sys.executable, project.script(FAILS))
    until(lambda: "step 3/60" in project.log())
    crash_another()

    ended = project.ended(started)

    assert ended.code == 3, ended.err
    assert [row["failure"]["kind"] for row in project.story()["failures"]] == ["unknown"]
    assert len(project.story()["attempts"]) == 1


def test_running_out_of_memory_names_the_argument_to_lower(project: Project) -> None:
    script = project.script(OUT_OF_MEMORY)

    ended = project.run("--", sys.executable, script, "--lr", "1", "--batch-size", "64")

    assert "--batch-size (now 64)" in ended.err


def test_running_out_of_memory_names_the_scripts_own_batch(project: Project) -> None:
    option = "import argparse\nfound = argparse.ArgumentParser()\n"
    option += "found.add_argument('--batch_size', type=int, default=8)\n"
    script = project.script(option + textwrap.dedent(OUT_OF_MEMORY))

    ended = project.run("--", sys.executable, script)

    assert "--batch_size (now 8)" in ended.err
    assert len(project.story()["attempts"]) == 1


@pytest.mark.slow
def test_a_crash_shows_the_line_of_python(project: Project, torch_python: str) -> None:
    ended = project.run("--max-attempts", "1", "--", torch_python, project.script(CRASHES))

    assert any(
        "segmentation fault" in line and "train.py:10 in step" in line for line in ended.said
    )


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_bfloat16_is_tried_against_nan_only_where_float16_was_seen(
    project: Project, torch_python: str, precision: str
) -> None:
    options = ("--deny", "retry", "--also", "precision-bf16", "--max-attempts", "2")
    project.run(*options, "--", torch_python, project.script(NOT_A_NUMBER), precision)

    decided = project.decided()
    assert ("precision-bf16" in decided) == (precision == "fp16"), decided


@pytest.mark.slow
def test_the_log_of_a_run_that_was_stopped_says_who_stopped_it(
    project: Project, torch_python: str
) -> None:
    project.run("--max-attempts", "1", "--", torch_python, project.script(HUNG))

    log = project.folder / ".rocsteady" / "runs" / project.name / "attempt-1.log"
    told = project.say("explain", str(log))
    assert told.out.startswith("stopped-by-rocsteady\nrocsteady stopped this run.\n"), told.out


@pytest.mark.slow
def test_a_setting_that_is_refused_is_said_while_the_script_runs(
    project: Project, torch_python: str
) -> None:
    command = ("--with", "loader-spawn", "--", torch_python, project.script(UNGUARDED))
    terminal = project.on_terminal(*project.program, "run", "--yes", *command)
    terminal.wait_for("the end of the data", within=150)

    said = terminal.text.partition("the end of the data")[0]
    assert terminal.code() == 0
    assert said.count("multiprocessing_context was not applied") == 1
    assert "multiprocessing_context" not in terminal.text.partition("the end of the data")[2]
