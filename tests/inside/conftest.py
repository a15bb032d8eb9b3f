"""Runs real programs with ``inside/`` injected, and reads the pages that they leave."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from rocsteady_train.inside import wire

from rocsteady.run.attempt.injection import Injection, lay_out, private_folder, runtime_folders

WITHIN = 120  # seconds; a run that takes longer is stuck


class Page(NamedTuple):
    pid: int
    words: tuple[int, ...]

    @property
    def steps(self) -> int:
        return self.words[wire.W_STEP]

    @property
    def rank(self) -> int:
        return self.words[wire.W_RANK] - 1

    @property
    def end(self) -> int:
        return self.words[wire.W_END]

    @property
    def phase(self) -> str:
        return wire.PHASES[self.words[wire.W_PHASE]]

    def longest(self, phase: str) -> float:
        """Return the seconds of the longest stay in a phase."""
        return self.words[wire.W_LONGEST + wire.PHASES.index(phase)] / 1e9


class Run(NamedTuple):
    code: int
    out: bytes
    err: bytes


class Inside:
    """A folder with the injection in it, and programs that run with it or without."""

    def __init__(self, injection: Injection, folder: Path) -> None:
        self.injection = injection
        self.folder = folder
        self.bare = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables of a program that is watched."""
        bare = {**self.bare, **more}
        supervisor = os.getpid()
        return {**bare, **self.injection.environment(bare, run_id="t", supervisor=supervisor)}

    def script(self, text: str, name: str = "train.py") -> str:
        path = self.folder / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return str(path)

    def run(self, *command: str, watched: bool = True, **more: str) -> Run:
        done = subprocess.run(
            command,
            env=self.environment(**more) if watched else {**self.bare, **more},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=WITHIN,
        )
        return Run(done.returncode, done.stdout, done.stderr)

    def pages(self) -> list[Page]:
        """Return all pages, by rank and then by process."""
        found = [
            Page(int(path.stem), struct.unpack("@512Q", path.read_bytes()))
            for path in self.injection.pages.glob(f"*{wire.SUFFIX}")
        ]
        assert all(page.words[wire.W_MAGIC] == wire.MAGIC for page in found)
        return sorted(found, key=lambda page: (page.rank, page.pid))

    def page(self) -> Page:
        (page,) = self.pages()
        return page

    def notes(self) -> str:
        paths = sorted(self.injection.pages.glob(f"*{wire.NOTE_SUFFIX}"))
        return "".join(path.read_text(encoding="utf-8") for path in paths)


def _laid_out(folder: Path) -> Iterator[Inside]:
    if sys.platform == "win32":
        pytest.fail("the injection is unconfirmed on Windows")
    name = f"test-{os.getpid()}-{folder.name}"[:90]
    runtime = private_folder(runtime_folders(name, os.environ)[0])
    yield Inside(lay_out(runtime), folder)
    shutil.rmtree(runtime)


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    """Return an injection of its own for one test; nothing of it is left."""
    yield from _laid_out(tmp_path)


@pytest.fixture(scope="module")
def inside_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """Return one injection for all tests of a file that share a run."""
    yield from _laid_out(tmp_path_factory.mktemp("inside"))
