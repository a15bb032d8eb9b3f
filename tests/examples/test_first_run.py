"""The README's story: a DataLoader worker deadlocks, and the run is done all the same."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from supervised import Project

EXAMPLE = Path(__file__).parents[2] / "examples" / "first_run"


@pytest.mark.slow
@pytest.mark.ci
def test_a_deadlock_in_a_worker_is_found_worked_around_and_the_run_is_done(
    project: Project, torch_python: str
) -> None:
    shutil.copytree(EXAMPLE, project.folder, dirs_exist_ok=True)
    project.environment["PATH"] = f"{Path(torch_python).parent}{os.pathsep}{os.environ['PATH']}"

    ended = project.run("--", "python", "train.py", within=300)

    assert ended.code == 0, ended.err
    assert (project.folder / "model.pt").exists()
    attempts = project.story()["attempts"]
    assert [each["outcome"] for each in attempts[:-1]] == ["hung"] * (len(attempts) - 1)
    assert len(attempts) >= 2, ended.err
    assert attempts[-1]["last_step"] == 500
    assert attempts[-1]["strategy"]["workers"] == 0
    assert "Traceback" not in ended.err
    assert any("--with loader-inline -- python train.py" in line for line in ended.said)
