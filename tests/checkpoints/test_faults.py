"""Full disks and kills: the newest whole state or none, never a wrong one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="faults are put into the calls of POSIX"),
]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount, folder = shutil.which("mount"), tmp_path / "disk"
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder.mkdir()
    command = [mount, "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)  # noqa: S607 - the system's own


def test_a_disk_that_is_really_full(run_script: Callable[..., str], small_disk: Path) -> None:
    run_script("savers/full_disk.py", str(small_disk))


def test_kills_in_the_middle_of_saves(run_script: Callable[..., str], tmp_path: Path) -> None:
    printed = run_script("savers/kills.py", "--kills", "60", "--folder", str(tmp_path / "kills"))
    assert "60 kills" in printed
    assert "0 wrong" in printed
