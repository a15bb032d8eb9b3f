"""Whether this account started a run: if not, its command is confirmed before it is resumed.

What an account started is kept in its own state folder, which does not travel with a project.
"""

from __future__ import annotations

import contextlib
import hashlib
from datetime import timedelta

import msgspec

from rocsteady.errors import JournalError
from rocsteady.store.location import Place
from rocsteady.store.machine_history import Memory
from rocsteady.store.values import Run

REMEMBER_WITHIN = timedelta(seconds=1)


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
