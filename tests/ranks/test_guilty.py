"""Which rank is stuck: the journal of a real run names it, with its line."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("runs are of POSIX; Windows is unconfirmed", allow_module_level=True)

from rank_faults import DEADLOCKS, RANKS, Torchrun, inject

pytestmark = pytest.mark.slow
NUMBER = int(os.environ.get("ROCSTEADY_RANK_HANGS", "3"))


def incidents(torchrun: Torchrun) -> list[dict[str, Any]]:
    """Return what the journal says about the run so far, oldest first."""
    told = subprocess.run(
        [sys.executable, "-m", "rocsteady", "report", "--json"],
        cwd=torchrun.folder,
        env={**os.environ, "HOME": str(torchrun.folder.parent)},
        check=True,
        capture_output=True,
        text=True,
    )
    found: list[dict[str, Any]] = json.loads(told.stdout)["incidents"]
    return found


def test_the_rank_that_is_stuck_is_named(tmp_path: Path, ranks_python: str) -> None:
    seed = 20774
    draw = random.Random(seed)  # noqa: S311 - not for secrets
    variables = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    torchrun = Torchrun(ranks_python, tmp_path / "run", 10_000, **variables)
    wanted: list[tuple[str, int]] = []
    try:
        for _ in range(NUMBER):
            assert torchrun.until(lambda: torchrun.generations() > len(wanted)), torchrun.said()
            time.sleep(draw.uniform(0.0, 1.5))
            kind, rank = draw.choice(DEADLOCKS), draw.randrange(RANKS)
            wanted.append((kind, rank))
            assert inject(torchrun, kind, rank).recovered, torchrun.said()
        found = incidents(torchrun)
    finally:
        torchrun.close()

    named = [[each["rank"] for each in (it["blame"] or {}).get("ranks", ())] for it in found]
    missed = [(each, by) for each, by in zip(wanted, named, strict=True) if by != [each[1]]]
    assert not missed, (seed, missed, torchrun.said())
