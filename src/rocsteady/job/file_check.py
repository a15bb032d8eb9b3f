"""Whether a file is whole: one that a job must have written, or that it is to go on from."""

from __future__ import annotations

from pathlib import Path

from rocsteady import checkpoint_folder, file_integrity
from rocsteady.checkpoint_folder import BrokenError
from rocsteady.job.values import FileKind

HASH_LIMIT = 16 * 1024 * 1024 * 1024  # bytes of a checkpoint of ours; of larger ones the sizes
_JUDGES = {
    FileKind.MODEL: file_integrity.wrong_with_model,
    FileKind.JSON: file_integrity.wrong_with_json,
    FileKind.ANY: file_integrity.wrong_with_any,
}


def what_is_wrong(path: Path, kind: FileKind) -> str:
    """Return why a file does not count as readable, or nothing."""
    try:
        if kind is not FileKind.JSON and path.is_dir():
            if checkpoint_folder.is_ours(path):
                return _wrong_with_ours(path)
            if wrong := file_integrity.wrong_with_files_in(path):
                return wrong
        return _JUDGES[kind](path)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"


def kind_of(path: Path) -> FileKind:
    """Tell from its name what a file should be."""
    if path.suffix.lower() in file_integrity.MODELS:
        return FileKind.MODEL
    return FileKind.JSON if path.suffix.lower() == ".json" else FileKind.ANY


def _wrong_with_ours(path: Path) -> str:
    """Judge a checkpoint that rocsteady.training wrote. Restoring it looks at every byte anyway."""
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
