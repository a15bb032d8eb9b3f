"""The four jobs learn, resume after kill -9, and are carried to their end by ``rocsteady run``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from supervised import Project, until

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
HANG_ONCE = Path(__file__).parent / "hang_once"
SEEDS = (0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One example at a size that is quick, and what must come of it."""

    name: str
    data: tuple[str, ...]  # arguments of make_data.py; none: the job makes its own
    small: tuple[str, ...]  # arguments of train.py
    hang_at: int  # an optimizer step after the first checkpoint


JOBS: tuple[Job, ...] = (
    Job(
        name="detector",
        data=("--train", "400"),
        small=(
            *("--images", "400", "--epochs", "4", "--batch_size", "8", "--width", "8"),
            *("--checkpoint_every", "20"),
        ),
        hang_at=110,
    ),
    Job(
        name="futures",
        data=("--rows", "200000", "--output", "ticks.csv"),
        small=(
            *("--data", "ticks.csv", "--folds", "4", "--batch_size", "128", "--epochs", "4"),
            *("--hidden_layers", "256,128", "--learning_rate", "0.0002"),
            *("--checkpoint_every", "50"),
        ),
        hang_at=700,
    ),
    Job(
        name="eeg",
        data=("--preset", "small"),
        small=("--preset", "small"),
        hang_at=400,
    ),
    Job(
        name="predator_prey",
        data=(),
        small=(
            *("--embedding", "64", "--heads", "4", "--hidden", "128", "--episodes", "70"),
            *("--learning_rate", "3e-3", "--held_out_episodes", "6"),
        ),
        hang_at=36,
    ),
)


@pytest.fixture(params=JOBS, ids=lambda job: job.name)
def job(request: pytest.FixtureRequest) -> Job:
    given: Job = request.param
    return given


@pytest.fixture
def trained(job: Job, project: Project, torch_python: str) -> Trained:
    return Trained(job, project, torch_python)


class Trained:
    """A copy of an example, with its data, ready to be trained."""

    def __init__(self, job: Job, project: Project, python: str) -> None:
        self.job, self.project, self.python = job, project, python
        self.folder = project.folder
        shutil.copytree(EXAMPLES / job.name, self.folder, dirs_exist_ok=True)
        self.environment = {
            **project.environment,
            "OMP_NUM_THREADS": "1",  # tests run two at a time
            "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}",
        }
        project.environment = self.environment
        if job.data:
            self._finish(self._start("make_data.py", *job.data))

    def train(self, *more: str) -> dict[str, Any]:
        """Train to the end; return the measure."""
        self._finish(self.start(*more))
        return self.measure()

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        """Start training."""
        return self._start("train.py", *self.job.small, *more)

    def measure(self, output: str = "output") -> dict[str, Any]:
        """Return what it measured on held-out data."""
        metadata = json.loads((self.folder / output / "metadata.json").read_text())
        return dict(metadata["measure"])

    def check_that_results_load(self) -> None:
        """Load the model and its metadata, as others would."""
        script = "import sys, torch; print(len(torch.load(sys.argv[1], weights_only=True)))"
        model = str(self.folder / "output" / "model.pt")
        loaded = subprocess.run(
            [self.python, "-c", script, model], capture_output=True, check=True, text=True
        )
        metadata = json.loads((self.folder / "output" / "metadata.json").read_text())
        assert int(loaded.stdout) > 0
        assert metadata["parameters"] > 0
        assert metadata["steps"] > 0

    def checkpoints(self) -> list[Path]:
        """Return the checkpoints, oldest first."""
        return sorted((self.folder / "output" / "checkpoints").glob("*.pt"))

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [self.python, *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.project.started.append(child)
        return child

    def _finish(self, child: subprocess.Popen[bytes]) -> None:
        out, _ = child.communicate(timeout=300)
        assert child.returncode == 0, out.decode()[-2000:]


def _gain(measure: dict[str, Any]) -> float:
    """Return by how much it is better than the trivial baseline."""
    gain = float(measure["value"]) - float(measure["baseline"])
    return gain if measure["higher_is_better"] else -gain


def test_it_learns_and_goes_on_after_a_kill(trained: Trained) -> None:
    found = [trained.train("--seed", str(seed)) for seed in SEEDS]
    for measure in found:
        assert _gain(measure) >= measure["margin"], found
    values = [measure["value"] for measure in found]
    trained.check_that_results_load()
    shutil.rmtree(trained.folder / "output")

    child = trained.start("--seed", "0")
    until(lambda: len(trained.checkpoints()) >= 2, 120.0, lambda: "no second checkpoint")
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate(timeout=20)
    assert not (trained.folder / "output" / "model.pt").exists(), "it was too quick to be killed"
    after = trained.train("--seed", "0", "--resume", str(trained.checkpoints()[-1]))

    spread = max(values) - min(values)
    assert abs(after["value"] - values[0]) <= spread, (values, after)
    assert _gain(after) >= after["margin"]


@pytest.mark.parametrize(
    "job",
    [pytest.param(job, id=job.name, marks=[pytest.mark.ci] * (job.name == "eeg")) for job in JOBS],
    indirect=True,
)
def test_a_hang_is_found_and_the_job_done(trained: Trained) -> None:
    job = trained.folder / "rocsteady.toml"
    text = job.read_text().partition("[[stages]]")[0]
    command = next(line for line in text.splitlines() if line.startswith("command = "))
    words = json.loads(command.removeprefix("command = "))
    assert words[:2] == ["python", "train.py"]
    small = json.dumps([*words[:2], *trained.job.small])
    job.write_text(text.replace(command, f"command = {small}"))
    mark = trained.folder.parent / "hung-once"
    trained.project.environment |= {
        "PYTHONPATH": str(HANG_ONCE),
        "HANG_AT": str(trained.job.hang_at),
        "HANG_MARK": str(mark),
    }

    ended = trained.project.run(within=240)

    assert ended.code == 0, ended.err
    assert mark.exists()
    assert ended.lines("hung"), ended.err
    assert ended.lines("resumed"), ended.err
    assert ended.lines("done"), ended.err
    measure = trained.measure()
    assert _gain(measure) >= measure["margin"]
    steps = json.loads((trained.folder / "output" / "metadata.json").read_text())["steps"]
    assert abs(trained.project.line()["step"] - steps) <= 0.05 * steps


def test_every_example_is_here() -> None:
    folders = {path.parent.name for path in EXAMPLES.glob("*/README.md")}
    assert {job.name for job in JOBS} == folders
