"""The checkpoints that a run has written, found from outside among its files.

For scripts without a job file. A checkpoint is told from other files by what is in it: the state of
an optimizer. Nothing is unpickled: of a file that torch.save wrote, the bytes of its pickle are
searched for the names that an optimizer's state has.
"""

from __future__ import annotations

import contextlib
import json
import pickletools
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from stat import S_IMODE

from msgspec.structs import replace
from rocsteady_train.checkpoints import folder as checkpoint_folder
from rocsteady_train.checkpoints.integrity import (
    MODELS,
    TORCH_SAVED,
    ZIP,
    pickles_in,
    wrong_with_model,
)
from rocsteady_train.untrusted_file import read_head

from rocsteady.errors import RocsteadyError
from rocsteady.model import Value
from rocsteady.run.checkpoints.backup import written_files
from rocsteady.run.checkpoints.resume import unfinished
from rocsteady.run.job.done_when import POINTER, kind_of, pointed_to, what_is_wrong
from rocsteady.system.atomic_file import write_whole
from rocsteady.system.mounted_drives import CLOCK_GRAIN
from rocsteady.system.real_path import real_path
from rocsteady.system.unlinked import copy_file

LENGTH = struct.Struct("<Q")  # of the header of a safetensors file
PICKLE_LIMIT = 64 << 20  # bytes that are searched
SUFFIXES = MODELS | TORCH_SAVED | {".tar", ".distcp"}
OTHER_SUFFIXES = {"", ".bin", ".chk", ".ckp", ".dat", ".model", ".save", ".state"}
STEP_FOLDER = re.compile(
    r"(?:checkpoint|ckpt|step|epoch|iter|global_step)[-_=]?[0-9]+|.*-state"
    r"|checkpoint_[0-9]{4}-[0-9_.-]+"  # Ray Train's
)
IN_FOLDERS = (".metadata", "trainer_state.json", "train_state.json", "random_states_0.pkl")
# What an optimizer's state has, or a key that stands for it: "opt", "opt_state", "opt.state.0". Of
# a pickle a string is preceded by its length, in one byte or four.
_STATE = re.compile(
    rb"param_groups|optim|exp_avg|momentum_buffer"
    rb"|(?:X\x03\0\0\0|\x8c\x03)opt|(?:X[\x04-@]\0\0\0|\x8c[\x04-@])opt[._\d]",
    re.IGNORECASE | re.DOTALL,
)
RAY_LIST = "checkpoint_manager_snapshot.json"  # all checkpoints of a run of Ray Train
MAX_ENTRIES = 10_000  # of a folder
BEST = re.compile(r"(?i)best")
_SET_ASIDE = re.compile(r"\..+\.broken")


class OwnCheckpoint(Value, frozen=True, kw_only=True):
    path: Path  # from the folder of the run
    written: int  # nanoseconds
    wrong: str  # "": it is whole
    cut_off: bool  # its end is missing, beyond doubt
    resumable: bool  # it has the state of an optimizer


def own_checkpoints(folder: Path, since: float) -> tuple[OwnCheckpoint, ...]:
    """Return what was written since then and may be a checkpoint, the newest first."""
    try:
        written = [path for path, _ in written_files(folder, since)]
    except (OSError, RocsteadyError):  # too many files to look at: nothing is known
        return ()
    found = [_judged(path, folder) for path in dict.fromkeys(_units(written, folder))]
    return tuple(sorted(filter(None, found), key=lambda each: each.written, reverse=True))


def checkpoints_in(folder: Path, since: float) -> tuple[OwnCheckpoint, ...]:
    """Return those in a folder outside of the run's own, by absolute paths, the newest first.

    It may be large, on a drive that is slow: only files in it and in folders of steps count.
    """
    try:
        entries = list(islice(folder.iterdir(), MAX_ENTRIES))
        paths = [
            path
            for entry in entries
            for path in (entry.iterdir() if _is_step_folder(entry) else (entry,))
            if path.stat().st_mtime >= since - CLOCK_GRAIN and path.is_file()
        ]
    except OSError:
        return ()
    found = [_judged(path, folder) for path in dict.fromkeys(_units(paths, folder))]
    whole = [replace(each, path=folder / each.path) for each in found if each is not None]
    return tuple(sorted(whole, key=lambda each: each.written, reverse=True))


def holder(folder: Path) -> Path:
    """Return the folder with all checkpoints, where each is a folder of its own."""
    return folder.parent if _is_step_folder(folder) else folder


def usable(found: Iterable[OwnCheckpoint]) -> tuple[OwnCheckpoint, ...]:
    """Return those to go on from; the best so far only if there is no other."""
    whole = tuple(each for each in found if each.resumable and not each.wrong)
    return tuple(each for each in whole if not BEST.search(each.path.name)) or whole


