"""Reading a piece of a tensor from its file to where it belongs."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rocsteady.checkpoint_folder import Piece
from rocsteady.training.tensor_files import bytes_of
from rocsteady.untrusted_file import open_regular

STAGED = 1024 * 1024  # bytes that are copied at a time by each thread; they stay in its cache
STAGED_FOR_DEVICE = 16 * 1024 * 1024  # the same, if they go to a GPU


class TensorSlice(NamedTuple):
    """What is wanted of a piece, in its own coordinates."""

    offsets: Sequence[int]
    lengths: Sequence[int]


def read_piece(folder: Path, piece: Piece, section: TensorSlice, target: Any, dtype: Any) -> None:  # noqa: ANN401
    """Copy a section of a piece: straight to its place where that is in one piece too."""
    with open_regular(folder / piece.file) as stream:
        if (
            tuple(section.lengths[1:]) == piece.sizes[1:]  # whole rows, which lie together
            and target.dtype == dtype
            and target.device.type == "cpu"
            and target.is_contiguous()
        ):
            row = math.prod(piece.sizes[1:]) * target.element_size()
            first = section.offsets[0] if piece.sizes else 0
            _fill(stream, piece.start + first * row, target)
        else:
            _copy(stream, piece, section, target, dtype)


def _fill(stream: io.FileIO, start: int, tensor: Any) -> None:  # noqa: ANN401 - in host memory
    """Read a tensor from a place in a file."""
    stream.seek(start)
    for place in bytes_of(tensor):
        done = 0
        while done < len(place):
            count = stream.readinto(place[done:])
            if not count:
                raise OSError(f"{stream.name} has become shorter")
            done += count


def _copy(stream: io.FileIO, piece: Piece, section: TensorSlice, target: Any, dtype: Any) -> None:  # noqa: ANN401
    """Copy a section of a piece through memory of our own, some rows at a time.

    Never from a mapping of the file: copying that to a GPU stalls on some kernels.
    """
    shape, offsets, lengths = piece.sizes or (1,), section.offsets, section.lengths
    target = target if piece.sizes else target.view(1)
    first, count = (offsets[0], lengths[0]) if piece.sizes else (0, 1)
    row = math.prod(shape[1:])
    size = torch.empty(0, dtype=dtype).element_size()
    staged = STAGED if target.device.type == "cpu" else STAGED_FOR_DEVICE
    most = min(count, max(1, staged // max(1, row * size)))
    memory = _host_memory((most, *shape[1:]), dtype, target.device)
    for at in range(0, count, max(1, most)):
        rows = memory[: min(most, count - at)]
        _fill(stream, piece.start + (first + at) * row * size, rows)
        wanted = rows
        for axis in range(1, len(shape)):
            wanted = wanted.narrow(axis, offsets[axis], lengths[axis])
        target[at : at + len(rows)].copy_(wanted)


def _host_memory(shape: tuple[int, ...], dtype: Any, target: Any) -> Any:  # noqa: ANN401
    """Return memory to copy from: pinned for a GPU, where there is enough of that."""
    if target.type == "cuda":  # also ROCm's name
        with contextlib.suppress(RuntimeError):
            return torch.empty(shape, dtype=dtype, pin_memory=True)
    return torch.empty(shape, dtype=dtype)
