"""Checkpoints from and to torch.distributed.checkpoint's own folders.

``rocsteady checkpoint`` runs this in the Python that trains, which has torch::

    main() with the arguments: export CHECKPOINT FOLDER, or: import FOLDER CHECKPOINTS STEP

A stock folder describes itself by a pickle, which is a program. It is read here by an unpickler
that knows the few classes of such a description and refuses everything else by name; tensors and
other values are read by ``torch.load(weights_only=True)``.
"""

from __future__ import annotations

import io
import pickle
import shutil
import sys
import warnings
from collections import OrderedDict
from collections.abc import Iterable
from logging.handlers import BufferingHandler
from pathlib import Path, PurePath
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import filesystem, metadata
from torch.serialization import _get_layout

from rocsteady import checkpoint_folder as folders
from rocsteady.errors import CheckpointError, RocsteadyError
from rocsteady.training.checkpoint_reader import CheckpointReader, load_alone
from rocsteady.training.checkpointer import Checkpointer, log
from rocsteady.training.state_tree import put_together
from rocsteady.untrusted_file import open_regular, read_exactly, read_regular

DESCRIPTION = ".metadata"
DESCRIPTION_LIMIT = 1 << 30  # bytes
VALUES = "values"  # the entry for values that were in no dict
STATE, GROUPS = "state", "param_groups"  # of an optimizer
_KNOWN: dict[tuple[str, str], Any] = {
    **{
        (metadata.__name__, name): getattr(metadata, name)
        for name in (
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        )
    },
    (filesystem.__name__, "_StorageInfo"): filesystem._StorageInfo,  # noqa: SLF001 - no public name
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): _get_layout,
    ("collections", "OrderedDict"): OrderedDict,
    **{("pathlib", name): PurePath for name in ("Path", "PosixPath", "PurePosixPath")},
    **{("pathlib._local", name): PurePath for name in ("PosixPath", "PurePosixPath")},
}


