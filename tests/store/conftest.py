"""A journal in a folder of its own. After each test no thread of ours may be left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocsteady.store.identity import Identity
from rocsteady.store.journal import Journal
from rocsteady.store.location import Place, find_place

HERE = Identity(machine="m1", boot_id="boot-1", process="")
OpenJournal = Callable[..., Journal]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture
def place(tmp_path: Path) -> Place:
    project = tmp_path / "project"
    project.mkdir()
    return find_place(project, state=tmp_path / "state")


@pytest.fixture
def open_journal(place: Place) -> Iterator[OpenJournal]:
    opened: list[Journal] = []

    def make(**options: object) -> Journal:
        opened.append(Journal(place, **options))  # type: ignore[arg-type] # as the test says
        return opened[-1]

    yield make
    for journal in opened:
        journal.close()


@pytest.fixture
def journal(open_journal: OpenJournal) -> Journal:
    return open_journal()
