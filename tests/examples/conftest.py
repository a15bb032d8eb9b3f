"""The jobs of ``examples/``, each in a copy of its folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

TORCH_PYTHON = "ROCSTEADY_TEST_TORCH_PYTHON"

if os.name == "nt":
    collect_ignore_glob = ["test_*.py"]
else:
    from supervised import Project, until

    @pytest.fixture
    def project(tmp_path: Path) -> Iterator[Project]:
        made = Project(tmp_path)
        try:
            yield made
            until(lambda: not made.processes(), 5.0, lambda: str(made.processes()))
            assert made.left() == []
        finally:
            made.close()

    @pytest.fixture
    def torch_python() -> str:
        python = os.environ.get(TORCH_PYTHON)
        if not python:
            pytest.fail(f"{TORCH_PYTHON} names no interpreter with torch: use nox -s slow")
        return python
