"""Where stacks cannot be had: never ended within a minute, by the long budget only, and said."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from side_by_side import SideBySide, left_behind

pytestmark = pytest.mark.slow
VICTIMS = Path(__file__).parents[1] / "victims"
STEPS = 30
LEFT_ALONE = 60.0  # seconds


def start(runs: SideBySide, python: str, *options: str) -> subprocess.Popen[str]:
    """Start a run that will hang, both without any privilege, and the script closed to all."""
    watching = runs.watching("--max-attempts", "1", *options)
    victim = (python, str(VICTIMS / "hidden.py"), str(VICTIMS / "hang_backward_gil.py"))
    return subprocess.Popen(
        [sys.executable, str(VICTIMS / "powerless.py"), *watching, *victim],
        env={**runs.environment, "VICTIM_STEPS": str(STEPS)},
        cwd=runs.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_hang_that_nobody_may_look_into(tmp_path: Path, torch_python: str) -> None:
    for name in ("usual", "short"):
        (tmp_path / name).mkdir()
    usual, short = SideBySide(tmp_path / "usual"), SideBySide(tmp_path / "short")
    with (
        start(usual, torch_python) as left_alone,
        start(short, torch_python, "--hang-after", "40s") as ended,
    ):
        try:
            _, said = ended.communicate(timeout=150)
            assert ended.returncode == 76, said
            for verdict in ("slow", "hung"):
                assert re.search(rf"^rocsteady: {verdict} ", said, re.MULTILINE), said
            _check_evidence(short)

            line = usual.story()
            time.sleep(max(0.0, line["last_progress"] + LEFT_ALONE - time.time()))
            assert left_alone.poll() is None
            assert (line["step"], line["incidents"]) == (STEPS + 1, 0)
        finally:
            left_alone.send_signal(signal.SIGTERM)
            _, said = left_alone.communicate(timeout=30)
    assert re.search(r"^rocsteady: slow ", said, re.MULTILINE), said
    assert "hung" not in said
    assert left_behind(usual.name) + left_behind(short.name) == []


def _check_evidence(runs: SideBySide) -> None:
    """All but stacks is there."""
    folder = runs.folder / ".rocsteady" / "runs" / runs.name / "incident-1"
    assert (folder / "stacks.txt").read_text().startswith("No stacks: ptrace is not permitted")
    (beat,) = json.loads((folder / "pages.json").read_text())["heartbeats"]
    assert (beat["step"], beat["phase"]) == (STEPS + 1, "backward")
    assert "step 30" in (folder / "log-tail.txt").read_text()
    processes = json.loads((folder / "processes.json").read_text())
    assert processes["snapshot"]["processes"][0]["threads"][0]["state"] == "S"
    assert (folder / "memory.json").exists()
