"""Waiting for what can clear up by itself: how long, until when, and what ends a wait early.

docs/explanation-recovery.md has the policy.
"""

from __future__ import annotations

import re
import shutil
import textwrap
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.model import Decision, Failure, FailureKind, Outcome
from rocsteady.run.options import RunOptions
from rocsteady.run.recovery.history import History
from rocsteady.store.redaction import hide_secrets
from rocsteady.store.values import AttemptResult
from rocsteady.system.mounted_drives import ANSWERS_WITHIN, CLOCK_GRAIN, mounts
from rocsteady.system.parallel import in_time

LONGEST_WAIT = timedelta(minutes=10)
DAY = timedelta(days=1)
NEVER_STEPPED = timedelta(hours=1)  # what never worked may be a typo
IN_ALLOCATION = timedelta(minutes=20)  # whose GPUs are idle meanwhile
SCHEDULERS = ("SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST", "PBS_JOBID", "LSB_JOBID")
ROOM = 64 << 20  # bytes that must be free again at least
MAX_ENTRIES = 10_000  # of a folder that are looked at
INTENDED = (FailureKind.INTERRUPTED, FailureKind.SCRIPT_EXIT)
_MISSING = re.compile(
    r"\[Errno 2\] No such file or directory: (?P<quote>['\"])(?P<path>.+?)(?P=quote)"
)


_ERROR_NUMBER = re.compile(r"(?:<urlopen error )?\[Errno -?\d+\] ")
DETAIL = 100  # characters of an error that are shown
# Whose names say it all.
PLAIN = (FailureKind.KILLED, FailureKind.OOM_HOST, FailureKind.GPU_TAKEN)


def limit_of(history: History, options: RunOptions, *, in_allocation: bool) -> timedelta:
    """Return how long tries go on without progress."""
    if options.give_up_after is not None:
        return options.give_up_after
    if in_allocation:
        return IN_ALLOCATION
    return DAY if history.stepped else NEVER_STEPPED


def wait_of(decision: Decision, history: History, options: RunOptions, limit: timedelta) -> float:
    """Return the seconds before the next try; each is twice as long as the one before."""
    result, outcome = history.result, history.last.outcome if history.last else None
    quick = result.seconds < options.timing.quick_crash.total_seconds()
    crashed_again = quick and outcome is Outcome.BY_ITSELF and history.repeats
    if not history.tries or not (decision.waits or crashed_again):
        return 0.0
    left = limit.total_seconds() - history.waited
    doubled = options.timing.back_off.total_seconds() * 2.0 ** min(history.tries - 1, 20)
    return max(0.0, min(doubled, LONGEST_WAIT.total_seconds(), left))


