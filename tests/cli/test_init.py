"""``rocsteady init`` as a person types it: one file is written, and a run takes it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocsteady.run.job.job_file import parse_job, read_job
from rocsteady.run.job.values import Job, Resume, Total

if TYPE_CHECKING:
    from supervised import Project

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="unconfirmed on Windows")

FILE = "rocsteady.toml"
READ_ONLY = 'mount --bind . . && mount -o remount,bind,ro "$PWD" && cd "$PWD" && exec "$0" "$@"'
IMPATIENT = """
from rocsteady.cli import init, main
init.AT_MOST = 3.0
main.main()
"""
TRAINS = """
    import os, time, torch
    from torch.utils.data import DataLoader, TensorDataset
    {settings}
    loader = DataLoader(TensorDataset(torch.randn(320, 8)), batch_size=16)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    os.makedirs("checkpoints", exist_ok=True)
    for epoch in range(EPOCHS):
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            time.sleep(0.01)
        {each}
"""
SAVES = 'torch.save(model.state_dict(), f"checkpoints/epoch-{epoch}.pt")'
ARGPARSE = """
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--resume", help="a checkpoint")
    EPOCHS = parser.parse_args().epochs
"""
OVERRIDES = """
    import sys
    settings = dict(word.split("=") for word in sys.argv[1:])
    EPOCHS = int(settings["train.epochs"])
"""
WITHOUT_TORCH = """
    import time
    for episode in range(1, 41):
        time.sleep(0.1)
        print(f"episode {episode:3}/40, reward {episode * 0.5}", flush=True)
"""
PATTERN = r"episode\s*(?P<n>\d+)/(?P<total>\d+)"


def trains(settings: str, each: str = SAVES) -> str:
    """Write a training script that is told its epochs in some way."""
    return TRAINS.format(settings=settings.strip(), each=each)


def without_file(folder: Path) -> str:
    """Return a hash of every name and every byte below a folder, but for the job file."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.name != FILE:
            digest.update(os.fsencode(path))
            digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def accepted(project: Project, *words: str) -> Job:
    """Run init, look that it wrote one file only, plan and carry out the job, and return it."""
    project.environment["OMP_NUM_THREADS"] = "1"
    before = without_file(project.folder)
    ended = project.say("init", "--yes", "--seconds", "1", "--", *words, within=120)
    assert ended.code == 0, ended.err
    assert without_file(project.folder) == before
    assert left(project) == []
    job = read_job(project.folder / FILE).job
    assert parse_job(ended.out) == job
    planned(project)
    ran = project.say("run", "--name", project.name, within=120)
    assert ran.code == 0, ran.err
    return job


def planned(project: Project) -> None:
    """Make a plan from the job file alone; all of the steps that it counts are to be made."""
    before = without_file(project.folder)
    made = project.say("plan", "--json", "--trial", "1s", "--within", "60s", within=180)
    assert made.code == 0, made.err
    assert without_file(project.folder) == before
    plan = json.loads(made.out)
    assert plan["options"][0]["finish"]["seconds"] > 0
    assert plan["left"] == plan["total"] > 0