class _Limited(pickle.Unpickler):
    """Makes what a description is made of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a class
        known = _KNOWN.get((module, name))
        if known is None and module == "torch":
            dtype = vars(torch).get(name)
            known = dtype if isinstance(dtype, torch.dtype) else None
        if known is None:
            raise CheckpointError(f"{module}.{name} has no place in a description: refused")
        return known


def export_dcp(checkpoint: Path, target: Path) -> int:
    """Write a stock folder with all entries of a checkpoint; return how many tensors it has."""
    wrong = folders.what_is_wrong(checkpoint)
    if wrong:
        raise CheckpointError(f"{checkpoint} {wrong}")
    reader = CheckpointReader(checkpoint)
    known = reader.read_metadata().state_dict_metadata
    tensors: dict[str, Any] = {}

    def room(name: str, _: object) -> Any:  # noqa: ANN401 - a tensor
        entry = known[name]
        return tensors.setdefault(name, torch.empty(entry.size, dtype=entry.properties.dtype))

    skeletons = folders.read_state(checkpoint, folders.read_manifest(checkpoint), 0, known).state
    put_together(skeletons, room)
    load_alone(tensors, reader)
    state = put_together(skeletons, lambda name, _: tensors[name])
    unfinished = target.with_name(f".{target.name}.unfinished")
    if target.exists() or unfinished.exists():
        raise CheckpointError(f"{target if target.exists() else unfinished} already exists")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is one process only
            dcp.save(state, checkpoint_id=unfinished, no_dist=True)
        unfinished.rename(target)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return len(tensors)


def import_dcp(folder: Path, checkpoints: Path, step: int) -> int:
    """Write a checkpoint of ours with what is in a stock folder; return how many entries it has."""
    described = read_description(folder)
    flat = {name: _value(folder, described, name) for name in described.state_dict_metadata}
    state = _entries(flat, described.planner_data)
    heard = BufferingHandler(1000)
    log.addHandler(heard)
    checkpointer = Checkpointer(checkpoints, keep=1 << 30)
    try:
        checkpointer.save(step, state, wait=True)
    finally:
        checkpointer.close()
        log.removeHandler(heard)
    if checkpointer.saved != step:
        raise CheckpointError(" ".join(record.getMessage() for record in heard.buffer))
    return len(state)


def read_description(folder: Path) -> Any:  # noqa: ANN401 - DCP's own Metadata
    """Read the description of a stock folder without running anything in it."""
    try:
        found = _Limited(io.BytesIO(read_regular(folder / DESCRIPTION, DESCRIPTION_LIMIT))).load()
    except OSError as error:
        raise CheckpointError(f"{folder / DESCRIPTION}: {error.strerror}") from None
    except CheckpointError as error:
        raise CheckpointError(f"{folder / DESCRIPTION}: {error}") from None
    except Exception as error:  # noqa: BLE001 - a damaged pickle raises anything
        raise CheckpointError(
            f"{folder / DESCRIPTION} is damaged: {type(error).__name__}: {error}"
        ) from None
    tables = (getattr(found, name, None) for name in ("state_dict_metadata", "storage_data"))
    if not all(isinstance(table, dict) for table in tables):
        raise CheckpointError(f"{folder / DESCRIPTION} is no description of a checkpoint")
    return found


def _value(folder: Path, described: Any, name: str) -> Any:  # noqa: ANN401 - of any type
    entry = described.state_dict_metadata[name]
    if isinstance(entry, metadata.BytesStorageMetadata):
        return _load(folder, described, metadata.MetadataIndex(name), name)
    whole = torch.empty(entry.size, dtype=entry.properties.dtype)
    filled = 0
    for chunk in entry.chunks:
        piece = _load(folder, described, metadata.MetadataIndex(name, chunk.offsets), name)
        if not isinstance(piece, torch.Tensor) or piece.shape != chunk.sizes:
            raise CheckpointError(f"{name} has another shape in its file than in {DESCRIPTION}")
        place = whole
        for axis, (offset, size) in enumerate(zip(chunk.offsets, chunk.sizes, strict=True)):
            place = place.narrow(axis, offset, size)
        place.copy_(piece)
        filled += piece.numel()
    if filled != whole.numel():
        raise CheckpointError(f"{name} is not all there")
    return whole


def _load(folder: Path, described: Any, index: Any, name: str) -> Any:  # noqa: ANN401
    info = described.storage_data.get(index)
    if info is None:
        raise CheckpointError(f"{name} has no place in {DESCRIPTION}")
    if getattr(info, "transform_descriptors", None):
        raise CheckpointError(f"{name} is packed in a way that is not known here")
    if PurePath(info.relative_path).name != info.relative_path:
        raise CheckpointError(f"{name} is said to lie in {info.relative_path!r}, not in the folder")
    try:
        with open_regular(folder / info.relative_path) as stream:
            return torch.load(_slice(stream, info), map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointError(f"{folder / info.relative_path}: {error.strerror}") from None
    except Exception as error:  # noqa: BLE001 - what is refused, or damaged in any way
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{name} cannot be read: {type(error).__name__}: {reason}") from None


def _slice(stream: io.FileIO, info: Any) -> io.BytesIO:  # noqa: ANN401 - DCP's own
    stream.seek(info.offset)
    return io.BytesIO(read_exactly(stream, info.length))


def _entries(flat: dict[str, Any], paths: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401
    """Put what a folder has flat into the entries of a state."""
    paths = paths or {}
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        _put(nested, tuple(paths.get(name) or (name,)), value)
    plain = {name: value for name, value in nested.items() if not isinstance(value, dict)}
    entries = {name: _listed(value) for name, value in nested.items() if name not in plain}
    if plain and not entries:  # what was saved is the state_dict of a model
        return {"model": plain}
    if plain:
        entries[VALUES] = plain
    return {name: _with_numbers(entry) for name, entry in entries.items()}


def _put(nested: dict[Any, Any], path: tuple[Any, ...], value: Any) -> None:  # noqa: ANN401
    *way, last = path
    for key in way:
        nested = nested.setdefault(key, {})
        if not isinstance(nested, dict):
            raise CheckpointError(f"{path} leads through a value")
    nested[last] = value


def _listed(value: Any) -> Any:  # noqa: ANN401 - of any type
    """Make lists of what has places for keys, as the paths of a folder have them."""
    if not isinstance(value, dict):
        return value
    found = {key: _listed(item) for key, item in value.items()}
    if found and all(type(key) is int for key in found):
        return [found[key] for key in sorted(found)]
    return found


def _with_numbers(entry: dict[str, Any]) -> dict[str, Any]:
    """Give an optimizer's state its numbers back: a folder has "0" for 0."""
    states = entry.get(STATE)
    if GROUPS in entry and isinstance(states, dict) and _are_numbers(states):
        return {**entry, STATE: {int(key): item for key, item in states.items()}}
    return entry


def _are_numbers(keys: Iterable[Any]) -> bool:
    return all(isinstance(key, str) and key.isdecimal() for key in keys)


def main() -> None:
    """Do what the arguments say; what is wrong is one line."""
    try:
        what, source, target, *more = sys.argv[1:]
        if what == "export":
            told = f"{export_dcp(Path(source), Path(target))} tensors"
        else:
            told = f"{import_dcp(Path(source), Path(target), int(more[0]))} entries"
    except (RocsteadyError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    sys.stdout.write(f"{told}\n")
