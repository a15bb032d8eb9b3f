"""The loop, case by case, with real torch."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import rocsteady_train

pytestmark = pytest.mark.slow

CASES = Path(__file__).parent / "loops" / "cases.py"


@pytest.mark.ci
def test_all_cases(torch_python: str, tmp_path: Path) -> None:
    names = re.findall(r"^@case\ndef (\w+)", CASES.read_text(encoding="utf-8"), re.MULTILINE)
    done = subprocess.run(
        [torch_python, "-W", "error", str(CASES)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(rocsteady_train.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.split() == names, done.stderr[-3000:]
    assert done.returncode == 0
