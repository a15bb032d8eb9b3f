"""The heartbeat pages that training processes write, as values.

A page is written without a lock while it is read here. What is not a page of this version is passed
over, because a supervisor must never be stopped by what a training process left behind.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec
from rocsteady_train.inside import wire
from rocsteady_train.untrusted_file import read_head, read_regular

from rocsteady.hangs.values import Heartbeat
from rocsteady.model import BatchSplit, LoaderFacts, Value
from rocsteady.system import procfs
from rocsteady.typed_values import decode

NOTE_LIMIT = 500  # characters of a note that are kept
APPLIED_LIMIT = 64 * 1024  # bytes
RESUMES_LIMIT = READ_LIMIT = 16 * 1024  # bytes
MAX_NAMES = 2_000  # of the folder that one pass looks at
MAX_FILES = 250  # of one kind that one pass reads
_WORDS = struct.Struct(f"={wire.SIZE // 8}Q")
_NANO = 1e-9
_PATTERN = re.compile(r"[A-Za-z0-9_.*?\[\]][A-Za-z0-9_.*?\[\]-]{0,200}")  # of one name
RAISED_LIMIT = 256 * 1024  # bytes
T = TypeVar("T", bound=Value)


class SettingOutcome(Enum):
    """What came of a setting; the process itself writes the first two."""

    APPLIED = "applied"
    REFUSED = "refused"
    NO_EFFECT = "no effect"


class Applied(Value, frozen=True, kw_only=True):
    """What came of one setting of a strategy in one process."""

    pid: int = 0  # the name of its file says it
    setting: str  # the field of model.Strategy
    outcome: SettingOutcome
    why: str = ""


class Size(Value, frozen=True, kw_only=True):
    """How much a script trains, the largest of each over its processes; 0: not known."""

    parameters: int  # that are trained, of all optimizers together
    batch: int  # samples that its loader gives at a time
    batches: int  # in an epoch


class Resumes(Value, frozen=True, kw_only=True):
    """Where a script that goes on by itself has its checkpoints."""

    folder: str  # absolute
    pattern: str  # of their names


class CheckpointRead(Value, frozen=True, kw_only=True):
    """The checkpoint that a script found and read before its first step."""

    path: str  # absolute
    written: int  # nanoseconds of the clock, as the file said when it was read
    steps: int = 0  # that were made before it was read


class SavedFile(Value, frozen=True, array_like=True):
    """A file that a script saved, or is about to save."""

    path: str  # absolute; "": not known
    number: int  # its inode, and
    written: int  # the nanoseconds of its time, once it was whole; 0: it was not


class SavedFiles(Value, frozen=True, kw_only=True):
    """What a script saved: the latest files."""

    files: tuple[SavedFile, ...] = ()
    failed: str = ""  # the file that could not be saved, which ended the script as a rule
    limit: int = 0  # bytes that files may have there, if that one has them
    unread: str = ""  # or that could not be loaded before its first step
    seen: bool = False  # what was saved: the folder in which it is told is still there


class _Settings(Value, frozen=True, kw_only=True):
    asked: tuple[str, ...]
    told: tuple[Applied, ...]


class _Versioned(Value, frozen=True, kw_only=True):
    version: int


def _files(
    folder: Path, suffix: str, kind: type[T], version: int, limit: int
) -> Iterator[tuple[int, T]]:
    """Yield what each process left of one kind; what is not ours is passed over."""
    for pid, path in numbered(folder, suffix):
        try:
            content = read_regular(path, limit, follow=False)
            if decode(content, type=_Versioned).version != version:
                continue
            left = decode(content, type=kind)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        yield pid, left


def read_applied(folder: Path) -> tuple[Applied, ...]:
    """Return what came of each setting that was asked for, by process.

    One that nothing was found for has no effect. That is said only if it is so in every process: a
    launcher has no loaders, and its ranks have.
    """
    suffix, version = wire.APPLIED_SUFFIX, wire.APPLIED_VERSION
    files = dict(_files(folder, suffix, _Settings, version, APPLIED_LIMIT))
    found = {told.setting for file in files.values() for told in file.told}
    applied: list[Applied] = []
    for pid, file in files.items():
        missing = (name for name in file.asked if name not in found)
        nothing = SettingOutcome.NO_EFFECT
        applied += [Applied(pid=pid, setting=name, outcome=nothing) for name in missing]
        applied += [msgspec.structs.replace(told, pid=pid) for told in file.told]
    return tuple(applied)


def _pages_with(folder: Path, word: int) -> list[tuple[int, ...]]:
    """Return the pages in which a word is told."""
    pages = (_words(path, pid) for pid, path in numbered(folder, wire.SUFFIX))
    return [words for words in pages if words is not None and words[word]]


def read_loader_facts(folder: Path) -> LoaderFacts | None:
    """Return what is known of the script's loaders, over all processes; None: none was used."""
    told = _pages_with(folder, wire.W_LOADERS)
    if not told:
        return None
    most = max(told, key=lambda words: words[wire.W_WORKERS])
    context = most[wire.W_CONTEXT]
    return LoaderFacts(
        loaders=max(words[wire.W_LOADERS] for words in told),
        workers=most[wire.W_WORKERS],
        context=wire.CONTEXTS[context] if context < len(wire.CONTEXTS) else "",
        pickles=_one_answer(told, wire.W_PICKLES, decides=wire.NO),
        main_guarded=_one_answer(told, wire.W_GUARDED, decides=wire.NO),
        persistent=_one_answer(told, wire.W_PERSISTENT, decides=wire.YES) is True,
    )


