"""Which checkpoints a run may use: those that it wrote, and those that it was told to continue.

Checkpoints that are there when a run begins are listed in its folder, so that they can be told from
its own later, also by a supervisor that takes the run over, and whatever the clock does meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from rocsteady.host.files import write_whole
from rocsteady.journal.values import Run
from rocsteady.supervisor.done import CLOCK_GRAIN, matches
from rocsteady.supervisor.job_values import Resume
from rocsteady.untrusted_file import read_head
from rocsteady.vocabulary import Value

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


def taken_over(
    run: Run, others: Iterable[Run], resume: Resume | None, found: frozenset[Stamp]
) -> Origin:
    """Return what a run that was left may use: not what other runs have written since."""
    own = kept(Path(run.folder)) or Origin()
    others = [other for other in others if other.id != run.id]
    later = [other for other in others if other.id > max(run.id, own.runs)]
    written = {each for other in later for each in _by(other, resume, found)}
    return Origin(
        before=own.before,
        foreign=own.foreign | (written - own.before),
        runs=max((other.id for other in others), default=0),
    )


def _by(run: Run, resume: Resume | None, found: frozenset[Stamp]) -> Iterable[Stamp]:
    """Return the checkpoints that another run may have written: those that it did not find."""
    origin, its = kept(Path(run.folder)), run.job.get("resume")
    patterns = its.get("checkpoints") if isinstance(its, dict) else None
    if origin is not None and resume is not None and patterns == list(resume.checkpoints):
        return found - origin.before
    end = float("inf") if run.ended is None else run.ended + CLOCK_GRAIN
    begin = run.started - CLOCK_GRAIN
    return [each for each in found if begin <= each.written / NANOSECONDS <= end]
