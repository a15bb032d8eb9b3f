"""Faults at random moments: each is recovered from, at the cost of one restart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
HARNESS = Path(__file__).parents[1] / "victims" / "rank_faults.py"
NUMBER = os.environ.get("ROCSTEADY_RANK_FAULTS", "")  # set by nox -s long


@pytest.mark.skipif(not NUMBER, reason="takes an hour; run by nox -s long")
@pytest.mark.skipif(sys.platform == "win32", reason="runs are of POSIX; Windows is unconfirmed")
def test_every_fault_is_recovered_from(tmp_path: Path, ranks_python: str) -> None:
    seed = "20774"
    command = [sys.executable, str(HARNESS), ranks_python, str(tmp_path), NUMBER, seed]
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}

    code = subprocess.run(command, env=environment, check=False).returncode

    assert code == 0, "\n".join(log.read_text()[-4000:] for log in tmp_path.glob("run-*/log"))
