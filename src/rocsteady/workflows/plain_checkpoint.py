"""A checkpoint's tensors in one plain safetensors file, put together by copying bytes; no torch."""

from __future__ import annotations

import itertools
import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rocsteady.checkpoint_folder import SIZES, Tensor
from rocsteady.checkpoint_state import KIND
from rocsteady.errors import CheckpointError, RequestError
from rocsteady.suggestions import no_such
from rocsteady.untrusted_file import open_regular

ALIGNED = 8  # bytes, to which the header is filled up
PIECE = 16 * 1024 * 1024  # bytes that are copied at a time


def names_of(checkpoint: Path, state: Mapping[str, Any], entry: str) -> dict[str, str]:
    """Return the tensors of one entry of the state: their names there, and in the plan."""
    found = state.get(entry)
    if not isinstance(found, dict):
        missing = no_such("entry", entry, state, f"Entries: {', '.join(state)}")
        raise RequestError(f"{checkpoint}: {missing}")
    return dict(_tensors(found, ""))


def write_plain(checkpoint: Path, tensors: Mapping[str, Tensor], target: Path) -> int:
    """Write a new file with some tensors; return how large it is. It is whole, or not there."""
    ordered = sorted(tensors.items(), key=lambda item: (-SIZES[item[1].dtype], item[0]))
    ends = list(itertools.accumulate((tensor.length for _, tensor in ordered), initial=0))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for (name, tensor), start, end in zip(ordered, ends, ends[1:], strict=False):
        shape = list(tensor.shape)
        header[name] = {"dtype": tensor.dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNED)
    head = len(text).to_bytes(8, "little") + text
    unfinished = target.with_name(f".{target.name}.unfinished")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(unfinished, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as stream:
            stream.write(head)
            stream.truncate(len(head) + ends[-1])
            files: dict[str, memoryview] = {}
            for (_, tensor), start in zip(ordered, ends, strict=False):
                for at, piece in _runs(tensor, checkpoint, files):
                    stream.seek(len(head) + start + at)
                    _write(stream.fileno(), piece)
            os.fsync(stream.fileno())
        _name(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    return len(head) + ends[-1]


def _tensors(state: Mapping[str, Any], before: str) -> Iterator[tuple[str, str]]:
    for key, value in state.items():
        if not isinstance(value, dict):
            continue
        if value.get(KIND) in ("tensor", "numpy"):
            yield before + key, value["name"]
        elif KIND not in value:
            yield from _tensors(value, f"{before}{key}.")


def _runs(
    tensor: Tensor, checkpoint: Path, files: dict[str, memoryview]
) -> Iterator[tuple[int, memoryview]]:
    """Yield what lies together in a piece and in the tensor, and where in the tensor it goes."""
    size = SIZES[tensor.dtype]
    for piece in tensor.pieces:
        if not piece.length:
            continue
        if piece.file not in files:
            files[piece.file] = _mapped(checkpoint / piece.file)
        content = files[piece.file][piece.start : piece.start + piece.length]
        whole = len(tensor.shape)  # so many axes in front are not wholly in the piece
        while whole and piece.sizes[whole - 1] == tensor.shape[whole - 1]:
            whole -= 1
        outer = max(0, whole - 1)
        length = math.prod(piece.sizes[outer:]) * size
        steps = [math.prod(tensor.shape[axis + 1 :]) * size for axis in range(len(tensor.shape))]
        first = sum(
            offset * step for offset, step in zip(piece.offsets[outer:], steps[outer:], strict=True)
        )
        places = itertools.product(*(range(count) for count in piece.sizes[:outer]))
        for number, place in enumerate(places):
            at = first + sum(
                (offset + index) * step
                for offset, index, step in zip(piece.offsets, place, steps, strict=False)
            )
            yield at, content[number * length : (number + 1) * length]


def _mapped(path: Path) -> memoryview:
    with open_regular(path) as stream:
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


def _write(descriptor: int, content: memoryview) -> None:
    while content:
        content = content[os.write(descriptor, content[:PIECE]) :]


def _name(unfinished: Path, target: Path) -> None:
    """Give a file its name, unless something has it."""
    try:
        target.hardlink_to(unfinished)
    except FileExistsError:
        raise CheckpointError(f"{target} already exists") from None
    except OSError:  # a file system without links
        if target.exists():
            raise CheckpointError(f"{target} already exists") from None
        unfinished.rename(target)
