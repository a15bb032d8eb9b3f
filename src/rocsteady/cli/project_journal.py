"""The journal of the current project, for commands that only read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from rocsteady.cli.project import find_project
from rocsteady.journal.journal import Journal
from rocsteady.journal.place import existing_place
from rocsteady.journal.values import RunLine
from rocsteady.suggestions import no_such


@contextmanager
def kept_journal() -> Iterator[Journal | None]:
    """Give the journal; None if nothing was ever run here. Nothing is made for it."""
    place = existing_place(find_project(Path.cwd()))
    if place is None:
        yield None
        return
    journal = Journal(place)
    try:
        yield journal
    finally:
        journal.close()


def nothing_run(name: str | None) -> click.UsageError:
    """Return the error for a project without runs."""
    missing = f"no run named {name!r}" if name else "no runs"
    return click.UsageError(f"{missing}: this project has no runs")


def find_run(journal: Journal | None, name: str | None) -> RunLine:
    """Return the run of that name, or the last one; a wrong name is incorrect usage."""
    lines = journal.runs() if journal else ()
    if not lines:
        raise nothing_run(name)
    if name is None:
        return lines[0]
    known = {line.run.name: line for line in lines}
    if name not in known:
        raise click.UsageError(no_such("run", name, known, "To list them: rocsteady runs"))
    return known[name]