def without_files(found: OwnCheckpoint, folder: Path, complete: Iterable[str]) -> OwnCheckpoint:
    """Return a checkpoint as cut off if it lacks a file of ``complete``: "checkpoint-*/state"."""
    wrong = "" if found.wrong else unfinished(folder / found.path, complete)
    return replace(found, wrong=wrong, cut_off=True) if wrong else found


def set_aside(folder: Path, path: Path) -> Path | None:
    """Move a checkpoint out of the way, so that no script takes it for its newest one.

    A name that begins with a dot and ends otherwise is not found by the usual patterns.
    """
    target = path.with_name(f".{path.name}.broken")
    with contextlib.suppress(OSError):
        (folder / path).rename(folder / target)
        return target
    return None


def strike_out(folder: Path, path: Path) -> str:
    """Have Ray Train's list not name a checkpoint that is set aside: Ray does not start then.

    Returns what is to be announced; "": there was nothing to do.
    """
    file = folder / path.with_name(RAY_LIST)
    try:
        listed = json.loads(read_head(file, PICKLE_LIMIT))
        results, numbers = listed["checkpoint_results"], listed["checkpoint_report_indices"]
        at = [each["checkpoint_dir_name"] for each in results].index(path.name)
        del results[at], numbers[at]
        newest = numbers.index(max(numbers)) if numbers else None
        listed["latest_checkpoint_result"] = None if newest is None else results[newest]
        for key in listed:
            if key.endswith("_dir_names"):
                listed[key] = [name for name in listed[key] if name != path.name]
        write_whole(file, json.dumps(listed).encode(), S_IMODE(file.stat().st_mode))
    except (OSError, ValueError, LookupError, TypeError):  # there is none, or it is not in it
        return ""
    return f"; {path.with_name(RAY_LIST)} names it no more"


def repoint(folder: Path, path: Path) -> str:
    """Have a folder name its newest whole checkpoint, if the one that it names is cut off.

    Returns what is to be announced; "": there was nothing to do.
    """
    pointed = pointed_to(folder / path)
    if pointed is None or not (wrong := _wrong(pointed)):
        return ""
    pointer = folder / path / POINTER
    try:
        others = [each for each in (folder / path).iterdir() if _is_step_folder(each)]
        others.sort(key=lambda each: each.stat().st_mtime_ns, reverse=True)
        whole = next((each for each in others if each != pointed and not _wrong(each)), None)
        if whole is None:
            return ""
        # First, for a name that leads nowhere is worse than a checkpoint that cannot be read.
        write_whole(pointer, whole.name.encode(), S_IMODE(pointer.stat().st_mode))
    except OSError:
        return ""
    target = set_aside(folder, path / pointed.name)
    moved = f": moved to {target}" if target else ""
    return f"{path / pointed.name} {wrong}{moved}; {path / POINTER} names {whole.name} now."


def put_in_place(folder: Path, path: Path, whole: Iterable[OwnCheckpoint]) -> Path | None:
    """Copy the first whole file beside one that was set aside to its name; return which that was.

    For a file that only repeats the newest of those beside it, and that a script asks for by name.
    """
    beside = (each.path for each in whole if each.path.parent == path.parent)
    source = next((each for each in beside if (folder / each).is_file()), None)
    if source is None:
        return None
    with contextlib.suppress(OSError):
        copy_file(
            Path(real_path(folder / source)), Path(real_path(folder / path.parent)) / path.name
        )
        return source
    return None


def is_checkpoint_file(path: Path) -> bool:
    """Return whether a file may be a checkpoint, a part of one, or what names the newest."""
    points = path.name == POINTER and pointed_to(path.parent) is not None
    return path.suffix.lower() in SUFFIXES or _is_step_folder(path.parent) or points


def _units(written: Iterable[Path], folder: Path) -> Iterator[Path]:
    """Yield the files, or the folders that are one checkpoint."""
    for path in written:
        if any(_SET_ASIDE.fullmatch(name) for name in path.relative_to(folder).parts):
            continue
        above = [each for each in path.parents if each != folder and each.is_relative_to(folder)]
        unit = next((each for each in reversed(above) if _is_step_folder(each)), None)
        if unit is not None:
            points = (unit.parent / POINTER).is_file() and unit.parent != folder
            yield unit.parent if points else unit
        elif path.suffix.lower() in SUFFIXES or _is_torch_saved(path):
            yield path


def _is_torch_saved(path: Path) -> bool:
    """Return whether a file with another usual ending is one that torch.save wrote."""
    try:
        return path.suffix.lower() in OTHER_SUFFIXES and read_head(path, len(ZIP)) == ZIP
    except OSError:
        return False


def _is_step_folder(folder: Path) -> bool:
    if checkpoint_folder.step_of(folder) is not None or STEP_FOLDER.fullmatch(folder.name):
        return True
    return any((folder / name).is_file() for name in IN_FOLDERS)


