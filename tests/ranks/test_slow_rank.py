"""A rank that is steadily slower is named; ranks that are only uneven are not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from rank_faults import Torchrun
from supervised import ROCSTEADY

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[1] / "victims" / "rank_paces.py"
WITHIN = 400.0


@pytest.mark.parametrize(
    ("what", "steps", "named"),
    [
        ("data", 200, ["rank 2 takes .* of each step for its data"]),
        ("forward", 200, ["rank 2 takes .* of each step for its forward pass"]),
        ("validate", 300, []),
        ("join", 300, []),
    ],
)
def test_only_a_rank_that_is_steadily_slower_is_named(
    tmp_path: Path, ranks_python: str, what: str, steps: int, named: list[str]
) -> None:
    class Paces(Torchrun):
        ranks = 4
        script = (SCRIPT, what, steps)

    variables = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    torchrun = Paces(ranks_python, tmp_path / "run", 0, **variables)
    try:
        code = torchrun.process.wait(WITHIN)
    finally:
        torchrun.close()

    slow = re.findall(r"rocsteady: slow: (.*)", torchrun.said())
    assert code == 0, torchrun.said()
    assert len(slow) == len(named), torchrun.said()
    assert all(re.match(*each) for each in zip(named, slow, strict=True)), slow
    report = subprocess.run(
        [*ROCSTEADY, "report"],
        cwd=torchrun.folder,
        env={**variables, "PATH": "/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ("rank 2 takes" in report.stdout) == bool(named)
