"""Environments with more packages than torch, for tests, each made once."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

TORCH = "torch==2.13.0"  # spelled exactly so: anything wider pulls gigabytes


def python_with(wanted: tuple[str, ...], venv: Path, torch_python: str) -> str:
    """Return an interpreter that has torch and these packages; the environment is made if need be.

    It sees the packages of the torch environment, so that torch is neither copied nor replaced.
    """
    venv.parent.mkdir(exist_ok=True)
    lock = os.open(venv.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the other workers wait
        python, made_for = venv / "bin" / "python", venv / "made-for"
        if not made_for.exists() or made_for.read_text() != torch_python:
            _make(wanted, venv, torch_python, python)
            made_for.write_text(torch_python)
    finally:
        os.close(lock)
    return str(python)


def _make(wanted: tuple[str, ...], venv: Path, torch_python: str, python: Path) -> None:
    def run(*command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    folder = "import sysconfig; print(sysconfig.get_path('purelib'))"
    run(torch_python, "-m", "venv", "--clear", str(venv))
    theirs, ours = run(torch_python, "-c", folder), run(str(python), "-c", folder)
    Path(ours, "torch-venv.pth").write_text(f"{theirs}\n")
    if not wanted:
        return
    constraints = venv / "constraints.txt"
    constraints.write_text(f"{TORCH}\n")
    run(str(python), "-m", "pip", "install", "-qq", "-c", str(constraints), TORCH, *wanted)
    assert not Path(ours, "torch").exists(), "torch was installed anew"
