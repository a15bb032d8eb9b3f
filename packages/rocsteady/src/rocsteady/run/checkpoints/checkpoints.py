"""The checkpoints of one run: which it may use, and which of them is next."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

import msgspec
from rocsteady_train.checkpoints.folder import is_ours

from rocsteady.errors import RocsteadyError
from rocsteady.hangs.heartbeat_pages import CheckpointRead, SavedFile, SavedFiles
from rocsteady.model import Value
from rocsteady.run.attempt.attempt_end import AttemptEnd
from rocsteady.run.attempt.progress import EPOCH, READ, SAVED
from rocsteady.run.checkpoints.own_checkpoints import (
    OwnCheckpoint,
    checkpoints_in,
    holder,
    own_checkpoints,
    put_in_place,
    repoint,
    set_aside,
    strike_out,
    usable,
    without_files,
)
from rocsteady.run.checkpoints.resume import (
    NANOSECONDS,
    STEP,
    Checkpoint,
    Origin,
    Stamp,
    checkpoint_number,
    find_checkpoints,
    stamp,
    whole_checkpoints,
)
from rocsteady.run.checkpoints.resume_detection import ResumeMethod, ResumeSign, detect_resume
from rocsteady.run.checkpoints.resume_trial import SavedMethod
from rocsteady.run.job.printed_epochs import last_epoch_printed
from rocsteady.run.job.values import CHECKPOINT, Job, Resume
from rocsteady.store.account_records import keep, kept
from rocsteady.store.redaction import shown_command
from rocsteady.store.values import Run
from rocsteady.system.mounted_drives import CLOCK_GRAIN, mounts, responds
from rocsteady.system.real_path import real_path

MAX_SAVED = 1_000  # files
MAX_OUTSIDE = 5  # folders outside of the run's own in which checkpoints are looked for


class StartsAt(Enum):
    CHECKPOINT = "at a checkpoint"
    NONE_YET = "at the beginning, since there is no checkpoint yet"
    BY_ITSELF = "where the script resumes on its own"
    UNABLE = "at the beginning, since it cannot resume"


class StepEstimate(Value, frozen=True, kw_only=True):
    """An estimate of the step at which a checkpoint was written."""

    low: int = 0
    high: int = 0
    key: str = ""  # by which a checkpoint is known again; "": from the beginning
    exact: bool = False  # the checkpoint says so itself
    printed: int = 0  # by the script when it was written, if that is between the two; 0: nothing

    @property
    def best(self) -> int:
        """From where the steps of the attempt are counted."""
        return self.printed or self.low

    @property
    def words(self) -> str:
        """For people; "" if nothing is known."""
        if not self.high:
            return ""
        if self.printed:
            return f"about step {self.printed:,}"
        if self.low != self.high:
            return f"between steps {self.low:,} and {self.high:,}"
        return f"{'' if self.exact else 'about '}step {self.high:,}"


class Checkpoints:
    def __init__(  # noqa: PLR0913 - what it takes to find and to judge them
        self,
        job: Job,
        folder: Path,
        records: Path,
        origin: Origin | None,
        began: float = float("inf"),  # of the run, by the clock
        *,
        seen_as: Sequence[Path] = (),  # other paths by which the script sees its folder
    ) -> None:
        self.job = job  # it becomes one that can resume when its script or its text says so
        self.avoid: tuple[tuple[str, float], ...] = ()  # that did not lead on
        self.folder, self._records = folder, records
        self._origin = origin or Origin()
        self._judged: dict[Stamp, str] = {}  # between two attempts
        self._new = False  # the run, and nothing of it was started yet
        self._seen_as = tuple(seen_as)
        # Below an overlay there is only what the script has written, and not the script.
        self.method = detect_resume(
            job.command, next(iter(self._seen_as), folder), resume_trainer=job.resume_trainer
        )
        if job.resume is not None:  # the job file goes before it; what a whole one has still holds
            complete, last = self.method.complete, self.method.last
            self.method = ResumeMethod(how=ResumeSign.UNKNOWN, complete=complete, last=last)
        by_itself = self.method.how is ResumeSign.COMMAND
        self.argument = self.method.arguments[0] if by_itself else ""  # by which it resumes
        self._typed = job.command
        self.since = began  # what was written from then on is the run's own
        self._wrote = False  # a checkpoint, as far as that was seen
        self.cleared = False  # what the script could not load was moved aside
        self.all_cut_off = False  # what it wrote, and none is left
        self.others_write = False  # checkpoints: the first rank may be on another host
        self._began, self._attempts = began, 0
        self._batches = 0  # of an epoch, if its loader tells
        self.unseen = False  # whether it resumes, as announced: it has no page
        self._observed = False  # that the script finds by itself what the run has written
        saved = kept(SavedMethod, records)
        self._outside = [Path(folder) for folder in saved.outside] if saved else []
        self._is_seen = False  # what the run saves, from its beginning on
        self._saved: tuple[SavedFile, ...] | None = None  # by the run, if all that was seen
        self._mounts = mounts().keys()
        self._not_seen: tuple[AttemptEnd | None] | None = None  # whose checkpoints

    def begin(self) -> None:
        """Write down what was there before the run."""
        self._new = True
        self._is_seen = self.since == self._began  # nothing of it was written before
        keep(self._origin, self._records)
        keep(SavedMethod(method=self.method), self._records)

    def continue_from(self, since: float) -> None:
        """Continue from what an earlier run has written since then."""
        self.since = since
        if self.job.resume is None:  # of the earlier run's named ones none is moved: it may go on
            self.take_stock()
        self._origin = Origin(before=find_checkpoints(self.job.resume, self.folder))

    @property
    def is_unproven(self) -> bool:
        """Whether no restart has shown yet that the script resumes as its text says."""
        saved = kept(SavedMethod, self._records)
        return self.method.inferred and not (saved is not None and saved.proven)

    def take_stock(self, end: AttemptEnd | None = None) -> tuple[str, ...]:
        """Look for what the run has written, where no job file says what its checkpoints are.

        Returns what is to be announced: checkpoints that are cut off are moved out of the way.
        """
        if self.method.how is ResumeSign.UNKNOWN:
            unread = end.saved.unread if end else ""
            moved_aside = tuple(self._clear(self.job.resume, unread)) if self.job.resume else ()
            self.cleared = bool(unread and moved_aside)
            return moved_aside
        self._not_seen, self.all_cut_off = None, False
        if self.gone is not None:  # what is known of them stays
            self._not_seen = (end,)
            return ()
        found = self._written()
        moved = [said for each in found if (said := repoint(self.folder, each.path))]
        found = self._written() if moved else found
        aside = list(self._set_aside(found))
        self.all_cut_off = bool(aside) and not self._written()
        moved += aside
        if self.method.how is not ResumeSign.COMMAND:
            self._take_up(usable(found) if self._can_prove(end) else ())
        return tuple(moved)

    def _clear(self, resume: Resume, unread: str) -> Iterator[str]:
        """Have a script that chooses its checkpoint itself, with a job file, find a whole one.

        One that is told which to take, and could not load another, chooses too.
        """
        for each in find_checkpoints(resume, self.folder):
            if said := repoint(self.folder, Path(each.path)):
                yield said
        told = any(CHECKPOINT in text for text in (*resume.arguments, *resume.environment.values()))
        if told and not unread:
            return
        named = find_checkpoints(resume, self.folder) - self._origin.foreign
        files = {self.folder / each.path for each in named}
        paths = files.union(*(each.parents for each in files))  # it may name a file of a folder
        if told:
            failed = Path(real_path(unread))
            paths = {each for each in paths if Path(real_path(each)) in (failed, *failed.parents)}
        yield from self._set_aside(
            [each for each in self._written() if self.folder / each.path in paths]
        )

    def _set_aside(self, found: Sequence[OwnCheckpoint]) -> Iterator[str]:
        """Move those that are cut off, and that the script would take, out of the way."""
        good = usable(found)
        for each in found:
            newest = not good or each.written > good[0].written
            is_last = any(fnmatchcase(each.path.name, name) for name in self.method.last)
            taken = newest or is_last  # by the script, if it stays
            if not each.cut_off or not taken:
                continue
            struck = strike_out(self.folder, each.path)
            if target := set_aside(self.folder, each.path):
                source = put_in_place(self.folder, each.path, good) if is_last else None
                instead = f"; {source} was copied in its place" if source else ""
                yield f"{each.path} {each.wrong}: moved to {target}{instead}{struck}."

    def take_stock_again(self) -> tuple[str, ...]:
        """Look for what could not be looked for, as its drive was gone."""
        return self.take_stock(*self._not_seen) if self._not_seen else ()

    def _written(self) -> tuple[OwnCheckpoint, ...]:
        """Return what the run has written and may be a checkpoint, the newest first."""
        outside = [checkpoints_in(folder, self.since) for folder in self._outside]
        found = [*own_checkpoints(self.folder, self.since), *chain.from_iterable(outside)]
        if (saved := self._saved) is not None and not self.others_write:
            own = [each for each in found if self._is_saved(self.folder / each.path, saved)]
            found = own if own or not saved else found  # else it copies what it saved
        complete = self._complete([each.path for each in found])
        found = [without_files(each, self.folder, complete) for each in found]
        return tuple(sorted(found, key=lambda each: each.written, reverse=True))

    @staticmethod
    def _is_saved(path: Path, saved: Iterable[SavedFile]) -> bool:
        """Return whether the run was seen to save it, or a file in it, perhaps by another name."""
        real = Path(real_path(path))
        places = [Path(real_path(each.path)) for each in saved]
        if any(real in (each, *each.parents) or each in real.parents for each in places):
            return True
        known = {(each.number, each.written) for each in saved}
        files = path.rglob("*") if path.is_dir() else (path,)
        try:
            stats = [file.stat() for file in files]
        except OSError:
            return False
        return any((about.st_ino, about.st_mtime_ns) in known for about in stats)

    def saved_in(self, saved: SavedFiles, *, seen: bool) -> None:
        """Note what the script saved, and where, if that is outside of the run's folder.

        ``seen``: it would have been seen if it had saved anything.
        """
        self._is_seen = self._is_seen and seen and all(each.path for each in saved.files)
        files = (*(self._saved or ()), *saved.files)
        self._saved = files[-MAX_SAVED:] if self._is_seen else None
        inside = [folder.resolve() for folder in (self.folder, *self._seen_as)]
        folders = dict.fromkeys(Path(each.path).parent for each in saved.files if each.path)
        places = map(holder, folders)
        new = [place for place in places if not any(map(place.is_relative_to, inside))]
        known = dict.fromkeys([*self._outside, *new])
        if list(known) == self._outside:
            return
        self._outside = list(known)[-MAX_OUTSIDE:]
        method = kept(SavedMethod, self._records) or SavedMethod(method=self.method)
        outside = tuple(map(str, self._outside))
        keep(msgspec.structs.replace(method, outside=outside), self._records)

    @property
    def gone(self) -> Path | None:
        """The folder with checkpoints that does not answer, or whose drive is not mounted."""
        if not responds(self.folder) or not self.folder.exists():
            return self.folder
        missing = self._mounts - mounts().keys()
        project = Path(real_path(self.folder))
        home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() fails where there is none
        if not home.is_relative_to(project):  # a home has drives of all kinds
            inside = (place for place in missing if place.is_relative_to(project))
            if found := next(inside, None):
                return found
        return next(
            (
                folder
                for folder in self._outside
                if any(map(folder.is_relative_to, missing)) or not responds(folder)
            ),
            None,
        )

    def take_up_written(self) -> None:
        """Go on from what the run has written, where no job file names that. Moves nothing."""
        if self.method.how is not ResumeSign.UNKNOWN:
            self._take_up(usable(self._written()))

    def _can_prove(self, end: AttemptEnd | None) -> bool:
        """Return whether the script can be watched for reading a checkpoint, and may be told to."""
        if end is None or not self.method.inferred:
            return True
        self.unseen = not end.heartbeats
        if self.unseen:  # it ended before it came so far: what is known stays
            return self.job.resume is not None
        given = self.method.given
        paths = [real_path(folder / given) for folder in (self.folder, *self._seen_as)]
        if given and end.read_checkpoint and end.read_checkpoint.path in paths:
            self.method = msgspec.structs.replace(self.method, given="")
        return not self.method.given

    def _take_up(self, good: Iterable[OwnCheckpoint]) -> None:
        patterns = tuple(glob.escape(str(each.path)) for each in good)
        arguments = self.method.arguments
        variable = self.method.variable
        environment = {variable: CHECKPOINT} if variable else {}
        resume = (
            Resume(arguments=arguments, environment=environment, checkpoints=patterns)
            if patterns
            else None
        )
        command = without_option(self._typed, arguments) if patterns else self._typed
        self.job = msgspec.structs.replace(self.job, resume=resume, command=command)

    def take_over(self, run: Run, others: Iterable[Run]) -> None:
        """Separate the checkpoints of a run that was left from those that others wrote since.

        A run without any of its own is not started again over those of another.
        """
        found = find_checkpoints(self.job.resume, self.folder)
        self._origin = taken_over(run, others, self.job.resume, found)
        theirs = sorted(each.path for each in found & (self._origin.foreign - self._origin.before))
        if theirs and self.newest() is None:
            raise RocsteadyError(
                f"{run.name} has no checkpoint of its own: {theirs[-1]} belongs to another run. To"
                f" start over: rocsteady run --resume never -- {shown_command(run.command)}"
            )
        keep(self._origin, self._records)

    def resumes_by_itself(self, job: Job) -> None:
        """Note that the script resumes by itself, from what it has found already."""
        self.method = ResumeMethod(how=ResumeSign.UNKNOWN)  # it is not needed any more
        self.job = job
        self._origin = Origin(before=find_checkpoints(job.resume, self.folder))
        keep(self._origin, self._records)

    def ended(self, end: AttemptEnd) -> None:
        """Note whether an attempt wrote a checkpoint."""
        self._wrote = self._wrote or end.wrote_checkpoint
        self._observed = self._observed or self.led_on(end) or _saved_over(end.read_checkpoint)
        self._attempts += 1
        batches = (beat.batches for beat in end.heartbeats)
        self._batches = max(batches, default=0) or self._batches

    def led_on(self, end: AttemptEnd) -> bool:
        """Return whether an attempt found, by itself, a checkpoint that this run has written."""
        read = end.read_checkpoint
        return bool(self._attempts and read and read.written / NANOSECONDS > self._began)

    @property
    def can_resume(self) -> bool:
        """Return whether the next attempt goes on from a checkpoint, if there is one.

        A script that resumes on its own can only do so once it has written one.
        """
        wrote = self._wrote or self.others_write
        own = self._observed or (bool(self.argument) and wrote)
        return self.job.resume is not None or own or self._not_seen is not None

    @property
    def beginning(self) -> StartsAt:
        if self._not_seen is not None:
            return StartsAt.CHECKPOINT
        if self.job.resume is None:
            return StartsAt.BY_ITSELF if self.can_resume else StartsAt.UNABLE
        return StartsAt.CHECKPOINT if self.newest() else StartsAt.NONE_YET

    @property
    def room(self) -> int:
        """The bytes that the newest checkpoint takes."""
        newest = self.newest()
        found = stamp(self.folder, newest.path) if newest else None
        return found.size if found else 0

    def started(self) -> None:
        """Forget what was read: the attempt that starts may change it."""
        self._judged.clear()
        if self._new:
            self._set_apart()
            keep(self._origin, self._records)
            self._new = False

    def newest(self) -> Checkpoint | None:
        """Return the one to go on from, if there is any."""
        return next(self.whole(), None)

    def step_of(
        self, checkpoint: Checkpoint, seen: tuple[int, int], printed: int = 0
    ) -> StepEstimate:
        """Return the steps of a checkpoint: by itself, or what was ``seen`` when it was written.

        A number that cannot be what was seen counts something else. What the script ``printed``
        last is where it was written, if that can be: scripts print and save at round numbers.
        """
        number, (least, most) = checkpoint_number(self.folder, checkpoint.path), seen
        key = f"{number.unit} {number.value}" if number else str(checkpoint.path)
        if number is not None and number.unit == STEP:
            near = least // 2 <= number.value <= most + 1 + (most - least)
            if near or not most or is_ours(self.folder / checkpoint.path):
                return StepEstimate(low=number.value, high=number.value, key=key, exact=True)
        epochs = (number.value, number.value + 1) if number and number.unit == EPOCH else ()
        for steps in (count * self._batches for count in epochs):  # the first may be epoch 0
            if least < most and least <= steps <= most:
                return StepEstimate(low=steps, high=steps, key=key, exact=True)
        fits = least <= printed <= most and least != most
        return StepEstimate(low=least, high=most, key=key, printed=printed if fits else 0)

    def counted(self, end: AttemptEnd, before: StepEstimate, log: Path) -> AttemptEnd:
        """Add what the script itself says of how far it came."""
        counts, newest = dict(end.own_counts), self.newest()
        if newest and (number := checkpoint_number(self.folder, newest.path)):
            counts[f"{SAVED}{number.unit}"] = number.value
        if (epoch := last_epoch_printed(log)) is not None:
            counts[EPOCH] = epoch
        read = end.read_checkpoint
        if read is not None and (self.led_on(end) or _saved_over(read)):
            counts[READ] = _last_written(read)  # by this attempt, if it came so far
        made = (end.last_step or 0) - max(before.best, end.base)
        return msgspec.structs.replace(end, own_counts=counts, made=max(0, made))

    def _set_apart(self) -> None:
        """Leave out what appeared since the run began: before its first attempt none is its own."""
        late = find_checkpoints(self.job.resume, self.folder) - self._origin.before
        self._origin = msgspec.structs.replace(self._origin, foreign=self._origin.foreign | late)

    def whole(self) -> Iterator[Checkpoint]:
        """Yield those that the run may go on from, the newest first."""
        if self._new:
            self._set_apart()
        return whole_checkpoints(
            self.job,
            self.folder,
            self._origin,
            self.avoid,
            self._judged,
            complete=self._complete(
                [Path(each.path) for each in find_checkpoints(self.job.resume, self.folder)]
            ),
        )

    def _complete(self, paths: Sequence[Path]) -> tuple[str, ...]:
        """Return the file patterns that a complete checkpoint must have.

        Where no method was found, those that no checkpoint here has do not count: a script that
        imports a known library may write checkpoints of its own.
        """
        if self.method.how is not ResumeSign.UNKNOWN:
            return self.method.complete
        return tuple(
            each
            for each in self.method.complete
            if any((self.folder / path / Path(each).name).is_file() for path in paths)
        )


def without_option(command: tuple[str, ...], arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command without the option that the arguments set, which it may have already."""
    flag = arguments[0].partition("=")[0] if arguments else ""
    if "=" in "".join(arguments[1:2]) and "=" not in arguments[0]:
        return command  # --config-value KEY=VALUE may be there several times, for other keys
    left, skip = [], False
    for word in command:
        if skip:
            skip = False
        elif word == flag:
            skip = len(arguments) > 1
        elif not flag or not word.startswith(f"{flag}="):
            left.append(word)
    return tuple(left)


def _saved_over(read: CheckpointRead | None) -> bool:
    """Return whether the file that a script read is a newer one now."""
    return read is not None and _last_written(read) > read.written


def _last_written(read: CheckpointRead) -> int:
    """Return when the file that a script read was last written: it will read that next."""
    try:
        return max(read.written, Path(read.path).stat().st_mtime_ns)
    except (OSError, ValueError):
        return read.written


def taken_over(
    run: Run, others: Iterable[Run], resume: Resume | None, found: frozenset[Stamp]
) -> Origin:
    """Return what a run that was left may use: not what other runs have written since."""
    own = kept(Origin, Path(run.folder)) or Origin()
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
    origin, its = kept(Origin, Path(run.folder)), run.job.get("resume")
    patterns = its.get("checkpoints") if isinstance(its, dict) else None
    if origin is not None and resume is not None and patterns == list(resume.checkpoints):
        return found - origin.before
    end = float("inf") if run.ended is None else run.ended + CLOCK_GRAIN
    begin = run.started - CLOCK_GRAIN
    return [each for each in found if begin <= each.written / NANOSECONDS <= end]
