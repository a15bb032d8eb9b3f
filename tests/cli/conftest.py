"""Runs the real command in a real process, as a person would."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest


class Run(NamedTuple):
    """How one run ended."""

    code: int
    out: str
    err: str
    seconds: float


class Rocsteady:
    """The command, in an empty folder and a bare environment."""

    machines = Path(__file__).parents[1] / "machines"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
        if os.name == "nt":
            self.environment["SYSTEMROOT"] = os.environ["SYSTEMROOT"]

    def __call__(self, *arguments: str | Path, env: Mapping[str, str] | None = None) -> Run:
        start = time.monotonic()
        done = subprocess.run(
            self.line(*arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            timeout=120,
            env={**self.environment, **(env or {})},
            cwd=self.folder,
        )
        return Run(done.returncode, done.stdout, done.stderr, time.monotonic() - start)

    def line(self, *arguments: str | Path) -> list[str]:
        """Return the command line."""
        return [sys.executable, "-m", "rocsteady", *map(str, arguments)]

    def machine(self, name: str) -> Path:
        """Return the recording of one machine."""
        return self.machines / f"{name}.json"


@pytest.fixture
def cli(tmp_path: Path) -> Rocsteady:
    """Return the command."""
    return Rocsteady(tmp_path)
