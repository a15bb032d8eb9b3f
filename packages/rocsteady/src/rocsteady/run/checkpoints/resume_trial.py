"""The first restart by a way to resume that was only read from a script's text.

A mistake must cost nothing. So what the run has written is copied before, and the restart is
watched: once it has read a checkpoint of this run, the way is proven. If it makes steps, or writes
over a checkpoint, without having read one, it has started over: it is stopped, and the copies are
put back. What the attempt itself has written is kept beside the records of the run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Collection, Iterable
from datetime import timedelta
from pathlib import Path

import msgspec
from rocsteady_train.untrusted_file import read_head, read_regular

from rocsteady.errors import RocsteadyError
from rocsteady.hangs.heartbeat_pages import CheckpointRead
from rocsteady.hangs.values import Heartbeat
from rocsteady.model import Value
from rocsteady.run.checkpoints.backup import RESERVE, written_files
from rocsteady.run.checkpoints.own_checkpoints import is_checkpoint_file
from rocsteady.run.checkpoints.resume import NANOSECONDS
from rocsteady.run.checkpoints.resume_detection import ResumeMethod
from rocsteady.store.account_records import forget, keep, kept
from rocsteady.system.drives import CLOCK_GRAIN
from rocsteady.system.real_path import real_path
from rocsteady.system.unlinked import copy_file, move_file
from rocsteady.wording import size as written_size

COPIES = "before-resume"  # in the records of the run; there only while the way is not proven
SMALL_FILE = 100 << 20  # bytes of a file that is copied before each restart, as logs are


class SavedMethod(Value, frozen=True, kw_only=True):
    """How a run resumes, for whoever takes it over."""

    method: ResumeMethod
    proven: bool = False  # a restart has read a checkpoint of the run
    outside: tuple[str, ...] = ()  # folders with its checkpoints, outside of its own


class Copied(Value, frozen=True, kw_only=True):
    """What was copied before an unproven restart, and so may be put back."""

    began: float  # when the last copy was made
    files: dict[str, str]  # where each lay, without links: its name among the copies


class ResumeTrial:
    """Watches one attempt for whether it goes on, and undoes what it did if it does not."""

    def __init__(self, folder: Path, records: Path, since: float, within: timedelta) -> None:
        self._folder, self._copies, self._since = folder, records / COPIES, since
        self._records, self._within = records, within.total_seconds()
        self._stamps: dict[Path, tuple[int, int]] = {}  # of checkpoints, as they were
        self._began = float("inf")  # by the clock that files have
        self._stepped: float | None = None  # when the first step was seen
        self.proven = False
        self.started_over = ""  # why it is known; "": it is not

    def prepare(self, checkpoint: Path) -> None:
        """Copy what the run wrote; refuse a restart for which there is no room."""
        try:
            files = dict(written_files(self._folder, self._since))
            self._copy(self._affordable(files, self._folder / checkpoint))
        except OSError as error:
            raise RocsteadyError(
                f"not restarted: the files of the run cannot be copied: {error.strerror or error}"
            ) from None
        self._stamps = {path: stamp for path in files if (stamp := _stamp(path))}
        self._began = time.time()

    def _affordable(self, files: dict[Path, int], checkpoint: Path) -> dict[Path, int]:
        """Return all files, or the checkpoint and what is small, if there is room for no more."""
        free = shutil.disk_usage(self._records).free - RESERVE
        if sum(files.values()) <= free:
            return files
        needed = {
            path: size
            for path, size in files.items()
            if path == checkpoint or checkpoint in path.parents or size <= SMALL_FILE
        }
        if sum(needed.values()) > free:
            raise RocsteadyError(
                f"not restarted: how the script resumes is only known from its text, and there is"
                f" no room to copy the {written_size(sum(needed.values()))} that a mistake could"
                " overwrite"
            )
        return needed

    def _copy(self, files: Iterable[Path]) -> None:
        forget(self._records, Copied)
        shutil.rmtree(self._copies, ignore_errors=True)
        copied: dict[str, str] = {}
        for path in files:
            source, name = real_path(path), path.relative_to(self._folder)
            copy_file(Path(source), Path(real_path(self._records)) / COPIES / name)
            copied[source] = str(name)
        keep(Copied(began=time.time(), files=copied), self._records)

    def seen(
        self, now: float, heartbeats: Iterable[Heartbeat], read: CheckpointRead | None
    ) -> None:
        """Take a look into account."""
        if self.proven or self.started_over:
            return
        if read is not None and self._is_proof(read):
            self.prove()
            return
        if self._stepped is None and any(beat.step for beat in heartbeats):
            self._stepped = now
        if self._stepped is not None and now - self._stepped >= self._within:
            self.started_over = "it made steps without reading a checkpoint"
        elif changed := self._changed():
            self.started_over = f"it wrote over {changed} without reading a checkpoint"

    def _is_proof(self, read: CheckpointRead) -> bool:
        """Return whether it went on from a checkpoint, and did not only read back its own."""
        written = read.written / NANOSECONDS
        own = written > self._began + CLOCK_GRAIN and (read.steps or self._stepped is not None)
        return written >= self._since - CLOCK_GRAIN and not own

    def prove(self) -> None:
        """Note that the method works, and remove the copies."""
        self.proven = True
        saved = kept(SavedMethod, self._records)
        if saved is not None:
            keep(msgspec.structs.replace(saved, proven=True), self._records)
        forget(self._records, Copied)
        shutil.rmtree(self._copies, ignore_errors=True)

    def ended(self, read: CheckpointRead | None, *, steps: bool) -> None:
        """Judge an attempt that ended before anything was certain."""
        self._began = float("inf")  # it may have resumed: do not undo its files
        self.seen(0.0, (), read)
        if not self.proven and not self.started_over and steps:
            self.started_over = "it made steps without reading a checkpoint"

    def put_back(self, number: int) -> None:
        """Put the copies back; what is in their place goes beside the records of the run."""
        put_back(self._folder, self._records, number, self._stamps)

    def _changed(self) -> str:
        for path, stamp in self._stamps.items():
            if is_checkpoint_file(path) and _stamp(path) != stamp:
                return path.name
        return ""


class OutputCopies:
    """Small files, such as logs, that a restarted script may begin anew."""

    def __init__(self, folder: Path, since: float, target: Path) -> None:
        self._folder, self._target = folder, Path(real_path(target.parent)) / target.name
        left = SMALL_FILE
        with contextlib.suppress(OSError, RocsteadyError):  # a log is no reason not to restart
            for path, size in written_files(folder, since):
                if not is_checkpoint_file(path) and size <= left:
                    left -= size
                    copy_file(Path(real_path(path)), self._target / path.relative_to(folder))

    def settle(self) -> tuple[str, ...]:
        """Keep the copies of files that were begun anew, and return their names."""
        rewritten = []
        for copy in [path for path in self._target.rglob("*") if path.is_file()]:
            name = copy.relative_to(self._target)
            if copy.stat().st_size and not _continues(self._folder / name, copy):
                rewritten.append(str(name))
            else:
                copy.unlink()
        if not rewritten:
            shutil.rmtree(self._target, ignore_errors=True)
        return tuple(sorted(rewritten))


def _continues(path: Path, copy: Path) -> bool:
    """Return whether a file still begins with what it had."""
    try:
        before = read_regular(copy, SMALL_FILE)
        return read_head(path, len(before)) == before
    except OSError:
        return False


def put_back(
    folder: Path,
    records: Path,
    number: int,
    known: dict[Path, tuple[int, int]] | None = None,
) -> bool:
    """Put the copies of an unproven restart back, if this account has made any."""
    copied = kept(Copied, records)
    if copied is None:
        return False
    place = Path(real_path(records))
    try:
        _put_back(folder, place / COPIES, place / f"started-over-{number}", copied, known or {})
    except OSError as error:
        raise RocsteadyError(
            "the changes of the last restart cannot be undone:"
            f" {error.filename}: {error.strerror or error}"
        ) from None
    forget(records, Copied)
    shutil.rmtree(records / COPIES, ignore_errors=True)
    return True


def _put_back(
    folder: Path, copies: Path, aside: Path, copied: Copied, known: Collection[Path]
) -> None:
    originals = {Path(path): copies / name for path, name in copied.files.items()}
    ours = (Path(real_path(folder)), *(path.parent for path in originals))
    for path, _ in written_files(folder, copied.began):
        real = Path(real_path(path))
        is_new = real not in originals and path not in known
        if is_new and is_checkpoint_file(path) and any(map(real.is_relative_to, ours)):
            move_file(real, aside / path.relative_to(folder))
    for path, copy in originals.items():
        if _stamp(path) != _stamp(copy):
            if path.exists():
                move_file(path, aside / copy.relative_to(copies))
            copy_file(copy, path)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        about = os.stat(path)  # noqa: PTH116 - five times a second
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size
