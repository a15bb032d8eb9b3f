"""Which checkpoints a run may use: those that it wrote, and those that it was told to continue.

Checkpoints that are there when a run begins are listed in its folder, so that they can be told from
its own later, also by a supervisor that takes the run over, and whatever the clock does meanwhile.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from rocsteady.host.atomic_file import write_whole
from rocsteady.job.done_when import matches
from rocsteady.job.values import Resume
from rocsteady.model import Value
from rocsteady.untrusted_file import read_head

FILE = "checkpoints-before.json"
SIZE_LIMIT = 64 * 1024 * 1024  # bytes
NANOSECONDS = 1e9


class Stamp(Value, frozen=True, kw_only=True):
    """A checkpoint as it was found: one that was written again has another stamp."""

    path: str  # as its pattern is written
    written: int  # nanoseconds since 1970
    size: int


class Origin(Value, frozen=True, kw_only=True):
    """What was there when a run began, and what of it the run must not use."""

    before: frozenset[Stamp] = frozenset()
    foreign: frozenset[Stamp] = frozenset()
    runs: int = 0  # keys of the journal's runs up to which this accounts for what they wrote


def stamp(folder: Path, path: Path) -> Stamp | None:
    """Return a checkpoint's stamp; None if it is gone. A folder has that of its newest file."""
    place = folder / path
    try:
        facts = [place.stat()]
        if place.is_dir():
            facts += [entry.stat() for entry in place.iterdir()]
    except OSError:
        return None
    newest = max(fact.st_mtime_ns for fact in facts)
    return Stamp(path=str(path), written=newest, size=sum(fact.st_size for fact in facts))


def find(resume: Resume | None, folder: Path) -> frozenset[Stamp]:
    """Return the checkpoints that are there, whole or not."""
    if resume is None:
        return frozenset()
    paths = {path for pattern in resume.checkpoints for path in matches(folder, pattern)}
    return frozenset(each for path in paths if (each := stamp(folder, path)) is not None)


def keep(origin: Origin, records: Path) -> None:
    """Keep it with the records of a run; where that is not possible, the run goes on without."""
    with contextlib.suppress(OSError):
        write_whole(records / FILE, msgspec.json.encode(origin))


def kept(records: Path) -> Origin | None:
    """Return what was kept when a run began; None for a run of an earlier version."""
    try:
        return msgspec.json.decode(read_head(records / FILE, SIZE_LIMIT), type=Origin)
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError):
        return None
