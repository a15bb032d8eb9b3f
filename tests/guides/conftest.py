"""An interpreter with the frameworks. Real runs are of POSIX; Windows is unconfirmed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

if os.name == "nt":
    collect_ignore_glob = ["test_*.py"]
else:
    import fcntl

TORCH = "torch==2.13.0"  # spelled exactly so: anything wider pulls gigabytes
WANTED = ("transformers", "accelerate", "lightning")
VENV = Path(__file__).parents[2] / ".ci" / "frameworks-venv"
FRAMEWORKS_PYTHON = "ROCSTEADY_TEST_FRAMEWORKS_PYTHON"  # one that has all of them, instead


@pytest.fixture(scope="session")
def frameworks_python(torch_python: str) -> str:
    """Return an interpreter with torch and the frameworks: the one named, or one made here once.

    It sees the packages of the torch environment, so that torch is neither copied nor replaced.
    """
    named = os.environ.get(FRAMEWORKS_PYTHON)
    if named:
        return named
    VENV.parent.mkdir(exist_ok=True)
    lock = os.open(VENV.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the other workers wait
        python, made_for = VENV / "bin" / "python", VENV / "made-for"
        if not made_for.exists() or made_for.read_text() != torch_python:
            _make(torch_python, python)
            made_for.write_text(torch_python)
    finally:
        os.close(lock)
    return str(python)


def _make(torch_python: str, python: Path) -> None:
    def run(*command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    folder = "import sysconfig; print(sysconfig.get_path('purelib'))"
    run(torch_python, "-m", "venv", "--clear", str(VENV))
    theirs, ours = run(torch_python, "-c", folder), run(str(python), "-c", folder)
    Path(ours, "torch-venv.pth").write_text(f"{theirs}\n")
    constraints = VENV / "constraints.txt"
    constraints.write_text(f"{TORCH}\n")
    run(str(python), "-m", "pip", "install", "-qq", "-c", str(constraints), TORCH, *WANTED)
    assert not Path(ours, "torch").exists(), "torch was installed anew"
