"""Done means done: what a job asked for and does not have, each item named.

Exit code 0 is not enough. A script that swallows its errors, writes no model, or trains on one GPU
of two ends with 0 as well. What cannot be told counts as missing, and says so.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path

from rocsteady_train.checkpoints import folder as checkpoint_folder
from rocsteady_train.checkpoints import integrity as file_integrity
from rocsteady_train.checkpoints.folder import BrokenError
from rocsteady_train.untrusted_file import open_regular, read_head

from rocsteady.model import Value
from rocsteady.run.job.values import DoneWhen, FileKind, Job, WantedFile
from rocsteady.system.logfile import STAMP
from rocsteady.system.mounted_drives import CLOCK_GRAIN

MATCHES_LIMIT = 100_000
LOG_CHUNK = 1024 * 1024  # bytes
HASH_LIMIT = 16 * 1024 * 1024 * 1024  # bytes of a checkpoint of ours; of larger ones the sizes
POINTER = "latest"  # of DeepSpeed: a file that names the newest of the folders beside it
NAME_LIMIT = 256  # bytes
_JUDGES = {
    FileKind.MODEL: file_integrity.wrong_with_model,
    FileKind.JSON: file_integrity.wrong_with_json,
    FileKind.ANY: file_integrity.wrong_with_any,
}


class RunEvidence(Value, frozen=True, kw_only=True):
    """What is known of a run when its command has ended well. None: it could not be told."""

    folder: Path  # that of the job file: patterns are read from there
    started: float  # seconds since 1970
    seconds: float  # that it took
    steps: int | None = None
    epochs: int | None = None
    gpus_busy: int | None = None  # how many did work
    logs: tuple[Path, ...] = ()  # all that the last attempt printed


def missing(job: Job, evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    """Yield what the job is not done without: its key in the job file, and what it is.

    Nothing: the job is done.
    """
    for criteria in (_amounts, _time, _texts, _files):
        yield from criteria(job.done_when, evidence)


def proves(wanted: DoneWhen) -> bool:
    """Return whether the criteria say what must be there, and not only what must not."""
    return bool(wanted.steps or wanted.epochs or wanted.present_text or wanted.files)


def matches(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield what a pattern finds, as the pattern is written: below the folder, or anywhere."""
    found = glob.iglob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207 - Path.glob refuses absolute patterns
    yield from map(Path, islice(found, MATCHES_LIMIT))


def written(path: Path) -> float:
    """Return when a file was last written, in seconds since 1970; 0 if it is gone.

    Anyone can set a file's time of writing, to the future as well, and a backup brings its own.
    The time of its last change cannot be set; on Windows there is none.
    """
    try:
        seen = path.stat()
    except OSError:  # removed in the meantime, or a link to nothing
        return 0.0
    return seen.st_mtime if os.name == "nt" else min(seen.st_mtime, seen.st_ctime)


