"""A job file is shown before it is believed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rocsteady.journal.memory import Memory
from rocsteady.journal.place import find_place
from rocsteady.supervisor.job import read_job
from rocsteady.supervisor.trust import Doubt, doubts, trust, trusted


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    opened = Memory(find_place(tmp_path, state=tmp_path / "state"))
    yield opened
    opened.close()


def job_file(tmp_path: Path, mode: int = 0o644) -> Path:
    path = tmp_path / "rocsteady.toml"
    path.write_text("command = ['python', 'train.py']\n")
    path.chmod(mode)
    return path


def test_a_job_file_is_shown_when_it_is_new_and_when_it_changed(
    tmp_path: Path, memory: Memory
) -> None:
    path = job_file(tmp_path)
    assert doubts(read_job(path), memory) == (Doubt.NEW,)

    trust(read_job(path), memory)
    memory.close()
    assert trusted(read_job(path), memory)

    path.write_text("command = ['curl', 'evil.example']\n")
    assert doubts(read_job(path), memory) == (Doubt.CHANGED,)


@pytest.mark.skipif(sys.platform == "win32", reason="owners and modes")
def test_a_job_file_that_others_own_or_write_is_shown_every_time(
    tmp_path: Path, memory: Memory
) -> None:
    path = job_file(tmp_path, mode=0o664)
    trust(read_job(path), memory)
    memory.close()

    assert doubts(read_job(path), memory) == (Doubt.OPEN,)
    theirs = msgspec.structs.replace(read_job(path), owner=4711, mode=0o644)
    assert doubts(theirs, memory) == (Doubt.ANOTHERS,)


def test_without_a_memory_a_job_file_is_always_shown(tmp_path: Path) -> None:
    place = find_place(tmp_path, state=tmp_path / "state")
    nothing = Memory(msgspec.structs.replace(place, memory=None, memory_writable=False))
    file = read_job(job_file(tmp_path))
    trust(file, nothing)

    assert doubts(file, nothing) == (Doubt.NO_MEMORY,)
