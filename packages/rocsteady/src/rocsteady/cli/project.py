"""The project that the current folder belongs to, as git finds it, and its journals."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from rocsteady.run.job import FILE
from rocsteady.screens.screen import tell
from rocsteady.store.journal import Journal
from rocsteady.store.location import Place, existing_places, find_place, has_journal
from rocsteady.store.values import RunLine
from rocsteady.suggestions import no_such
from rocsteady.system.atomic_file import write_whole

OUTPUT = "detached.log"  # what such supervisors themselves had to say


def find_journal_place(folder: Path) -> Place:
    """Find where the journal of a folder lives, and say what a person should know of it."""
    place = find_place(folder)
    for note in place.notes:
        tell(f"rocsteady: {note}")
    return place


def find_project(start: Path) -> Path:
    """Return the nearest folder with a job file or a journal; ``start`` if there is none."""
    return _nearest(start, lambda folder: _has_job(folder) or has_journal(folder))


def find_job_folder(start: Path) -> Path:
    """Return the nearest folder with a job file; ``start`` if there is none."""
    return _nearest(start, _has_job)


def enter(folder: Path) -> Path:
    """Make the project's folder the current one, since its command and paths are relative to it."""
    if folder != Path.cwd():
        os.chdir(folder)
        os.environ["PWD"] = str(folder)
        tell(f"rocsteady: project folder: {folder}")
    return folder


def _has_job(folder: Path) -> bool:
    return os.path.lexists(folder / FILE)


def _nearest(start: Path, belongs: Callable[[Path], bool]) -> Path:
    return next((folder for folder in _upwards(start) if belongs(folder)), start)


def _upwards(start: Path) -> Iterator[Path]:
    """Yield a folder and those above it, up to one in which anybody may create files."""
    yield start
    for folder in start.parents:
        try:
            if folder.stat().st_mode & stat.S_IWOTH and os.name != "nt":
                return
        except OSError:
            return
        yield folder


Rank = Callable[[RunLine], tuple[bool, float]]


def newest(line: RunLine) -> tuple[bool, float]:
    return True, line.run.started


def running(line: RunLine) -> tuple[bool, float]:
    return bool(line.alive), line.run.started


@contextmanager
def open_journals() -> Iterator[tuple[Journal, ...]]:
    """Yield every journal that has runs of this project, without creating one."""
    with ExitStack() as stack:
        journals = []
        for place in existing_places(find_project(Path.cwd())):
            journals.append(Journal(place))
            stack.callback(journals[-1].close)
        yield tuple(journals)


@contextmanager
def open_journal(name: str | None = None, first: Rank = newest) -> Iterator[Journal | None]:
    """Yield the journal with the run of that name, or with the ``first`` of all runs; or None."""
    with open_journals() as journals:
        chosen = next(iter(journals), None)
        if len(journals) > 1:
            lines = [(line, journal) for journal in journals for line in journal.runs()]
            named = [each for each in lines if name in (None, each[0].run.name)]
            found = max(named or lines, key=lambda each: first(each[0]), default=None)
            chosen = found[1] if found else chosen
        yield chosen


def nothing_run(name: str | None) -> click.UsageError:
    missing = f"no run named {name!r}: there are no runs" if name else "no runs"
    return click.UsageError(
        f"{missing} in this project. To start one: rocsteady run -- python train.py"
    )


def find_run(journal: Journal | None, name: str | None) -> RunLine:
    """Return the run of that name, or the last one; a wrong name is incorrect usage."""
    lines = journal.runs() if journal else ()
    if not lines:
        raise nothing_run(name)
    if name is None:
        return lines[0]
    known = {line.run.name: line for line in lines}
    if name not in known:
        raise click.UsageError(no_such("run", name, known, "To list them: rocsteady status"))
    return known[name]


def write_asked(option: str, target: Path, content: bytes) -> None:
    try:
        write_whole(target, content)
    except OSError as error:
        raise click.UsageError(f"{option} {target}: {error.strerror or error}") from None
    tell(f"rocsteady: wrote {target}")