def _amounts(wanted: DoneWhen, evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    for key, name in (("steps", "steps"), ("epochs", "epochs"), ("gpus_busy", "GPUs busy")):
        want, had = getattr(wanted, key), getattr(evidence, key)
        if want is None:
            continue
        if had is None:
            yield f"done_when.{key}", f"{want} {name} required; the number reached is unknown"
        elif had < want:
            yield f"done_when.{key}", f"{want} {name} required, {had} reached"


def _time(wanted: DoneWhen, evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    taken = timedelta(seconds=round(evidence.seconds))
    if wanted.within is not None and taken > wanted.within:
        yield "done_when.within", f"took {taken}, required within {wanted.within}"


def _texts(wanted: DoneWhen, evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    texts = {*wanted.absent_text, *wanted.present_text}
    if not texts:
        return
    try:
        found = {text for log in evidence.logs for text in _texts_in(log, texts)}
    except OSError as error:
        found, why = set(), f"the log cannot be read: {error.strerror or error}"
    else:
        why = "" if evidence.logs else "there is no log"
    for text in wanted.absent_text:
        if text in found or why:
            yield "done_when.absent_text", why or f"the log has {text!r}"
    for text in wanted.present_text:
        if text not in found:
            yield "done_when.present_text", why or f"the log does not contain {text!r}"


def _texts_in(log: Path, texts: Collection[str]) -> set[str]:
    """Search a log of any size, once, in little memory."""
    left = {text.encode("utf-8", "surrogateescape"): text for text in texts}
    overlap = max(map(len, left)) - 1
    found: set[str] = set()
    with open_regular(log, follow=False) as stream:
        window = rest = b""
        while left and (chunk := stream.read(LOG_CHUNK)):
            lines, end, rest = (rest + chunk).rpartition(b"\n")
            if not end and len(rest) > LOG_CHUNK:  # a line without an end
                lines, rest = rest, b""
            window += STAMP.sub(b"", lines) + end
            _move(left, window, found)
            window = window[-overlap:] if overlap else b""
        _move(left, window + STAMP.sub(b"", rest), found)
    return found


def _move(left: dict[bytes, str], window: bytes, found: set[str]) -> None:
    """Take the texts that are found from those that are left."""
    found.update(left.pop(wanted) for wanted in [each for each in left if each in window])


def _files(wanted: DoneWhen, evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    for number, file in enumerate(wanted.files):
        if problem := _wrong_with(file, evidence):
            yield f"done_when.files[{number}]", problem


def _wrong_with(wanted: WantedFile, evidence: RunEvidence) -> str:
    """Look for one file that is new and readable; otherwise say what is wrong with the newest."""
    found = [
        (path, written(evidence.folder / path)) for path in matches(evidence.folder, wanted.path)
    ]
    if not found:
        return f"no file {wanted.path}"
    found.sort(key=lambda entry: entry[1], reverse=True)
    problem = ""
    for path, when in found:
        if when < evidence.started - CLOCK_GRAIN:
            return problem or f"{path} is from before this run"
        wrong = what_is_wrong(evidence.folder / path, wanted.kind) if wanted.readable else ""
        if not wrong:
            return ""
        problem = problem or f"{path} {wrong}"
    return problem


def what_is_wrong(path: Path, kind: FileKind) -> str:
    """Return why a file does not count as readable, or nothing."""
    try:
        if kind is not FileKind.JSON and path.is_dir():
            if checkpoint_folder.is_ours(path):
                return _wrong_with_ours(path)
            if (pointed := pointed_to(path)) and (wrong := what_is_wrong(pointed, kind)):
                return f"names {pointed.name}, which {wrong}"
            if wrong := file_integrity.wrong_with_files_in(path):
                return wrong
        return _JUDGES[kind](path)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"


def pointed_to(folder: Path) -> Path | None:
    """Return the folder that a file in this one names as the newest, as DeepSpeed does."""
    try:
        name = read_head(folder / POINTER, NAME_LIMIT).decode().strip()
    except (OSError, UnicodeDecodeError):
        return None
    pointed = folder / name
    inside = Path(name).name == name not in ("", "..") and not pointed.is_symlink()
    return pointed if inside and pointed.is_dir() else None


def kind_of(path: Path) -> FileKind:
    """Return what a file should be, by its name."""
    if path.suffix.lower() in file_integrity.MODELS:
        return FileKind.MODEL
    return FileKind.JSON if path.suffix.lower() == ".json" else FileKind.ANY


def _wrong_with_ours(path: Path) -> str:
    """Judge a checkpoint that rocsteady_train wrote. Restoring it looks at every byte anyway."""
    try:
        if not (path / checkpoint_folder.MANIFEST).is_file():
            return "has a manifest that is not a file"
        manifest = checkpoint_folder.read_manifest(path)
        for file in manifest.files:
            there = path / file.name
            if not there.is_file():
                return f"has no {file.name}"
            if there.stat().st_size != file.size:
                return f"has {there.stat().st_size} bytes of {file.size} in {file.name}"
        return checkpoint_folder.what_is_wrong(path) if manifest.size <= HASH_LIMIT else ""
    except BrokenError as error:
        return str(error)
