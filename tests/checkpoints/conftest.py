"""Scripts with torch, run in the interpreter that has it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import rocsteady_train

HERE = Path(__file__).parent
PACKAGE = Path(rocsteady_train.__file__).parents[1]


@pytest.fixture
def run_script(torch_python: str, tmp_path: Path) -> Callable[..., str]:
    """Run a script to its end, and return what it printed."""

    def run(script: str, *arguments: str, **variables: str) -> str:
        usual = {"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(
            [torch_python, str(HERE / script), *arguments],
            cwd=tmp_path,
            env=os.environ | usual | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=570,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    return run
