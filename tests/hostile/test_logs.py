"""Logs and names that others made: printed to an end, in one row, and with their path."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from in_process import Command
from journals import NAME, write_journal

LOG = Path(".rocsteady", "runs", NAME, "attempt-1.log")
HUGE = 1 << 40  # bytes

posix = pytest.mark.skipif(os.name == "nt", reason="holes and FIFOs of POSIX")


def logs(*words: str) -> subprocess.CompletedProcess[str]:
    """Print the log in a process of its own, which ends in time."""
    command = [sys.executable, "-m", "rocsteady", "logs", NAME, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def log(command: Command) -> Path:
    del command  # it has made the project
    write_journal(Path.cwd(), ["text"])
    LOG.parent.mkdir(parents=True, exist_ok=True)
    return LOG


@posix
@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="holes are not told from zeros here")
def test_a_hole_is_left_out_and_named(log: Path) -> None:
    with log.open("wb") as stream:
        stream.write(b"first\n")
        stream.seek(HUGE)
        stream.write(b"\nmiddle\nlast\n")
        stream.truncate(2 * HUGE)

    whole = logs()

    assert (whole.returncode, whole.stderr) == (0, "")
    found = [line.strip("\\x0") for line in whole.stdout.splitlines()]
    assert [line for line in found if line in ("first", "middle", "last")] == [
        "first",
        "middle",
        "last",
    ]
    assert whole.stdout.count("bytes: attempt-1.log has a hole here") == 2
    assert len(whole.stdout) < 1_000_000


@posix
def test_last_lines_are_not_looked_for_without_end(log: Path) -> None:
    with log.open("wb") as stream:
        stream.truncate(HUGE)
        stream.seek(0, os.SEEK_END)
        stream.write(b"\nlast\n")

    assert logs("-n", "1").stdout.endswith("last\n")
    far = logs("-n", "9")
    assert far.stdout.startswith("rocsteady: showing only the last 256 MiB of 9 lines\n")
    assert far.stdout.endswith("last\n")


@posix
def test_what_is_no_file_is_named(log: Path) -> None:
    os.mkfifo(log)

    ended = logs()

    assert ended.returncode == 3
    assert f"{log.name}: not a regular file" in ended.stderr


@pytest.mark.parametrize("hostile", ["calm\nloud-otter done", "a\r\nb", "a\vb\u2028c", "\n\n"])
def test_a_name_or_an_end_with_lines_stays_in_its_row(command: Command, hostile: str) -> None:
    write_journal(Path.cwd(), ["text"])
    with sqlite3.connect(Path(".rocsteady", "journal.db")) as journal:
        journal.execute("UPDATE runs SET name = ?, outcome = ?", (hostile, hostile))
    journal.close()

    said = command("status")

    assert said.code == 0
    assert len(said.out.splitlines()) == 2  # the titles, and one run
