"""The first restart by a way to resume that was only read from a script's text.

A mistake must cost nothing. So what the run has written is copied before, and the restart is
watched: once it has read a checkpoint of this run, the way is proven. If it makes its first steps
without having read one, it has started over: it is stopped. What its own processes were seen to
write is then undone, and kept beside the records of the run; what others write in the folder at the
same time is never touched, and is no reason to stop anything.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import msgspec
from rocsteady_train.inside import wire
from rocsteady_train.untrusted_file import read_head, read_regular

from rocsteady.errors import RocsteadyError
from rocsteady.hangs.heartbeat_pages import CheckpointRead
from rocsteady.hangs.values import Heartbeat
from rocsteady.model import Value
from rocsteady.run.checkpoints.backup import MODELS, copy_files, no_room, written_files
from rocsteady.run.checkpoints.own_checkpoints import is_checkpoint_file
from rocsteady.run.checkpoints.resume import NANOSECONDS
from rocsteady.run.checkpoints.resume_detection import ResumeMethod
from rocsteady.store.account_records import forget, keep, kept
from rocsteady.store.location import check_own, filesystem_of, is_network
from rocsteady.system.atomic_file import write_whole
from rocsteady.system.mounted_drives import CLOCK_GRAIN
from rocsteady.system.real_path import real_path, time_and_size
from rocsteady.system.unlinked import copy_file, move_file

COPIES = "before-resume"  # in the records of the run; there only while the way is not proven
NOTES = "written-in-resume"  # of what the attempt writes; beside the copies
NOTES_LIMIT = 64 << 20  # bytes
_NOTE = re.compile(rb"([lrw]) (\d+) (-1|\d+) ([^\0]+)\0")
_Found = dict[Path, set[tuple[int, int] | None]]  # how files were: their times and sizes
SMALL_FILE = 100 << 20  # bytes of a file that is copied before each restart, as logs are


class SavedMethod(Value, frozen=True, kw_only=True):
    """How a run resumes, for whoever takes it over."""

    method: ResumeMethod
    proven: bool = False  # a restart has read a checkpoint of the run
    outside: tuple[str, ...] = ()  # folders with its checkpoints, outside of its own


class Copied(Value, frozen=True, kw_only=True):
    """What was copied before an unproven restart, and so may be put back."""

    files: dict[str, str]  # where each lay, without links: its name among the copies


class Undone(Value, frozen=True, kw_only=True):
    """What became of the files that changed during a restart."""

    put_back: tuple[str, ...] = ()
    left: tuple[str, ...] = ()  # checkpoints that others may have written


class ResumeTrial:
    """Watches one attempt for whether it goes on, and undoes what it did if it does not."""

    def __init__(self, folder: Path, records: Path, since: float, within: timedelta) -> None:
        self._folder, self._since = folder, since
        self._records, self._within = Path(real_path(records)), within.total_seconds()
        self._began = float("inf")  # by the clock that files have
        self._stepped: float | None = None  # when the first step was seen
        self._unread: dict[Path, int] = {}  # checkpoints that nobody had read, as they were
        self._read: set[Path] = set()  # of these, by now
        self.environment = {wire.WRITES: str(self._records / NOTES)}  # for the attempt
        self.proven = False
        self.started_over = ""  # why it is known; "": it is not

    def prepare(self, checkpoint: Path) -> None:
        """Copy what the run wrote; refuse a restart for which there is no room."""
        try:
            files = self._affordable(dict(written_files(self._folder, self._since)), checkpoint)
            discard(self._records)
            copied = copy_files(files, self._folder, self._records / COPIES)
            write_whole(self._records / NOTES, b"")
        except OSError as error:
            raise RocsteadyError(
                f"not restarted: the files of the run cannot be copied: {error.strerror or error}"
            ) from None
        keep(Copied(files=copied), self._records)
        self._began = time.time()
        paths = list(filter(is_checkpoint_file, map(Path, copied)))
        folders = {path.parent for path in paths}  # a server notes late, also that we copied it
        local = {place for place in folders if not is_network(filesystem_of(place), place)}
        for path in (path for path in paths if path.parent in local):
            about = path.stat()
            if about.st_atime_ns <= about.st_mtime_ns:  # the kernel notes the first time after it
                self._unread[path] = about.st_mtime_ns

    def _affordable(self, files: dict[Path, int], checkpoint: Path) -> dict[Path, int]:
        """Return all files, or the checkpoint and what is small, if there is room for no more."""
        if no_room(files.values(), self._records):
            newest = self._folder / checkpoint
            files = {
                path: size
                for path, size in files.items()
                if newest in (path, *path.parents) or size <= SMALL_FILE
            }
        if lacking := no_room(files.values(), self._records):
            raise RocsteadyError(
                "not restarted: how the script resumes is only known from its text, and there is"
                f" no room to copy what a mistake could overwrite: {lacking}"
            )
        return files

    def seen(
        self, now: float, heartbeats: Iterable[Heartbeat], read: CheckpointRead | None
    ) -> None:
        """Take a look into account. Of several ranks, the first is the one that reads and saves."""
        if self.proven or self.started_over:
            return
        if read is not None and self._is_proof(read):
            self.prove()
            return
        self._read.update(path for path, at in self._unread.items() if _read_since(path, at))
        steps = max((beat.step for beat in heartbeats if not beat.rank), default=0)
        if self._stepped is None and steps:
            self._stepped = now
        late = self._stepped is not None and now - self._stepped >= self._within
        if late or steps >= wire.LATE:
            self._judge()

    def _judge(self) -> None:
        """Tell by what was read by the first steps, be it in a way that no hook sees, as by C.

        torch may have loaded it for its weights alone, and says so afterwards: no sign of that.
        """
        if self._read - _noted(self._records)[wire.LOOKED_INTO].keys():
            self.prove()
        else:
            self.started_over = "it made steps without reading a checkpoint"

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
        discard(self._records)

    def ended(self, heartbeats: Iterable[Heartbeat], read: CheckpointRead | None) -> None:
        """Judge an attempt that ended before anything was certain."""
        self._began = float("inf")  # it may have resumed: do not undo its files
        self.seen(0.0, heartbeats, read)
        if self.proven or self.started_over:
            return
        if self._stepped is not None:
            self._judge()
            return
        copied = kept(Copied, self._records)
        changed = _changes(self._records, copied)[0] if copied else {}
        if over := next((path.name for path in changed if is_checkpoint_file(path)), ""):
            self.started_over = f"it wrote over {over} without reading a checkpoint"

    def put_back(self, number: int) -> Undone:
        """Put the copies back; what is in their place goes beside the records of the run."""
        return put_back(self._folder, self._records, number)


class OutputCopies:
    """Small files, such as logs, that a restarted script may begin anew."""

    def __init__(self, folder: Path, since: float, target: Path) -> None:
        self._folder, self._target = folder, target
        left, small = SMALL_FILE, []
        with contextlib.suppress(OSError, RocsteadyError):  # a log is no reason not to restart
            for path, size in written_files(folder, since):
                if not is_checkpoint_file(path) and size <= left:
                    left -= size
                    small.append(path)
            copy_files(small, folder, self._target)

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


def _read_since(path: Path, written: int) -> bool:
    """Return whether a file that is as it was has been read since, by the kernel's note."""
    try:
        about = path.stat()
    except OSError:
        return False
    return about.st_mtime_ns == written < about.st_atime_ns


