"""The files that a run has written, and their copies before a restart could write over them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocsteady.errors import RocsteadyError
from rocsteady.model import Value
from rocsteady.store.user_folders import state_folder
from rocsteady.system.mounted_drives import CLOCK_GRAIN
from rocsteady.system.real_path import real_path
from rocsteady.system.unlinked import copy_file
from rocsteady.wording import size as written_size

MAX_FILES = 200_000  # looked at; more is not a folder of outputs
SKIPPED_FOLDERS = {".git", ".rocsteady", "__pycache__", ".venv", "node_modules"}
RESERVE = 1 << 30  # bytes that stay free
_MODELS = ".ckpt .distcp .gguf .h5 .keras .npz .onnx .pickle .pkl .pt .pth .safetensors"
MODELS = frozenset(_MODELS.split())


class BackedUpFiles(Value, frozen=True, kw_only=True):
    folder: str
    files: int
    names: tuple[str, ...] = ()  # from the folder that they were copied from


def back_up(folder: Path, since: float, target: Path, at_most: int | None = None) -> BackedUpFiles:
    """Copy every file below ``folder`` that was written since then; refuse to fill the disk.

    More than ``at_most`` bytes are not copied, and the folder is "".
    """
    try:
        wanted = dict(written_files(folder, since))
        names = tuple(sorted(str(path.relative_to(folder)) for path in wanted))
        if at_most is not None and sum(wanted.values()) > at_most:
            return BackedUpFiles(folder="", files=len(wanted), names=names)
        if lacking := no_room(wanted.values(), target.parent):
            raise RocsteadyError(
                f"not enough disk space to back up the files that the run wrote: {lacking}"
            )
        copy_files(wanted, folder, target)
    except OSError as error:
        raise RocsteadyError(
            f"the files of the run cannot be backed up: {error.filename}: {error.strerror}"
        ) from None
    return BackedUpFiles(folder=str(target), files=len(wanted), names=names)


def wrote_model(folder: Path, since: float) -> bool:
    """Return whether a file with the name of a model was written since then; or may have been."""
    try:
        return any(path.suffix.lower() in MODELS for path, _ in written_files(folder, since))
    except (OSError, RocsteadyError):  # it cannot be told, so nothing is put at risk
        return True


def no_room(sizes: Iterable[int], place: Path) -> str:
    """Return what copies of some sizes need, and what is free; "": they fit."""
    needed, free = sum(sizes), shutil.disk_usage(place).free
    if not needed or needed + RESERVE <= free:
        return ""
    needs, stays = written_size(needed), written_size(RESERVE)
    return f"{needs} are needed beside {stays} that stay free, and {written_size(free)} are free"


def copy_files(files: Iterable[Path], folder: Path, target: Path) -> dict[str, str]:
    """Copy files of a folder; return where each lay, without links, and its name there.

    One that is gone by now, or may not be read, is somebody else's.
    """
    place, copied = Path(real_path(target.parent)) / target.name, {}
    for path in files:
        source, name = real_path(path), path.relative_to(folder)
        with contextlib.suppress(FileNotFoundError):
            if os.access(source, os.R_OK):
                copy_file(Path(source), place / name)
                copied[source] = str(name)
    return copied


def written_files(folder: Path, since: float) -> Iterator[tuple[Path, int]]:
    """Yield files and what they take, without holes; also behind links, where outputs often lie."""
    seen = 0
    known = {real_path(folder), real_path(state_folder())}  # a home can be the project
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if _is_next(os.path.join(place, name), known)]  # noqa: PTH118 - os.walk's own
        for name in names:
            seen += 1
            if seen > MAX_FILES:
                raise RocsteadyError(
                    f"{folder} has more than {MAX_FILES} files, too many to find those that the"
                    " run wrote"
                )
            path = Path(place) / name
            try:
                about = path.stat()
            except OSError:  # removed in the meantime, or a link to nothing
                continue
            if about.st_mtime >= since - CLOCK_GRAIN and path.is_file() and not path.is_symlink():
                yield path, min(about.st_size, getattr(about, "st_blocks", about.st_size) * 512)


def _is_next(path: str, known: set[str]) -> bool:
    """Return whether a folder is to be looked into, and that it was not before."""
    real = real_path(path)
    if os.path.basename(path) in SKIPPED_FOLDERS or real in known:  # noqa: PTH119 - as above
        return False
    known.add(real)
    return True
