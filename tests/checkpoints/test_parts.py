"""Batches in parts: exact, and within memory.

The cases are in ``parts/``, and run in the interpreter that has torch: a process for each file.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "parts"
SOURCE = Path(__file__).parents[2] / "packages" / "rocsteady-train" / "src"
FILES = ("exact.py", "errors.py", "memory.py", "ranks.py")
GLIBC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}  # see memory.py

if sys.platform != "linux":
    pytest.skip("limits of address space are Linux's", allow_module_level=True)


def cases() -> list[tuple[str, str]]:
    return [
        (name, node.name)
        for name in FILES
        for node in ast.parse((FOLDER / name).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")
    ]


@functools.cache
def told(python: str, name: str) -> dict[str, Any]:
    """Run the cases of a file, all in one process."""
    done = subprocess.run(
        [python, "-W", "error", str(FOLDER / "run.py"), str(FOLDER / name)],
        env={**os.environ, **GLIBC, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["case"]: line for line in lines} | {"": done.stderr[-4000:]}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), cases())
def test_parts(torch_python: str, name: str, case: str) -> None:
    seen = told(torch_python, name)

    assert case in seen, seen[""]
    assert "error" not in seen[case], seen[case]["error"]
    print(f"{case}: {json.dumps(seen[case]['measured'])}")  # noqa: T201 - figures, with pytest -rP