def _continues(path: Path, copy: Path) -> bool:
    """Return whether a file still begins with what it had."""
    try:
        before = read_regular(copy, SMALL_FILE)
        return read_head(path, len(before)) == before
    except OSError:
        return False


def put_back(folder: Path, records: Path, number: int) -> Undone:
    """Undo what the processes of an unproven restart were seen to write, and nothing besides."""
    check_own(records)  # what is put back must be what was copied
    copied = kept(Copied, records)
    if copied is None:
        return Undone()
    place = Path(real_path(records))
    try:
        undone = _put_back(folder, place, place / f"started-over-{number}", copied)
    except OSError as error:
        raise RocsteadyError(
            "the changes of the last restart cannot be undone:"
            f" {error.filename}: {error.strerror or error}"
        ) from None
    discard(place)
    return undone


def discard(records: Path) -> None:
    """Remove the copies: there is nothing to undo, or it is undone."""
    forget(records, Copied)
    with contextlib.suppress(RocsteadyError):
        check_own(records)
        (records / NOTES).unlink(missing_ok=True)
        shutil.rmtree(records / COPIES, ignore_errors=True)


def _put_back(folder: Path, records: Path, aside: Path, copied: Copied) -> Undone:
    own, others = _changes(records, copied)
    real = Path(real_path(folder))
    originals = {Path(path) for path in copied.files}
    ours = (real, *(path.parent for path in originals))
    made = [path for path, before in _noted(records)[wire.WRITTEN].items() if None in before]
    for path in {file for place in made for file in (place, *place.rglob("*"))} - originals:
        is_new = path.is_file() and not path.is_symlink() and is_checkpoint_file(path)
        if is_new and any(map(path.is_relative_to, ours)):
            move_file(path, aside / (path.relative_to(real) if real in path.parents else path.name))
    for path, name in own.items():
        if path.exists():
            move_file(path, aside / name)
        copy_file(records / COPIES / name, path)
    for name in others.values():
        move_file(records / COPIES / name, aside / COPIES / name)
    return Undone(put_back=tuple(own.values()), left=tuple(others.values()))


def _changes(records: Path, copied: Copied) -> tuple[dict[Path, str], dict[Path, str]]:
    """Return the files that the attempt changed, and checkpoints that others may have.

    A file is the attempt's if it found it as it was copied. What was removed with its folder was
    not looked at before.
    """
    noted = _noted(records)
    written, removed = noted[wire.WRITTEN], noted[wire.REMOVED]
    own: dict[Path, str] = {}
    others: dict[Path, str] = {}
    for path, name in ((Path(path), name) for path, name in copied.files.items()):
        before, now = time_and_size(records / COPIES / name), time_and_size(path)
        found = written.get(path, set())
        went = before in removed.get(path, set()) or not removed.keys().isdisjoint(path.parents)
        if now == before:
            continue
        if before in found or (went and (now is None or None in found)):
            own[path] = name
        elif is_checkpoint_file(path) or path.suffix.lower() in MODELS:
            others[path] = name
    return own, others


def _noted(records: Path) -> dict[str, _Found]:
    """Return what the processes of an attempt did to files, and how each was before."""
    found: dict[str, _Found] = {wire.WRITTEN: {}, wire.REMOVED: {}, wire.LOOKED_INTO: {}}
    with contextlib.suppress(OSError):
        content = read_regular(records / NOTES, NOTES_LIMIT, follow=False)
        for what, written, size, path in _NOTE.findall(content):
            before = (int(written), int(size)) if size != b"-1" else None
            place = Path(os.path.normpath(os.fsdecode(path)))
            found[what.decode()].setdefault(place, set()).add(before)
    return found