def left(project: Project) -> Sequence[Path]:
    """Return what short runs have left."""
    return list((project.home / ".local" / "state" / "rocsteady" / "plans").glob("*/trials"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words", "resume"),
    [
        pytest.param(
            trains("EPOCHS = 10", each='print(f"epoch {epoch}", flush=True)'),
            (),
            None,
            id="plain",
        ),
        pytest.param(
            trains(ARGPARSE),
            ("--epochs", "10"),
            Resume(arguments=("--resume", "{checkpoint}"), checkpoints=("checkpoints/epoch-*.pt",)),
            id="argparse",
            marks=pytest.mark.ci,
        ),
        pytest.param(trains(OVERRIDES), ("train.epochs=10",), None, id="overrides"),
    ],
)
def test_a_run_takes_what_init_wrote(
    project: Project,
    torch_python: str,
    script: str,
    words: tuple[str, ...],
    resume: Resume | None,
) -> None:
    command = (torch_python, project.script(script), *words)

    assert accepted(project, *command) == Job(
        command=command, total=Total(steps=200), resume=resume
    )


@pytest.mark.slow
def test_a_script_without_torch_is_counted_by_what_it_prints(project: Project) -> None:
    command = (sys.executable, project.script(WITHOUT_TORCH))

    assert accepted(project, *command) == Job(command=command, total=Total(log=PATTERN))
    assert (project.line()["step"], project.line()["total"]) == (40, 40)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("raise ValueError('no such data')", "ValueError: no such data"),
        (
            "input('which? ')",
            "the script reads from stdin, which is not available in an unattended run.",
        ),
        ("import torch", "broken-install"),
    ],
)
def test_a_script_that_fails_is_named_and_nothing_is_written(
    project: Project, script: str, told: str
) -> None:
    project.script(script)
    (project.folder / "torch").mkdir()
    missing = "libamdhip64.so.6: cannot open shared object file: No such file or directory"
    project.script(f"raise ImportError({missing!r})", "torch/__init__.py")
    before = without_file(project.folder)

    ended = project.say("init", "--yes", "--json", "--", sys.executable, "train.py")

    seen = json.loads(ended.out)
    assert ended.code == 1
    assert told in ended.err
    assert "Nothing was written." in ended.err
    assert (seen["written"], seen["job"]) == (False, None)
    assert seen["tried"]["failure"] in {"script-error", "broken-install"}
    assert without_file(project.folder) == before
    assert not (project.folder / FILE).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("print('hello')", "and no step was observed. Is this the training script?"),
        ("import time; time.sleep(100)", "no step was observed in"),
    ],
)
def test_a_script_that_shows_no_step_has_a_sentence(
    project: Project, script: str, told: str
) -> None:
    project.program = (sys.executable, "-c", IMPATIENT)
    project.script(script)

    ended = project.say("init", "--yes", "--seconds", "1", "--", sys.executable, "train.py")

    assert ended.code == 0
    assert told in ended.err
    assert read_job(project.folder / FILE).job == Job(command=(sys.executable, "train.py"))


@pytest.mark.parametrize(
    ("scripts", "words", "told"),
    [
        ((), (), "there is no train*.py and no main.py; name a command"),
        (("train_a.py", "train_b.py"), (), "train_a.py, train_b.py are here; name a command"),
        ((), ("--", "no-such-program"), "no-such-program: not found"),
        (
            (FILE,),
            ("--", sys.executable),
            "already exists and was not changed. Use --force",
        ),
        ((), ("--seconds", "0"), "--seconds"),
    ],
)
def test_wrong_usage_is_one_sentence_and_2(
    project: Project, scripts: tuple[str, ...], words: tuple[str, ...], told: str
) -> None:
    for name in scripts:
        project.script("", name)
    before = without_file(project.folder)

    ended = project.say("init", "--yes", *words)

    assert (ended.code, ended.out) == (2, "")
    assert told in " ".join(ended.err.split())
    assert without_file(project.folder) == before


def test_a_path_outside_the_folder_is_asked_about(project: Project, tmp_path: Path) -> None:
    out = str(tmp_path / "out")

    ended = project.say("init", "--", sys.executable, "-c", "print('ran')", f"out.path={out}")

    assert ended.code == 2
    assert f"not protected, because outside this folder: {out}." in " ".join(ended.err.split())
    assert left(project) == []


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(project: Project) -> None:
    if os.geteuid() == 0:  # whom no mode stops
        project.program = ("unshare", "-m", "sh", "-c", READ_ONLY, *project.program)
    else:
        project.folder.chmod(0o555)

    ended = project.say("init", "--yes", "--", sys.executable, "-c", "print('ran')")

    assert ended.code == 1
    assert "is not writable, so rocsteady.toml cannot be created" in ended.err
    assert left(project) == []
