"""What a job has trained can be measured again, and exported with the same answers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL: dict[str, tuple[str, ...]] = {
    "detector": (),
    "eeg": (),
    "futures": ("--accumulate", "4", "--split", "cpu"),
    "predator_prey": ("--episodes", "3", "--held_out_episodes", "1", "--worlds", "2"),
}


@pytest.mark.parametrize("job", SMALL)
def test_a_model_is_measured_again_and_exported(
    job: str, tmp_path: Path, torch_python: str
) -> None:
    folder = Path(shutil.copytree(EXAMPLES / job, tmp_path / job))

    def say(*words: str) -> str:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(
            [torch_python, *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    if (folder / "make_data.py").exists():
        say("make_data.py", "--preset", "small")
    assert "done: " in say("train.py", "--preset", "small", *SMALL[job])
    evaluated = say("evaluate.py")
    assert "no plots" in evaluated or (folder / "output" / "loss.png").stat().st_size > 5000
    assert "differ by at most" in say("export.py")
