"""Checkpoints, the loop and micro-batches, case by case, in the interpreter that has torch."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GLIBC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}  # see parts/memory.py
posix = pytest.mark.skipif(os.name == "nt", reason="forks, or puts faults into calls of POSIX")
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's")


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        pytest.param("savers/state.py", marks=pytest.mark.ci),
        pytest.param("savers/faults.py", marks=[pytest.mark.ci, posix]),
        pytest.param("savers/ranks.py", marks=posix),
        pytest.param("loops/cases.py", marks=pytest.mark.ci),
        *(pytest.param(f"parts/{name}.py", marks=linux) for name in ("exact", "errors", "memory")),
        pytest.param("parts/ranks.py", marks=linux),
    ],
)
def test_cases(run_script: Callable[..., str], tmp_path: Path, script: str) -> None:
    names = re.findall(r"^def (case_\w+)", (HERE / script).read_text(), re.MULTILINE)
    variables = GLIBC if script.startswith("parts/") else {}

    printed = run_script("run_cases.py", str(HERE / script), str(tmp_path / "cases"), **variables)

    found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [result["case"] for result in found] == names
    assert {result["case"]: result["error"] for result in found if result["error"]} == {}
    for result in found:
        if result["measured"] is not None:  # figures, with pytest -rP
            print(f"{result['case']}: {json.dumps(result['measured'])}")  # noqa: T201
