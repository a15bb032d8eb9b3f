"""Some of the forty failures, for a shorter time; forty.py stages all of them for 100 s."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from forty import STAGED, apart, listed

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount namespace: root")


def test_each_is_staged() -> None:
    assert list(listed()) == list(STAGED)


@root
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("http-404", marks=pytest.mark.ci),
        pytest.param("sigterm", marks=pytest.mark.ci),
        pytest.param("checkpoints-gone", marks=pytest.mark.ci),
        "exception",
        "disk-full",
        "file-vanished",
        "file-locked",
        "gpu-taken",
        "killed-at-start",
        "disk-stays-full",
        "file-never-there",
    ],
)
def test_a_failure_that_clears_up_or_does_not(name: str, tmp_path: Path, torch_python: str) -> None:
    result = apart(name, tmp_path / name, torch_python, lasts=8)

    assert result.right, (result.wrong, result.lines)
