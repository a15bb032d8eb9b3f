"""Whose word is a job file, or a journal? It names a program to run.

It is shown before it is believed, unless this account used it before: what it used is kept in its
own state folder, which does not travel with a project.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from datetime import timedelta
from enum import Enum

import msgspec

from rocsteady.errors import JournalError
from rocsteady.journal.memory import Memory
from rocsteady.journal.place import Place
from rocsteady.journal.values import Run
from rocsteady.supervisor.job import JobFile

REMEMBER_WITHIN = timedelta(seconds=1)


class Doubt(Enum):
    """Why a job file must be shown to the user before it is run."""

    NEW = "it was not used before"
    CHANGED = "it changed since it was last used"
    ANOTHERS = "it belongs to another user"
    OPEN = "other users may write to it"
    NO_MEMORY = "it cannot be remembered whether it was used before"


def doubts(file: JobFile, memory: Memory) -> tuple[Doubt, ...]:
    """Return why a job file must be shown first. Nothing: it may be run."""
    found: list[Doubt] = []
    if sys.platform != "win32":
        if file.owner != os.geteuid():
            found.append(Doubt.ANOTHERS)
        if file.mode & (stat.S_IWGRP | stat.S_IWOTH):
            found.append(Doubt.OPEN)
    seen = memory.seen(_key(file))
    if seen is None:
        found.append(Doubt.NEW if memory.keeps else Doubt.NO_MEMORY)
    elif seen.sha256 != file.sha256:
        found.append(Doubt.CHANGED)
    return tuple(found)


def trusted(file: JobFile, memory: Memory) -> bool:
    """Tell whether a job file may be run without showing it."""
    return not doubts(file, memory)


def trust(file: JobFile, memory: Memory) -> None:
    """Remember a job file, as it is, once a person let it run."""
    memory.saw(_key(file), file.sha256)


def knows_run(run: Run, place: Place, memory: Memory) -> bool:
    """Tell whether this account started a run, with this command and job, in this folder."""
    seen = memory.seen(_run_key(run, place))
    return seen is not None and seen.sha256 == _digest(run)


def remember_run(run: Run, place: Place, memory: Memory) -> None:
    """Remember a run that a person of this account started."""
    memory.saw(_run_key(run, place), _digest(run))
    with contextlib.suppress(JournalError):
        memory.flush(REMEMBER_WITHIN)


def _run_key(run: Run, place: Place) -> str:
    return f"{place.database.absolute()}#{run.name}"


def _digest(run: Run) -> str:
    told = msgspec.json.encode((run.name, run.started, run.command, run.job), order="sorted")
    return hashlib.sha256(told).hexdigest()


def _key(file: JobFile) -> str:
    return str(file.path.absolute())
