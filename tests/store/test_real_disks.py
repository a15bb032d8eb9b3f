"""A disk that really hangs and one that is really full: an ext4 image of our own, as root."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rocsteady.errors import NotRecordedError
from rocsteady.model import IntentKind, Strategy
from rocsteady.store.journal import Journal
from rocsteady.store.location import Place, find_place
from rocsteady.store.values import MessageRecord

TOOLS = ("mkfs.ext4", "mount", "umount", "fsfreeze")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or not all(map(shutil.which, TOOLS)),
        reason="needs root to mount and freeze a file system",
    ),
]


def tool(*command: str | Path) -> bool:
    return subprocess.run(list(map(str, command)), capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    with image.open("wb") as stream:
        stream.truncate(16 << 20)
    assert tool("mkfs.ext4", "-q", "-F", image)
    if not tool("mount", "-o", "loop", image, folder):
        pytest.skip("this machine lets nobody mount a loop device")
    try:
        yield folder
    finally:
        tool("fsfreeze", "-u", folder)
        assert tool("umount", folder)


@pytest.fixture
def place_on_it(disk: Path, tmp_path: Path) -> Place:
    return find_place(disk, state=tmp_path / "state")


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(bytes(4096)):
            pass


def test_a_disk_that_hangs_holds_nobody_up(disk: Path, place_on_it: Place) -> None:
    journal = Journal(place_on_it, intend_within=timedelta(seconds=1))
    run = journal.begin_run(("python",), job={}, strategy=Strategy())
    assert tool("fsfreeze", "-f", disk)
    start = time.monotonic()

    for number in range(20_000):
        journal.record(MessageRecord(run=run.id, text=str(number), at=0.0))
    handed_over = time.monotonic() - start
    with pytest.raises(NotRecordedError, match="within 1 s"):
        journal.intend(IntentKind.KILL, "the tree")
    refused = time.monotonic() - start - handed_over

    assert handed_over < 3
    assert 0.9 < refused < 1.5
    assert journal.losses.dropped > 10_000
    assert tool("fsfreeze", "-u", disk)
    journal.flush()
    assert journal.unfinished() == ()
    assert "19999" in [message.text for message in journal.story(run.name).messages]
    deadline = time.monotonic() + 10
    while said_to_be_lost(journal, run.name) < journal.losses.dropped:  # in one notice or more
        assert time.monotonic() < deadline
        journal.flush()
    assert said_to_be_lost(journal, run.name) == journal.losses.dropped
    assert journal.close()


def said_to_be_lost(journal: Journal, name: str) -> int:
    said = re.compile(r"(\d+) entries of the journal were lost")
    found = (said.match(message.text) for message in journal.story(name).messages)
    return sum(int(notice[1]) for notice in found if notice)


def test_closing_while_the_disk_hangs_is_bounded(disk: Path, place_on_it: Place) -> None:
    journal = Journal(place_on_it)
    run = journal.begin_run(("python",), job={}, strategy=Strategy())
    assert tool("fsfreeze", "-f", disk)
    journal.record(MessageRecord(run=run.id, text="lost", at=0.0))
    start = time.monotonic()

    assert not journal.close(timedelta(seconds=0.5))
    assert time.monotonic() - start < 1
    assert tool("fsfreeze", "-u", disk)
    assert journal.close()


def test_a_full_disk_costs_the_oldest_and_says_so_when_there_is_room(
    disk: Path, place_on_it: Place
) -> None:
    journal = Journal(place_on_it)
    run = journal.begin_run(("python",), job={}, strategy=Strategy())
    ballast = disk / "ballast"
    fill(ballast)
    for number in range(10_000):
        journal.record(MessageRecord(run=run.id, text=f"{number} " * 50, at=0.0))
    with pytest.raises(NotRecordedError, match="full"):
        journal.intend(IntentKind.KILL, "the tree")
    for number in range(10_000):
        journal.record(MessageRecord(run=run.id, text=str(number), at=0.0))

    dropped = journal.losses.dropped
    ballast.unlink()
    journal.flush()

    assert dropped > 0
    texts = [message.text for message in journal.story(run.name).messages]
    assert "9999" in texts
    assert [text for text in texts if "were lost: " in text and "full" in text]
    assert journal.close()
