"""The job with something wrong below it. Real runs are of POSIX; Windows is unconfirmed."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

if os.name == "nt":
    collect_ignore_glob = ["test_*.py"]
else:
    from supervised import Ended, Project

    HERE = Path(__file__).parent
    HURRIED = (sys.executable, str(HERE.parent / "victims" / "hurried.py"))
    RESUMES = """
[resume]
arguments = ["--resume", "{checkpoint}"]
checkpoints = ["checkpoints/*.pt"]

[done_when]
files = [{ path = "model.pt", kind = "model" }]
"""

    class Failing:
        def __init__(self, project: Project, python: str) -> None:
            self.project = project
            self.launcher: tuple[str, ...] = (python,)
            for name in ("job.py", "drivers.py"):
                shutil.copy(HERE / name, project.folder)
            project.program = HURRIED

        def run(self, driver: str, *more: str, options: tuple[str, ...] = (), **env: str) -> Ended:
            command = json.dumps([*self.launcher, "job.py", "--driver", driver, *more])
            resumes = "" if "--no_checkpoints" in more else RESUMES
            (self.project.folder / "rocsteady.toml").write_text(f"command = {command}\n{resumes}")
            self.project.environment |= env
            return self.project.run(*options, within=280)

        @property
        def story(self) -> dict[str, Any]:
            return self.project.story()

        @property
        def failures(self) -> list[str]:
            return [row["failure"]["kind"] for row in self.story["failures"]]

        @property
        def remedies(self) -> list[str]:
            return self.project.decided()

        def last_strategy(self) -> dict[str, Any]:
            return dict(self.story["attempts"][-1]["strategy"])

    @pytest.fixture
    def failing(project: Project, torch_python: str) -> Failing:
        return Failing(project, torch_python)
