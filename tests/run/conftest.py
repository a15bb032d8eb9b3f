"""Real runs are of POSIX; Windows is unconfirmed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

if os.name == "nt":
    collect_ignore_glob = ["test_run.py", "test_stopping.py", "test_resuming.py", "test_disks.py"]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what an account remembers of the runs of a test with the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
