"""Waiting for what can clear up by itself: how long, until when, and what ends a wait early.

docs/explanation-recovery.md has the policy.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from rocsteady.doctor.knowledge.failures import load_failures
from rocsteady.hangs.parallel import run_all
from rocsteady.model import Failure, FailureKind, Value

FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=5), timedelta(minutes=10)
DAY = timedelta(days=1)
NEVER_STEPPED = timedelta(hours=1)  # what never worked may be a typo
IN_ALLOCATION = timedelta(minutes=20)  # whose GPUs are idle meanwhile
SCHEDULERS = ("SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST", "PBS_JOBID", "LSB_JOBID")
ROOM = 64 << 20  # bytes that must be free again at least
ANSWERS_WITHIN = timedelta(seconds=2)  # a path; a dead server never does
MOUNTS = Path("/proc/self/mounts")
_MISSING = re.compile(
    r"\[Errno 2\] No such file or directory: (?P<quote>['\"])(?P<path>.+?)(?P=quote)"
)


class Wait(Value, frozen=True, kw_only=True):
    """One wait before the next try."""

    seconds: float
    limit: float  # seconds that tries go on for, since the last progress
    first: bool  # since progress, or since another failure: later ones are not announced
    repeats: bool  # the last try ended like the one before it, without progress
    cleared: Callable[[], bool] = lambda: False  # what ended the last try is over


class Backoff:
    """The waits of one run. Its clock starts again with every progress."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        *,
        give_up_after: timedelta | None = None,
        due: float | None = None,  # the deadline, seconds since 1970
        first_wait: timedelta = FIRST_WAIT,
    ) -> None:
        self._folder, self._give_up_after, self._due = folder, give_up_after, due
        self._first_wait = first_wait.total_seconds()
        self.in_allocation = any(name in environment for name in SCHEDULERS)
        self._mounts = _mounts()
        self._since = time.monotonic()  # the last progress
        self._stepped = False  # in any attempt
        self._tries = 0  # without progress
        self._kind = ""  # of the last failure
        self.repeats = False  # it was of the same kind as the one before, without progress
        self._announced = False  # the wait for it
        self._missed: set[str] = set()  # paths that were missing, once
        self._failure: Failure | None = None
        self._free = 0

    def judged(self, failure: Failure, *, stepped: bool) -> Failure:
        """Tell a path that was there before from one that never was; ``stepped``: this attempt."""
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
        kind = load_failures().kinds[FailureKind.STORAGE_UNAVAILABLE]
        return replace(
            failure,
            kind=kind.id,
            title=f"{path} is gone",
            words=kind.words,
            fingerprint=replace(failure.fingerprint, kind=kind.id),
        )

    def _is_gone(self, path: str) -> bool:
        """Return whether the folder of a path is gone, or the drive that it was on."""
        place = self._folder / path
        mounts = _mounts()
        unmounted = self._mounts - mounts
        return not _answers(place.parent) or any(map(place.is_relative_to, unmounted))

    def failed(self, failure: Failure | None, *, progressed: bool, stepped: bool) -> None:
        """Take a failed attempt into account."""
        kind = failure.kind if failure else ""
        if progressed:
            self._since, self._tries = time.monotonic(), 0
        else:
            self._tries += 1
        self.repeats = not progressed and kind == self._kind
        self._announced = self._announced and self.repeats
        self._stepped = self._stepped or stepped
        self._kind, self._failure, self._free = kind, failure, _free(self._folder)

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
        """Whether to give up: the next wait would end after the limit, or the deadline is past."""
        waited = time.monotonic() - self._since
        late = self._due is not None and time.time() >= self._due
        return late or waited >= self.limit.total_seconds()

    def wait(self, room: int = 0) -> Wait:
        """Return the wait before the next try; ``room``: bytes that a checkpoint takes."""
        left = self.limit.total_seconds() - (time.monotonic() - self._since)
        longest = LONGEST_WAIT.total_seconds()
        doubled = self._first_wait * 2 ** min(self._tries - 1, 20)
        seconds = 0.0 if not self._tries else max(0.0, min(doubled, longest, left))
        first, self._announced = not self._announced, self._announced or seconds > 0
        return Wait(
            seconds=seconds,
            limit=self.limit.total_seconds(),
            first=first,
            repeats=self.repeats,
            cleared=self._cleared(room),
        )

    def _cleared(self, room: int) -> Callable[[], bool]:
        if self._kind == FailureKind.DISK_FULL:
            wanted = self._free + max(ROOM, room + room // 5)
            return lambda: _free(self._folder) >= wanted
        missing = [path for path in self._missed if not _answers(self._folder / path)]
        if self._kind == FailureKind.STORAGE_UNAVAILABLE and missing:
            return lambda: all(_answers(self._folder / path) for path in missing)
        return lambda: False


def held_by_others(pids: Collection[int], processes: Path = Path("/sys/class/kfd/kfd/proc")) -> int:
    """Return the bytes of device memory, of the fullest GPU, that other processes hold."""
    held: dict[str, int] = {}
    try:
        for file in processes.glob("*/vram_*"):
            if not file.parent.name.isdecimal() or int(file.parent.name) in pids:
                continue
            held[file.name] = held.get(file.name, 0) + int(file.read_text())
    except (OSError, ValueError):
        return 0
    return max(held.values(), default=0)


def _mounts() -> set[str]:
    try:
        lines = MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {line.split()[1] for line in lines if len(line.split()) > 1}


def _free(folder: Path) -> int:
    found: list[int] = []
    run_all(
        {"disk": lambda: found.append(shutil.disk_usage(folder).free)},
        within=ANSWERS_WITHIN,
        at_once=1,
    )
    return found[0] if found else 0


def _answers(path: Path) -> bool:
    found: list[bool] = []
    run_all({"path": lambda: found.append(path.exists())}, within=ANSWERS_WITHIN, at_once=1)
    return bool(found and found[0])
