"""The journal of the folder that we are in, for commands that only read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocsteady.journal.journal import Journal
from rocsteady.journal.place import existing_place


@contextmanager
def kept_journal() -> Iterator[Journal | None]:
    """Give the journal; None if nothing was ever run here. Nothing is made for it."""
    place = existing_place(Path.cwd())
    if place is None:
        yield None
        return
    journal = Journal(place)
    try:
        yield journal
    finally:
        journal.close()