def read_batch_split(folder: Path) -> BatchSplit | None:
    """Return how batches are trained; None: not through Loop, or no step was made."""
    told = _pages_with(folder, wire.W_BATCH)
    if not told:
        return None
    most = max(told, key=lambda words: words[wire.W_BATCH])
    batch = most[wire.W_BATCH]
    return BatchSplit(batch=batch, micro_batch=min(most[wire.W_MICRO_BATCH], batch))


def read_precision(folder: Path) -> str:
    """Return the lowest precision that a script computes in: fp32, bf16, fp16; "": not known."""
    pages = _pages_with(folder, wire.W_PRECISION)
    told = max((words[wire.W_PRECISION] for words in pages), default=0)
    return wire.PRECISIONS[told] if told < len(wire.PRECISIONS) else ""


def read_size(folder: Path) -> Size | None:
    """Return how much is trained; None: no step was made that could be seen."""
    told = _pages_with(folder, wire.W_PARAMETERS)
    if not told:
        return None
    return Size(
        parameters=max(words[wire.W_PARAMETERS] for words in told),
        batch=max(words[wire.W_LOADER_BATCH] for words in told),
        batches=max(words[wire.W_LOADER_BATCHES] for words in told),
    )


def read_resumes(folder: Path) -> tuple[Resumes, ...]:
    """Return where scripts told that they go on from, each place once."""
    suffix, version = wire.RESUMES_SUFFIX, wire.RESUMES_VERSION
    files = _files(folder, suffix, Resumes, version, RESUMES_LIMIT)
    return tuple(dict.fromkeys(told for _, told in files if _is_place(told)))


def read_checkpoint(folder: Path, *, late: bool = False) -> CheckpointRead | None:
    """Return the checkpoint that a script read at its start, of several the newest.

    ``late``: or after a few steps.
    """
    files = _files(folder, wire.READ_SUFFIX, CheckpointRead, wire.READ_VERSION, READ_LIMIT)
    found = [read for _, read in files if "\0" not in read.path and (late or not read.steps)]
    return max(found, key=lambda read: read.written, default=None)


def read_saved(folder: Path) -> SavedFiles:
    saved: dict[SavedFile, None] = {}
    failed, unread, limit = "", "", 0
    files = _files(folder, wire.SAVED_SUFFIX, SavedFiles, wire.SAVED_VERSION, APPLIED_LIMIT)
    for _, file in files:
        plain = (it for it in file.files if not it.path or _is_plain(it.path))
        saved.update(dict.fromkeys(plain))
        failed = failed or (file.failed if _is_plain(file.failed) else "")
        limit = limit or file.limit
        unread = unread or (file.unread if _is_plain(file.unread) else "")
    told = SavedFiles(files=tuple(saved), failed=failed, limit=limit, unread=unread)
    return msgspec.structs.replace(told, seen=folder.exists())


def _is_plain(path: str) -> bool:
    return Path(path).is_absolute() and "\0" not in path


def _is_place(told: Resumes) -> bool:
    """Return whether these are an absolute folder and names in it, and lead nowhere else."""
    folder = told.folder
    plain = _is_plain(folder) and os.path.normpath(folder) == folder
    return plain and _PATTERN.fullmatch(told.pattern) is not None and ".." not in told.pattern


def _one_answer(told: Iterable[tuple[int, ...]], word: int, *, decides: int) -> bool | None:
    """Put together what several processes told; one of the two answers outweighs the other."""
    answers = {words[word] for words in told} & {wire.NO, wire.YES}
    if not answers:
        return None
    return (decides if decides in answers else answers.pop()) == wire.YES


def read_pages(folder: Path, known: Iterable[int] = ()) -> tuple[Heartbeat, ...]:
    """Return what each process told, in number order; also of processes that have ended.

    Those of ``known`` processes are read even if a script has filled the folder.
    """
    pages = (_words(path, pid) for pid, path in numbered(folder, wire.SUFFIX, known))
    return tuple(_heartbeat(words) for words in pages if words is not None)


