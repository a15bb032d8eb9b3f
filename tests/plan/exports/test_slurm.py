"""The batch file asks for what is needed, and goes back to the queue only where that is right."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocsteady.plan.exports.export import Export
from rocsteady.plan.exports.targets import TARGETS

OPTIONS = Path(__file__).with_name("sbatch_options.txt")
DAY = 86_400.0
REQUEUED = "requeued.txt"


def sbatch(export: Export) -> str:
    (text,) = TARGETS["slurm"](export).values()
    return text


def options(text: str) -> dict[str, str]:
    return dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", text, re.MULTILINE))


def test_every_option_is_one_of_sbatch(an_export: Callable[..., Export]) -> None:
    known = {line for line in OPTIONS.read_text().splitlines() if not line.startswith("#")}
    asked = options(sbatch(an_export(gpus=2)))

    assert asked.keys() <= known
    assert asked == {
        "job-name": "es-futures",
        "nodes": "1",
        "ntasks-per-node": "1",
        "gres": "gpu:2",
        "time": "1-00:00:00",
        "signal": "B:USR1@300",
        "open-mode": "append",
        "output": "es-futures-%j.log",
        "requeue": "",
    }


def test_options_stand_before_the_first_command(an_export: Callable[..., Export]) -> None:
    lines = sbatch(an_export()).splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("#SBATCH"))

    assert all(line.startswith("#") for line in lines[:last])


@pytest.mark.parametrize(
    ("due", "checkpoints", "asked"),
    [
        (None, (), "1-00:00:00"),
        (15 * DAY, ("c/*.pt",), "1-00:00:00"),  # in turns
        (15 * DAY, (), "15-00:00:00"),  # all at once
        (5_400.0, ("c/*.pt",), "0-01:30:00"),
        (-5.0, (), "0-00:10:00"),
    ],
)
def test_time_comes_from_the_deadline(
    an_export: Callable[..., Export], due: float | None, checkpoints: tuple[str, ...], asked: str
) -> None:
    assert options(sbatch(an_export(due=due, checkpoints=checkpoints)))["time"] == asked


def test_several_hosts_meet_through_rocsteady(an_export: Callable[..., Export]) -> None:
    options_of_torchrun = ("--nnodes", "2:4", "--nproc-per-node=8", "--rdzv-backend=c10d")
    command = ("/x/bin/torchrun", *options_of_torchrun, "--node-rank", "0", "t.py", "--nnodes", "9")

    text = sbatch(an_export(command=command, gpus=8))

    assert options(text)["nodes"] == "2-4"
    assert "\nexport PET_RDZV_BACKEND=rocsteady\n" in text
    assert "\nexport PET_MAX_RESTARTS=100\n" in text
    assert 'PET_RDZV_ENDPOINT="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head' in text
    assert 'head -n 1):$((12000 + SLURM_JOB_ID % 20000))"\n' in text  # no other job's port
    assert "\nsrun --label torchrun --nnodes 2:4 --nproc-per-node=8 t.py --nnodes 9 &\n" in text
    assert "scancel --signal=TERM" in text


@pytest.mark.parametrize("hosts", ["1", "2"])
def test_a_torchrun_that_may_restart_its_script_can_resume(
    an_export: Callable[..., Export], hosts: str
) -> None:
    command = ("torchrun", "--nnodes", hosts, "--max-restarts", "5", "t.py")

    text = sbatch(an_export(command=command, checkpoints=(), due=15 * DAY))

    assert "by its own means, as --max-restarts 5 says" in text
    assert "can resume" in text
    assert options(text)["time"] == "1-00:00:00"


def test_one_host_is_watched_by_a_run(an_export: Callable[..., Export]) -> None:
    command = ("torchrun", "--standalone", "--nproc-per-node", "2", "t.py")

    text = sbatch(an_export(command=command))

    assert "\nexport PET_RDZV_BACKEND=rocsteady\n" in text
    assert f"\nsrun rocsteady run --yes --resume auto -- {' '.join(command)} &\n" in text
    assert "ENDPOINT" not in text


@pytest.mark.parametrize(
    ("rocm", "index"), [("6.4", "6.4"), ("6.2.4", "6.2.4"), ("7.14.1", "6.4"), ("", "6.4")]
)
def test_torch_comes_from_where_that_build_is(
    an_export: Callable[..., Export], rocm: str, index: str
) -> None:
    line = f"pip install torch==2.8.0 --index-url https://download.pytorch.org/whl/rocm{index}\n"

    assert line in sbatch(an_export(rocm=rocm))


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Give a folder with stand-ins for Slurm; scontrol writes down what is requeued."""
    programs = {
        "scontrol": f"""
            [ "$1" = show ] && exec cat "{tmp_path}/job"
            echo "$@" >> "{tmp_path}/{REQUEUED}\"""",
        "srun": f'echo $$ > "{tmp_path}/step"; exec "$@"',
        "scancel": f'kill -TERM "$(cat "{tmp_path}/step")"',
        "rocsteady": f'exec "{sys.executable}" -m rocsteady "$@"',
    }
    (tmp_path / "bin").mkdir()
    (tmp_path / "job").write_text("   PreemptEligibleTime=2026-11-19T20:00:00 PreemptTime=None\n")
    for name, text in programs.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    return tmp_path


