"""The small form of benchmarks/forecast.py: two jobs, tried, forecast and run to their end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "forecast.py"
TIMES = 4.0  # that a busy machine may be slower or faster from one minute to the next


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a job is held to one processor: Linux")
def test_two_jobs_end_about_when_their_trials_say(torch_python: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    words = ["--python", torch_python, "--jobs", "mlp,crashes-once", "--json", str(figures)]
    told = subprocess.run(
        [sys.executable, str(BENCHMARK), *words, "--seconds", "10", "--trial", "3"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    results = {result["job"]: result for result in json.loads(figures.read_bytes())}
    assert sorted(results) == ["crashes-once", "mlp"], told.stderr
    for result in results.values():
        ahead = result["forecast"]
        assert result["code"] == 0, told.stderr
        assert result["trial"] <= 60
        assert 0 < ahead["early"] < ahead["seconds"] < ahead["late"]
        assert 1 / TIMES < result["real"] / ahead["seconds"] < TIMES
    assert "of 2; median error: " in told.stdout