def read_notes(folder: Path) -> dict[int, str]:
    """Return the reason that each process without a page gave."""
    notes = {}
    for pid, path in numbered(folder, wire.NOTE_SUFFIX):
        try:
            content = read_head(path, 4 * NOTE_LIMIT, follow=False)
        except OSError:
            continue
        if content:
            line = content.decode("utf-8", "replace").strip().partition("\n")[0]
            notes[pid] = "".join(mark for mark in line if mark.isprintable())[:NOTE_LIMIT]
    return notes


def numbered(folder: Path, suffix: str, known: Iterable[int] = ()) -> list[tuple[int, Path]]:
    """List the files named by a process; a folder that is not there has none.

    A script can fill the folder, and a pass must be short all the same. So the number is limited;
    processes that are alive or ``known`` come first, and are looked for by name.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, MAX_NAMES)]
    except OSError:
        return []
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    found = {stem: int(stem) for stem in stems if stem.isdecimal()}
    if len(names) == MAX_NAMES or len(found) > MAX_FILES:
        wanted = procfs.living().union(known)
        beside = {str(pid): pid for pid in wanted if (folder / f"{pid}{suffix}").is_file()}
        found = dict(islice({**beside, **found}.items(), MAX_FILES))
    return sorted((pid, folder / f"{stem}{suffix}") for stem, pid in found.items())


def _words(path: Path, pid: int) -> tuple[int, ...] | None:
    try:
        content = read_regular(path, wire.SIZE, follow=False)
    except OSError:
        return None
    if len(content) != wire.SIZE:
        return None
    words = _WORDS.unpack(content)
    ours = words[wire.W_MAGIC] == wire.MAGIC and words[wire.W_VERSION] == wire.VERSION
    if not ours or words[wire.W_PID] != pid or words[wire.W_PHASE] >= len(wire.PHASES):
        return None
    return words


def _heartbeat(words: tuple[int, ...]) -> Heartbeat:
    return Heartbeat(
        pid=words[wire.W_PID],
        rank=_told(words[wire.W_RANK]),
        world=words[wire.W_WORLD] or None,
        thread=words[wire.W_THREAD] or words[wire.W_PID],
        made=words[wire.W_MADE] * _NANO,
        interrupted=words[wire.W_INTERRUPTED] == wire.YES,
        step=words[wire.W_STEP],
        beats=words[wire.W_BEATS],
        phase=wire.PHASES[words[wire.W_PHASE]],
        since=words[wire.W_SINCE] * _NANO,
        last_step=words[wire.W_LAST_STEP] * _NANO or None,
        ended=words[wire.W_END] != wire.RUNNING,
        raised=words[wire.W_END] == wire.RAISED,
        total=words[wire.W_TOTAL] or None,
        batches=words[wire.W_LOADER_BATCHES],
        base=words[wire.W_BASE],
        save_failed=_told(words[wire.W_SAVE_FAILED]),
        saved=words[wire.W_SAVED] * _NANO or None,
        saved_step=words[wire.W_SAVED_STEP],
        not_finite=words[wire.W_NOT_FINITE],
        finite=words[wire.W_FINITE],
        seconds_in=_by_phase(words, wire.W_TIME),
        longest_in=_by_phase(words, wire.W_LONGEST),
        histogram={
            phase: words[start : start + wire.BUCKETS]
            for phase, start in zip(
                wire.PHASES, range(wire.W_HISTOGRAM, len(words), wire.BUCKETS), strict=False
            )
        },
    )


def _told(word: int) -> int | None:
    return word - 1 if word else None


def _by_phase(words: tuple[int, ...], first: int) -> dict[str, float]:
    return {phase: words[first + index] * _NANO for index, phase in enumerate(wire.PHASES)}


# The exceptions that ended training processes, as those processes told them.


class RaisedException(Value, frozen=True, kw_only=True):
    """An exception that ended a training process, as the process itself reported it."""

    at: float = 0.0  # seconds of the monotonic clock
    rank: str = ""  # as the launcher told it; "" if it did not
    type: str  # qualified, as "torch.OutOfMemoryError"; built-in ones without a module
    bases: tuple[str, ...] = ()  # qualified
    message: str = ""
    place: str = ""  # "train.py:88 step": the innermost frame of the user's own code
    traceback: str = ""


def read_raised(folder: Path) -> tuple[RaisedException, ...]:
    """Return what was told, the first in time first. What is not ours is passed over."""
    suffix, version = wire.RAISED_SUFFIX, wire.RAISED_VERSION
    files = _files(folder, suffix, RaisedException, version, RAISED_LIMIT)
    return tuple(sorted((told for _, told in files), key=lambda told: told.at))
