"""Checkpoints of one process with plain tensors, without torch.distributed.checkpoint.

The files are the same as those that it plans: either can read what the other wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from rocsteady_train.checkpoints.folder import PLAN, THREADS, FileFact, Piece, Tensor, state_name
from rocsteady_train.checkpoints.tensor_files import (
    DTYPES,
    TensorSlice,
    dtype_name,
    read_piece,
    write_file,
    write_tensors,
)


def all_plain(tensors: Iterable[Any]) -> bool:
    """Return whether all of these are plain tensors, which lie in this process whole."""
    return all(type(tensor) is torch.Tensor for tensor in tensors)


def save(
    folder: Path,
    copies: Mapping[str, Any],
    skeleton: Mapping[str, Any],
    commit: Callable[[list[FileFact]], None],
) -> None:
    """Write tensors in host memory and the rest of a state to a new folder, and commit it."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors, places = write_tensors(folder / "rank-0.safetensors", copies)
    rest = write_file(folder / state_name(0), [memoryview(json.dumps(skeleton).encode())])
    plan = {
        name: {
            "dtype": dtype_name(tensor.dtype, name),
            "size": list(tensor.shape),
            "chunks": [[[0] * tensor.dim(), list(tensor.shape), *places[name]]],
        }
        for name, tensor in copies.items()
    }
    text = json.dumps(plan, separators=(",", ":")).encode()
    commit([tensors, rest, write_file(folder / PLAN, [memoryview(text)])])


def load(folder: Path, plan: Mapping[str, Tensor], wanted: Mapping[str, Any]) -> None:
    """Fill tensors from the pieces that the plan has of each, however many ranks wrote them."""
    dtypes = {name: dtype for dtype, name in DTYPES.items()}

    def read(tensor: Any, piece: Piece, dtype: Any) -> None:  # noqa: ANN401 - torch's own
        for axis, (offset, size) in enumerate(zip(piece.offsets, piece.sizes)):
            tensor = tensor.narrow(axis, offset, size)
        section = TensorSlice((0,) * len(piece.sizes), piece.sizes)
        read_piece(folder, piece, section, tensor, dtype)

    with ThreadPoolExecutor(THREADS) as pool:
        reads = [
            pool.submit(read, tensor.detach(), piece, dtypes[plan[name].dtype])
            for name, tensor in wanted.items()
            for piece in plan[name].pieces
        ]
    for done in reads:
        done.result()  # an error is raised here
