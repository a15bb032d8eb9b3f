"""Whose word is a job file? It names a program to run, so it is shown before it is believed."""

from __future__ import annotations

import os
import stat
import sys
from enum import Enum

from rocsteady.journal.memory import Memory
from rocsteady.supervisor.job import JobFile


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


def _key(file: JobFile) -> str:
    return str(file.path.absolute())
