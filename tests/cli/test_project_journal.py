"""Commands that only read the journal make nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("status",), 0, ""),
        (("status", "--json"), 0, ""),
        (("report",), 2, "no runs: this project has no runs"),
        (("report", "calm-otter"), 2, "no run named 'calm-otter': this project has no runs"),
        (("stop", "calm-otter"), 2, "no run named 'calm-otter'"),
    ],
)
def test_nothing_is_made_where_nothing_was_run(
    tmp_path: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}
    environment.pop("XDG_STATE_HOME", None)
    done = subprocess.run(
        [sys.executable, "-B", "-m", "rocsteady", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
        text=True,
    )

    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []
