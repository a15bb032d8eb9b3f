"""Waiting for what can clear up by itself: how long, until when, and what ends a wait early.

docs/explanation-recovery.md has the policy.
"""

from __future__ import annotations

import re
import shutil
import textwrap
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.model import Failure, FailureKind, Value
from rocsteady.store.redaction import hide_secrets
from rocsteady.system.drives import ANSWERS_WITHIN, CLOCK_GRAIN, mounts
from rocsteady.system.parallel import run_all

FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=5), timedelta(minutes=10)
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


class Wait(Value, frozen=True, kw_only=True):
    """One wait before the next try."""

    seconds: float
    limit: float  # seconds that tries go on for, since the last progress
    first: bool  # since progress, or since another failure: later ones are not announced
    repeats: bool  # the last try ended like the one before it, without progress
    trouble: str = ""  # what is waited for, in words
    advice: str = ""  # what a person can do meanwhile
    cleared: Callable[[], bool] = lambda: False  # what ended the last try is over


class Backoff:
    """The waits of one run. Its clock starts again with every progress."""

    def __init__(  # noqa: PLR0913 - all but two are keyword arguments
        self,
        folder: Path,
        environment: Mapping[str, str],
        *,
        give_up_after: timedelta | None = None,
        due: float | None = None,  # the deadline, seconds since 1970
        first_wait: timedelta = FIRST_WAIT,
        gone: Callable[[], Path | None] = lambda: None,  # the folder of the run's checkpoints
    ) -> None:
        self._folder, self._give_up_after, self._due = folder, give_up_after, due
        self._first_wait = first_wait.total_seconds()
        self.in_allocation = any(name in environment for name in SCHEDULERS)
        self._mounts = mounts().keys()
        self._gone = gone
        self._began = time.time() - CLOCK_GRAIN
        self._since = time.monotonic()  # the last progress
        self._stepped = False  # in any attempt
        self._tries = 0  # without progress
        self._kind = ""  # of the last failure
        self.repeats = False  # it was of the same kind as the one before, without progress
        self._announced = False  # the wait for it
        self._missed: set[str] = set()  # paths that were missing, once
        self._failure: Failure | None = None
        self._disk = folder  # that is watched for room
        self._free = 0

    def judged(  # noqa: PLR0911 - one return a cause
        self, failure: Failure, *, stepped: bool, unsaved: str = ""
    ) -> Failure:
        """Tell a path that was there before from one that never was; ``stepped``: this attempt.

        ``unsaved``: a file that could not be saved.
        """
        if failure.kind not in INTENDED and (gone := self._gone()):
            return _unavailable(failure, f"{gone} is gone")
        if unsaved and failure.kind == FailureKind.STORAGE_UNAVAILABLE:
            why = "the disk or the quota is full, or the drive fails"
            return replace(failure, title=f"{unsaved} could not be written: {why}")
        if unsaved and failure.kind == FailureKind.DISK_FULL:
            return replace(failure, title=f"The disk is full: {unsaved} could not be written")
        if failure.kind != FailureKind.SCRIPT_ERROR or not (stepped or self._stepped):
            return failure
        found = list(_MISSING.finditer("\n".join((*failure.seen, failure.traceback))))
        if not found:
            return failure
        path = found[-1]["path"]
        again, started_before = path in self._missed, not stepped
        self._missed.add(path)
        if again and not started_before and not self._is_gone(path):
            return failure
        return _unavailable(failure, f"{path} is gone")

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
        found: list[bool] = []

        def look() -> None:
            entries = islice(place.parent.iterdir(), MAX_ENTRIES)
            written = any(entry.lstat().st_mtime >= self._began for entry in entries)
            found.append(place.parent.stat().st_mtime >= self._began and not written)

        run_all({"folder": look}, within=ANSWERS_WITHIN, at_once=1)
        return bool(found and found[0])

    def failed(
        self, failure: Failure | None, *, progressed: bool, stepped: bool, unsaved: str = ""
    ) -> None:
        """Take a failed attempt into account; ``unsaved``: the file that it could not save."""
        self._disk = Path(unsaved).parent if unsaved else self._folder
        kind = failure.kind if failure else ""
        if progressed:
            self._since, self._tries = time.monotonic(), 0
        else:
            self._tries += 1
        self.repeats = not progressed and kind == self._kind
        self._announced = self._announced and self.repeats
        self._stepped = self._stepped or stepped
        self._kind, self._failure, self._free = kind, failure, _free(self._disk)

    @property
    def waits(self) -> bool:
        """Whether there is a wait before the next try, if it is for what can clear up."""
        return self._tries > 0 or self._gone() is not None

    @property
    def _advice(self) -> str:
        """What a person can do meanwhile."""
        kind = load_failures().kinds.get(self._kind)
        return kind.meanwhile if kind else ""

    @property
    def limit(self) -> timedelta:
        """How long tries go on without progress."""
        if self._give_up_after is not None:
            return self._give_up_after
        if self.in_allocation:
            return IN_ALLOCATION
        return DAY if self._stepped else NEVER_STEPPED

    @property
    def is_over(self) -> bool:
        """Whether to give up: the limit or the deadline is past."""
        waited = time.monotonic() - self._since
        late = self._due is not None and time.time() >= self._due
        return late or waited >= self.limit.total_seconds()

    def wait(self, room: int = 0) -> Wait:
        """Return the wait before the next try; ``room``: bytes that a checkpoint takes."""
        left = self.limit.total_seconds() - (time.monotonic() - self._since)
        longest = LONGEST_WAIT.total_seconds()
        doubled = self._first_wait * 2 ** min(self._tries - 1, 20)
        gone = self._gone() is not None  # then a try would start over
        seconds = 0.0 if not self._tries else max(0.0, min(doubled, longest, left))
        seconds = max(0.0, left) if gone else seconds
        first, self._announced = not self._announced, self._announced or seconds > 0
        return Wait(
            seconds=seconds,
            limit=self.limit.total_seconds(),
            first=first,
            repeats=self.repeats,
            trouble=in_detail(self._failure) if self._failure else "",
            advice=self._advice,
            cleared=self._cleared(room),
        )

    def _cleared(self, room: int) -> Callable[[], bool]:
        if self._gone() is not None:
            return lambda: self._gone() is None
        if self._kind == FailureKind.DISK_FULL:
            wanted = self._free + max(min(ROOM, _size(self._disk) // 10), room + room // 5)
            return lambda: _free(self._disk) >= wanted
        missing = [path for path in self._missed if not _answers(self._folder / path)]
        if self._kind == FailureKind.STORAGE_UNAVAILABLE and missing:
            return lambda: all(_answers(self._folder / path) for path in missing)
        return lambda: False


def in_detail(failure: Failure) -> str:
    """Return what is wrong as the error said it, behind the name that it has here."""
    kind = load_failures().kinds.get(failure.kind)
    seen = failure.seen[0] if failure.seen else ""
    if kind is None or failure.title != kind.title or failure.kind in PLAIN or not seen:
        return failure.title
    message = seen.partition("Error: ")[2] or seen
    message = _ERROR_NUMBER.sub("", message).strip(" <>.")
    return f"{failure.title} ({textwrap.shorten(hide_secrets(message), DETAIL, placeholder='...')})"


def _unavailable(failure: Failure, title: str) -> Failure:
    kind = load_failures().kinds[FailureKind.STORAGE_UNAVAILABLE]
    return replace(
        failure,
        kind=kind.id,
        title=title,
        words=kind.words,
        fingerprint=replace(failure.fingerprint, kind=kind.id),
    )


def _free(folder: Path) -> int:
    return _usage(folder)[1]


def _size(folder: Path) -> int:
    return _usage(folder)[0]


def _usage(folder: Path) -> tuple[int, int]:
    """Return the bytes of a disk, and those that are free; zeros if it does not answer."""
    found: list[tuple[int, int]] = []

    def look() -> None:
        usage = shutil.disk_usage(folder)
        found.append((usage.total, usage.free))

    run_all({"disk": look}, within=ANSWERS_WITHIN, at_once=1)
    return found[0] if found else (0, 0)


def _answers(path: Path) -> bool:
    found: list[bool] = []
    run_all({"path": lambda: found.append(path.exists())}, within=ANSWERS_WITHIN, at_once=1)
    return bool(found and found[0])