def submit(folder: Path, export: Export, **variables: str) -> subprocess.Popen[bytes]:
    """Run a batch file as slurmd does: bash, in the project's folder, with the job's number."""
    (folder / "job.sbatch").write_text(sbatch(export))
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    home = {"XDG_STATE_HOME": str(folder / "state"), "XDG_DATA_HOME": str(folder / "data")}
    return subprocess.Popen(
        ["/bin/bash", "job.sbatch"],
        cwd=folder,
        env=os.environ | home | {"PATH": path, "SLURM_JOB_ID": "4711"} | variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def requeued(folder: Path) -> Iterator[str]:
    file = folder / REQUEUED
    return iter(file.read_text().splitlines() if file.exists() else ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "turns", "back"),
    [(75, "0", ["requeue 4711"]), (75, "100", []), (76, "0", []), (0, "0", [])],
)
def test_it_goes_back_to_the_queue_on_75_only(
    cluster: Path, an_export: Callable[..., Export], code: int, turns: str, back: list[str]
) -> None:
    export = an_export(command=("python3", "-c", f"raise SystemExit({code})"))

    with submit(cluster, export, SLURM_RESTART_COUNT=turns) as job:
        assert job.wait(60) == code
    assert list(requeued(cluster)) == back


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "preempted", "checkpoints", "code"),
    [
        (signal.SIGUSR1, "None", ("c/*.pt",), 75),
        (signal.SIGUSR1, "None", (), 143),
        (signal.SIGTERM, "None", ("c/*.pt",), 143),  # scancel
        (signal.SIGTERM, "2026-11-19T21:00:00", ("c/*.pt",), 75),
        (signal.SIGTERM, "2026-11-19T21:00:00", (), 143),
    ],
)
def test_a_run_that_must_make_room_goes_back_if_it_can_resume_and_a_cancelled_one_does_not(  # noqa: PLR0913, PLR0917 - a case
    cluster: Path,
    an_export: Callable[..., Export],
    number: signal.Signals,
    preempted: str,
    checkpoints: tuple[str, ...],
    code: int,
) -> None:
    going = cluster / "going"
    (cluster / "train.py").write_text(
        "import os, pathlib, time\n"
        "pathlib.Path('going').write_text(str(os.getpid()))\n"
        "while True:\n"
        "    time.sleep(0.1)\n"
    )
    (cluster / "job").write_text(f"   PreemptEligibleTime=2026-11-19 PreemptTime={preempted}\n")
    export = an_export(command=("python3", "train.py"), checkpoints=checkpoints)

    with submit(cluster, export) as job:
        until = time.monotonic() + 30
        while not (pid := going.read_text() if going.exists() else ""):
            assert time.monotonic() < until
            time.sleep(0.05)
        if number == signal.SIGTERM:  # steps get it: of a preemption alone, of scancel as well
            os.kill(int((cluster / "step").read_text()), number)
        if preempted == "None":
            job.send_signal(number)
        assert job.wait(60) == code
    assert list(requeued(cluster)) == (["requeue 4711"] if code == 75 else [])
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
