"""Real runs are of POSIX; Windows is unconfirmed."""

from __future__ import annotations

import os

import pytest

if os.name == "nt":
    collect_ignore_glob = ["test_*.py"]
else:
    from replays.replay import Replay
    from supervised import Project

    @pytest.fixture
    def replay(project: Project, torch_python: str) -> Replay:
        return Replay(project, torch_python)
