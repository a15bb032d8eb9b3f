"""An interpreter with the frameworks. Real runs are of POSIX; Windows is unconfirmed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

if os.name == "nt":
    collect_ignore_glob = ["test_*.py"]
else:
    from beside_torch import python_with

WANTED = ("transformers", "accelerate", "lightning")
VENV = Path(__file__).parents[2] / ".ci" / "frameworks-venv"
FRAMEWORKS_PYTHON = "ROCSTEADY_TEST_FRAMEWORKS_PYTHON"  # one that has all of them, instead


@pytest.fixture(scope="session")
def frameworks_python(torch_python: str) -> str:
    """Return an interpreter with torch and the frameworks: the one named, or one made here once."""
    named = os.environ.get(FRAMEWORKS_PYTHON)
    if named:
        return named
    return python_with(WANTED, VENV, torch_python)
