"""An exported batch file under a real Slurm: requeued on 75, never on 76 or after scancel."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("Slurm is of POSIX", allow_module_level=True)

from slurm_cluster import Cluster, cluster, missing

from rocsteady.plan.exports.export import Export
from rocsteady.plan.exports.targets import TARGETS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(missing()), reason=f"Slurm is not installed: no {', '.join(missing())}"
    ),
    pytest.mark.skipif(
        hasattr(os, "geteuid") and os.geteuid() != 0, reason="slurmd starts jobs only as root"
    ),
]
TRAINING = """\
import os, pathlib, sys, time
named = sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else ""
step = int(pathlib.Path(named).read_text()) if named else 0
turn = os.environ.get("SLURM_RESTART_COUNT", "0")
print(f"turn {turn} starts at step {step}", flush=True)
os.makedirs("checkpoints", exist_ok=True)
while step < STEPS:
    time.sleep(0.1)
    step += 1
    pathlib.Path(f"checkpoints/{step:04}.json").write_text(str(step))
    if step == 20 and turn == "0":
        FAULT
print(f"turn {turn} ends at step {step}", flush=True)
"""
JOB = """\
command = ["python3", "train.py"]
[resume]
checkpoints = ["checkpoints/*.json"]
arguments = ["--resume", "{checkpoint}"]
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Give a Slurm of one host."""
    with cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture
def write(tmp_path: Path, an_export: Callable[..., Export]) -> Callable[..., Path]:
    """Return what writes a project, and the batch file of its job."""

    def writes(fault: str, steps: int = 40, job: str = JOB) -> Path:
        text = TRAINING.replace("FAULT", fault).replace("STEPS", str(steps))
        (tmp_path / "train.py").write_text(text)
        (tmp_path / "rocsteady.toml").write_text(job)
        file = tmp_path / "job.sbatch"
        export = an_export(
            name="training",
            command=("python3", "train.py"),
            checkpoints=("checkpoints/*.json",),
            variables={},
            unset=(),
        )
        file.write_text(next(iter(TARGETS["slurm"](export).values())))
        return file

    return writes


def log_of(file: Path, number: int) -> str:
    return (file.parent / f"training-{number}.log").read_text()


def test_a_run_that_ends_with_75_is_requeued_and_resumes(
    slurm: Cluster, write: Callable[..., Path]
) -> None:
    file = write("sys.exit(75)")

    number = slurm.submit(file)
    job = slurm.until(number, "COMPLETED", "FAILED", "CANCELLED", restarts=1)

    log = log_of(file, number)
    assert (job["JobState"], job["Restarts"], job["ExitCode"]) == ("COMPLETED", "1", "0:0"), log
    assert "turn 1 starts at step 20" in log
    assert "turn 1 ends at step 40" in log


def test_a_run_that_needs_a_person_is_not_requeued(
    slurm: Cluster, write: Callable[..., Path]
) -> None:
    wanted = '[[done_when.files]]\npath = "model.pt"\n'
    file = write("pass", job=JOB + wanted)  # ends well, without the file that it is for

    number = slurm.submit(file)
    job = slurm.until(number, "COMPLETED", "FAILED", "CANCELLED")

    assert (job["JobState"], job["Restarts"], job["ExitCode"]) == ("FAILED", "0", "76:0"), log_of(
        file, number
    )


def test_a_run_that_is_out_of_time_is_requeued_and_resumes(
    slurm: Cluster, write: Callable[..., Path]
) -> None:
    file = write("time.sleep(600)")

    number = slurm.submit(file, "--time=3", "--signal=B:USR1@60")  # or up to a minute earlier
    job = slurm.until(number, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", restarts=1)

    log = log_of(file, number)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), log
    assert "rocsteady: out of time; the run ended with 143 and can resume" in log
    assert "turn 1 starts at step 20" in log


def test_a_run_that_is_preempted_saves_in_its_grace_is_requeued_and_resumes(
    slurm: Cluster, write: Callable[..., Path]
) -> None:
    file = write("time.sleep(600)")
    urgent = file.with_name("urgent.sbatch")
    urgent.write_text("#!/bin/sh\nsleep 1\n")
    number = slurm.submit(file)
    until_it_trains(file, number)

    slurm.submit(urgent, "--partition=urgent", "--output=urgent.log", "--exclusive")
    job = slurm.until(number, "COMPLETED", "FAILED", "CANCELLED", restarts=1)

    log = log_of(file, number)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), log
    assert "rocsteady: preempted; the run ended with 143 and can resume" in log
    assert "turn 1 starts at step 20" in log


def test_a_run_that_is_cancelled_stays_so(slurm: Cluster, write: Callable[..., Path]) -> None:
    file = write("pass", steps=6000)
    number = slurm.submit(file)
    slurm.until(number, "RUNNING")
    until_it_trains(file, number)

    slurm.ask("scancel", str(number))
    slurm.until(number, "CANCELLED", "PENDING", "COMPLETED", "FAILED")
    slurm.until_idle()

    assert slurm.job(number)["JobState"] == "CANCELLED", log_of(file, number)


def until_it_trains(file: Path, number: int) -> None:
    """Wait for a first step."""
    deadline = time.monotonic() + 60
    while not (file.parent / "checkpoints").exists():
        assert time.monotonic() < deadline, log_of(file, number)
        time.sleep(0.2)
