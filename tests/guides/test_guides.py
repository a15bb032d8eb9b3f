"""The scripts that the guides show: alone, killed in mid-training, and with five faults in them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from supervised import Project, until

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
HURRIED = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests" / "victims")!r})
import hurried
from rocsteady.cli import run
from rocsteady.probe import drill as drills
for command in (drills, run):
    hurried.hurry(command)
hurried.main()
"""
SLOW_ONCE = """
import runpy, sys, time
from torch.optim.optimizer import register_optimizer_step_pre_hook
steps = 0
def sometimes(*_):
    global steps
    steps += 1
    if steps == 25:
        time.sleep(5)
register_optimizer_step_pre_hook(sometimes)
runpy.run_path(sys.argv[1], run_name="__main__")
"""
FIVE = ("hang:backward", "oom", "kill", "segv", "nan")
CALLED = ["hang-in-backward", "oom-device", "killed", "segfault", "nan-loss"]
WITHIN = 300.0  # seconds, on a machine that has other things to do


@dataclass(frozen=True, kw_only=True)
class Guide:
    """A guide, its script, and what must come of it."""

    page: str
    script: str
    steps: int
    checkpoints: str  # a pattern
    model: str  # what is written at the end
    every: int  # steps between two faults
    exact: bool  # the same weights to the bit, whatever happened
    saved: str  # at SIGTERM
    terminated: int = -signal.SIGTERM


GUIDES = (
    Guide(
        page="train-plain.md",
        script="plain.py",
        steps=1600,
        checkpoints="checkpoints/step-*",
        model="model.pt",
        every=250,
        exact=True,
        saved="checkpoints/step-{step:09}",
    ),
    Guide(
        page="train-transformers.md",
        script="transformers_trainer.py",
        steps=200,
        checkpoints="checkpoints/checkpoint-*",
        model="model/model.safetensors",
        every=20,
        exact=True,
        saved="checkpoints/checkpoint-{step}/trainer_state.json",
    ),
    Guide(
        page="train-lightning.md",
        script="lightning_script.py",
        steps=320,
        checkpoints="checkpoints/*.ckpt",
        model="model.pt",
        every=20,
        exact=False,  # Lightning keeps no place in the data
        saved="checkpoints/rocsteady-step={step}.ckpt",
        terminated=143,
    ),
)


@pytest.fixture(params=GUIDES, ids=lambda guide: guide.script.removesuffix(".py"))
def guide(request: pytest.FixtureRequest) -> Guide:
    given: Guide = request.param
    return given


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Give a folder in which scripts find rocsteady beside torch."""
    made = Project(tmp_path)
    made.program = (sys.executable, "-c", HURRIED)
    made.environment |= {
        "PYTHONPATH": str(ROOT / "packages" / "rocsteady_train" / "src"),
        "OMP_NUM_THREADS": "1",
    }
    try:
        yield made
        until(lambda: not made.processes(), 5.0, lambda: str(made.processes()))
        assert made.left() == []
    finally:
        made.close()


def test_a_guide_shows_the_script_that_is_tested(guide: Guide) -> None:
    page = (ROOT / "docs" / "howto" / guide.page).read_text()

    shown = re.findall(r"```python\n(.*?)```", page, re.DOTALL)

    assert (HERE / guide.script).read_text() in shown


@pytest.mark.slow
def test_a_kill_changes_nothing(
    guide: Guide, project: Project, tmp_path: Path, frameworks_python: str
) -> None:
    alone = _alone(guide, project, tmp_path / "alone", frameworks_python)
    shutil.copy(HERE / guide.script, project.folder)

    child = project.start("--", frameworks_python, guide.script)
    until(lambda: len(list(project.folder.glob(guide.checkpoints))) > 1, WITHIN)
    os.kill(_training(project, guide), signal.SIGKILL)
    ended = project.ended(child, WITHIN)

    story = project.story()
    assert ended.code == 0, ended.err
    assert f"done at step {guide.steps}" in ended.out
    assert [attempt["signal"] for attempt in story["attempts"]] == [signal.SIGKILL, None]
    assert len(ended.lines("resumed")) == 1, ended.said
    losses = [float(loss) for loss in re.findall(r"loss'?:? '?([0-9.]+)", ended.out)]
    assert len(losses) > 5
    assert losses[-1] < losses[0]
    assert not guide.exact or (project.folder / guide.model).read_bytes() == alone


@pytest.mark.slow
def test_five_faults_are_survived(guide: Guide, project: Project, frameworks_python: str) -> None:
    shutil.copy(HERE / guide.script, project.folder)
    steps = range(guide.every + 5, guide.steps, guide.every)
    faults = ",".join(f"{kind}@{step}" for kind, step in zip(FIVE, steps, strict=False))

    ended = project.say(
        *("drill", "--yes", "--json", "--faults", faults, "--"),
        *(frameworks_python, guide.script),
        within=WITHIN,
    )

    told = json.loads(ended.out)
    seen: list[dict[str, Any]] = told["faults"]
    assert ended.code == 0, ended.err
    assert [fault["called"] for fault in seen] == CALLED
    assert all(fault["survived"] and fault["went_on_from"] > 0 for fault in seen), seen
    assert [path.name for path in project.folder.iterdir()] == [guide.script]


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES[1:], ids=lambda guide: guide.script.removesuffix(".py"))
def test_what_looks_like_a_hang_is_saved_first(
    guide: Guide, project: Project, frameworks_python: str
) -> None:
    shutil.copy(HERE / guide.script, project.folder)
    slow = project.script(SLOW_ONCE, "slow_once.py")
    saved = project.folder / guide.saved.format(step=25)

    child = project.start("--", frameworks_python, slow, guide.script)
    until(saved.exists, WITHIN)  # it is not one of the steps at which the script saves

    ended = project.ended(child, WITHIN)
    assert ended.code == 0, ended.err
    assert [attempt["signal"] for attempt in project.story()["attempts"]] == [None]


@pytest.mark.slow
def test_sigterm_saves_and_ends(guide: Guide, project: Project, frameworks_python: str) -> None:
    child = subprocess.Popen(
        [frameworks_python, str(HERE / guide.script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=project.folder,
        env=project.environment,
    )
    project.started.append(child)
    until(lambda: list(project.folder.glob(guide.checkpoints)), WITHIN)
    child.terminate()
    err = project.ended(child, WITHIN).err

    saved = re.search(r"rocsteady: .*step (\d+)", err)
    assert child.returncode == guide.terminated, err
    assert saved, err
    last = guide.saved.format(step=int(saved.group(1)))
    assert (project.folder / last).exists(), err


def _alone(guide: Guide, project: Project, folder: Path, python: str) -> bytes:
    """Run the script with no supervisor, and return the model that it wrote."""
    folder.mkdir()
    ended = subprocess.run(
        [python, str(HERE / guide.script)],
        cwd=folder,
        env=project.environment,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith(f"done at step {guide.steps}\n")
    return (folder / guide.model).read_bytes()


def _training(project: Project, guide: Guide) -> int:
    (pid,) = [
        pid
        for pid, words in project.processes().items()
        if guide.script in words and "rocsteady" not in words
    ]
    return pid
