"""Scripts with torch, run in the interpreter that has it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import rocsteady_train

SAVERS = Path(__file__).parent / "savers"
PACKAGE = Path(rocsteady_train.__file__).parents[1]


@pytest.fixture
def saver(torch_python: str, tmp_path: Path) -> Callable[..., str]:
    """Run a script of ``savers`` to its end, and return what it printed."""

    def run(*command: str, seconds: float = 300) -> str:
        script, *arguments = command
        ended = subprocess.run(
            [torch_python, str(SAVERS / script), *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    return run


@pytest.fixture
def cases(saver: Callable[..., str], tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Run the cases of a script; return those that failed, each with its traceback."""

    def run(script: str) -> dict[str, str]:
        names = re.findall(r"^def (case_\w+)", (SAVERS / script).read_text(), re.MULTILINE)
        printed = saver("run_cases.py", str(SAVERS / script), str(tmp_path / "cases"))
        found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        assert [result["case"] for result in found] == names
        return {result["case"]: result["error"] for result in found if result["error"]}

    return run