def _judged(path: Path, folder: Path) -> OwnCheckpoint | None:
    try:
        place = pointed_to(path) or path
        files = [each for each in place.rglob("*") if each.is_file()] if path.is_dir() else [path]
        written = max(each.stat().st_mtime_ns for each in files)
        wrong = _wrong(path)
        return OwnCheckpoint(
            path=path.relative_to(folder),
            written=written,
            wrong=wrong,
            cut_off=bool(wrong) and (path.is_dir() or is_cut_off(path)),
            resumable=any(_has_training_state(each) for each in files),
        )
    except (OSError, ValueError):  # removed in the meantime, or empty
        return None


def _wrong(path: Path) -> str:
    if not path.is_dir():
        is_zip = read_head(path, len(ZIP)) == ZIP
        return wrong_with_model(path) if is_zip else what_is_wrong(path, kind_of(path))
    if wrong := what_is_wrong(path, kind_of(path)):
        return wrong
    path = pointed_to(path) or path
    names = {each.name for each in path.iterdir()}
    if any(name.endswith(".distcp") for name in names) and ".metadata" not in names:
        return "has no .metadata, which is written last"
    if ".metadata" in names:
        ends = shard_ends(read_head(path / ".metadata", PICKLE_LIMIT))
        short = [name for name, end in ends.items() if _size(path / name) < end]
        if short:
            return f"is cut short: {short[0]}"
    stem = re.sub(r"[0-9]+", "*", path.name)
    # Only those before it: what a kill left half written after it may have files that none has.
    began = path.stat().st_mtime_ns
    before = {each: each.stat().st_mtime_ns for each in path.parent.glob(stem) if each.is_dir()}
    others = [each for each, written in before.items() if written < began]
    if stem != path.name and others:
        older = max(others, key=lambda each: before[each])
        missing = sorted({each.name for each in older.iterdir()} - names)
        plain = [name for name in missing if not re.search(r"[0-9]|^\.", name)]
        if plain:
            return f"has no {plain[0]}, which {older.name} has"
    return ""


def shard_ends(metadata: bytes) -> dict[str, int]:
    """Return where the files of torch.distributed.checkpoint end by its .metadata; never unpickled.

    Of each piece it has the file, the offset and the length, in this order.
    """
    ends: dict[str, int] = {}
    memo: list[object] = []
    recent: list[object] = [None] * 6
    scalar = False
    try:
        for operation, argument, _ in pickletools.genops(metadata):
            name = operation.name
            if name == "MEMOIZE":
                memo.append(recent[-1] if scalar else None)
            elif name in ("BINGET", "LONG_BINGET"):
                recent = [*recent[1:], memo[int(argument or 0)]]
            scalar = isinstance(argument, str | int) and name[-3:] not in ("GET", "PUT", "AME")
            if scalar:
                recent = [*recent[1:], argument]
            if recent[0::2] == ["relative_path", "offset", "length"]:
                file, offset, length = recent[1::2]
                if isinstance(file, str) and isinstance(offset, int) and isinstance(length, int):
                    ends[file] = max(ends.get(file, 0), offset + length)
    except (ValueError, IndexError):  # written otherwise; nothing is known then
        return {}
    return ends


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def is_cut_off(path: Path) -> bool:
    """Return whether the end of a file is missing, beyond doubt."""
    size = path.stat().st_size
    if not size:
        return path.suffix.lower() in SUFFIXES - TORCH_SAVED  # others name data so
    if path.suffix.lower() == ".safetensors":
        return _safetensors_end(path) > size
    return read_head(path, len(ZIP)) == ZIP and not zipfile.is_zipfile(path)


def _safetensors_end(path: Path) -> int:
    """Return where a safetensors file ends by its own header; 0 if that cannot be told."""
    (length,) = LENGTH.unpack(read_head(path, LENGTH.size).ljust(LENGTH.size, b"\0"))
    header_end = LENGTH.size + int(length)
    if length > PICKLE_LIMIT or header_end > path.stat().st_size:
        return header_end
    try:
        header = json.loads(read_head(path, header_end)[LENGTH.size :])
        ends = [int(each["data_offsets"][1]) for key, each in header.items() if key[:2] != "__"]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return 0
    return header_end + max(ends, default=0)


def _has_training_state(path: Path) -> bool:
    """Search what a file says of itself for the state of an optimizer."""
    if "optim" in path.name.lower():
        return True
    head = read_head(path, len(ZIP))
    if path.suffix.lower() == ".safetensors":
        (length,) = LENGTH.unpack(read_head(path, LENGTH.size).ljust(LENGTH.size, b"\0"))
        return _STATE.search(read_head(path, min(int(length), PICKLE_LIMIT))) is not None
    if head != ZIP:
        known = path.suffix.lower() in SUFFIXES or path.name == ".metadata"
        return known and _STATE.search(read_head(path, PICKLE_LIMIT)) is not None
    return any(_STATE.search(pickled) for pickled in pickles_in(path, PICKLE_LIMIT))