class Drives:
    """What is gone that was there when a supervisor began: folders, files, whole drives."""

    def __init__(self, folder: Path, gone: Callable[[], Path | None] = lambda: None) -> None:
        self._folder = folder
        self._gone = gone  # the folder of the run's checkpoints
        self._mounts = mounts().keys()
        self._began = time.time() - CLOCK_GRAIN

    def judged(  # noqa: PLR0911 - one return a cause
        self,
        failure: Failure,
        history: History,
        result: AttemptResult,
        given: Path | None = None,
    ) -> Failure:
        """Tell a path that was there before from one that never was.

        ``given``: the checkpoint that the script was told.
        """
        stepped, unsaved = result.stepped, result.unsaved
        if failure.kind not in INTENDED and (gone := self._gone()):
            return renamed(failure, FailureKind.STORAGE_UNAVAILABLE, f"{gone} is gone")
        if unsaved and failure.kind == FailureKind.STORAGE_UNAVAILABLE:
            why = "the disk or the quota is full, or the drive fails"
            return replace(failure, title=f"{unsaved} could not be written: {why}")
        if unsaved and failure.kind == FailureKind.DISK_FULL:
            return replace(failure, title=f"The disk is full: {unsaved} could not be written")
        if failure.kind != FailureKind.SCRIPT_ERROR or not (stepped or history.stepped):
            return failure
        found = list(_MISSING.finditer("\n".join((*failure.seen, failure.traceback))))
        if not found:
            return failure
        path = found[-1]["path"]
        known = (self._folder / path, *([given] if given and given.name == Path(path).name else []))
        there = next(filter(_answers, known), None)
        again = path in history.missed
        elsewhere = there is not None and there == given and there != Path(path)
        if there and not stepped and (again or elsewhere):  # it looks in another folder
            said = failure.seen[0] if failure.seen else failure.title
            return replace(failure, seen=(f"{said}; {there} is there", *failure.seen[1:]))
        if again and stepped and not self._is_gone(path):
            return failure
        title = f"{path} was not there for a moment" if there else f"{path} is gone"
        failure = renamed(failure, FailureKind.STORAGE_UNAVAILABLE, title)
        return replace(failure, missing=path)

    def cleared(self, history: History, room: int = 0) -> Callable[[], bool]:
        """Return what tells that the last failure is over; ``room``: bytes of a checkpoint."""
        if self._gone() is not None:
            return lambda: self._gone() is None
        kind = history.failure.kind if history.failure else ""
        unsaved = history.result.unsaved
        disk = Path(unsaved).parent if unsaved else self._folder
        if kind == FailureKind.DISK_FULL:
            size, free = _usage(disk)
            wanted = free + max(min(ROOM, size // 10), room + room // 5)
            return lambda: _usage(disk)[1] >= wanted
        if kind == FailureKind.STORAGE_UNAVAILABLE and history.failure and history.failure.missing:
            return lambda: all(_answers(self._folder / path) for path in history.missed)
        return lambda: False

    def _is_gone(self, path: str) -> bool:
        """Return whether the folder of a path is gone, or the drive that it was on."""
        place = self._folder / path
        unmounted = self._mounts - mounts().keys()
        if not _answers(place.parent) or any(map(place.is_relative_to, unmounted)):
            return True
        return self._was_removed(place)

    def _was_removed(self, place: Path) -> bool:
        """Return whether files were removed from a folder, and none written, since the run began.

        A folder that is written to may just lack the file.
        """

        def look() -> bool:
            entries = islice(place.parent.iterdir(), MAX_ENTRIES)
            written = any(entry.lstat().st_mtime >= self._began for entry in entries)
            return place.parent.stat().st_mtime >= self._began and not written

        return in_time(look, otherwise=False, within=ANSWERS_WITHIN)


def in_detail(failure: Failure) -> str:
    """Return what is wrong as the error said it, behind the name that it has here."""
    kind = load_failures().kinds.get(failure.kind)
    seen = failure.seen[0] if failure.seen else ""
    if kind is None or failure.title != kind.title or failure.kind in PLAIN or not seen:
        return failure.title
    message = seen.partition("Error: ")[2] or seen
    message = _ERROR_NUMBER.sub("", message).strip(" <>.")
    return f"{failure.title} ({textwrap.shorten(hide_secrets(message), DETAIL, placeholder='...')})"


def renamed(failure: Failure, kind: str, title: str = "") -> Failure:
    """Return a failure as one of another kind."""
    known = load_failures().kinds[kind]
    return replace(
        failure,
        kind=known.id,
        title=title or known.title,
        words=known.words,
        fingerprint=replace(failure.fingerprint, kind=known.id),
    )


def _usage(folder: Path) -> tuple[int, int]:
    """Return the bytes of a disk, and those that are free; zeros if it does not answer."""
    total, _, free = in_time(lambda: shutil.disk_usage(folder), (0, 0, 0), within=ANSWERS_WITHIN)
    return total, free


def _answers(path: Path) -> bool:
    return in_time(path.exists, otherwise=False, within=ANSWERS_WITHIN)
