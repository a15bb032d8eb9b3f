"""Reading a checkpoint by its plan, into the tensors of a training.

torch.distributed.checkpoint decides which pieces each rank reads. Nothing is unpickled, and no file
that the manifest does not list is opened.
"""

from __future__ import annotations

import contextlib
import io
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import (
    ChunkStorageMetadata,
    DefaultLoadPlanner,
    Metadata,
    StorageReader,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import LoadPlan
from torch.futures import Future

from rocsteady.checkpoint_folder import THREADS, BrokenError, Piece, read_manifest, read_plan
from rocsteady.errors import CheckpointError
from rocsteady.training.storage import DTYPES, bytes_of
from rocsteady.untrusted_file import open_regular

STAGED = 1024 * 1024  # bytes that are copied at a time by each thread; they stay in its cache
STAGED_FOR_DEVICE = 16 * 1024 * 1024  # the same, if they go to a GPU


class LoadPlanner(DefaultLoadPlanner):
    """Loads tensors by name. There is nothing else in our files, so nothing to unpickle."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def load_bytes(self, read_item: Any, value: Any) -> None:  # noqa: ANN401 - DCP's own types
        """Refuse."""
        del value
        raise CheckpointError(f"{read_item.dest_index.fqn} is not a tensor")


class CheckpointReader(StorageReader):
    """Reads what a Writer wrote, by the plan. Whether it is whole was looked at before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[MetadataIndex, tuple[Piece, Any]] = {}

    def reset(self, checkpoint_id: Any = None) -> None:  # noqa: ANN401 - DCP's own types
        """Do nothing."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:  # noqa: ANN401 - DCP's own types
        """Read the plan."""
        try:
            plan = read_plan(self._folder, read_manifest(self._folder))
        except BrokenError as error:
            raise CheckpointError(f"{self._folder} {error}") from None
        names = {name: dtype for dtype, name in DTYPES.items()}
        entries = {}
        for name, tensor in plan.items():
            dtype = names[tensor.dtype]
            chunks = []
            for piece in tensor.pieces:
                at = torch.Size(piece.offsets)
                chunks.append(ChunkStorageMetadata(offsets=at, sizes=torch.Size(piece.sizes)))
                self._places[MetadataIndex(name, at)] = (piece, dtype)
            entries[name] = TensorStorageMetadata(
                TensorProperties(dtype=dtype), torch.Size(tensor.shape), chunks
            )
        return Metadata(entries)

    def set_up_storage_reader(
        self,
        metadata: Metadata,
        is_coordinator: bool,  # noqa: FBT001 - DCP's own signature
        *_: Any,  # noqa: ANN401
        **__: Any,  # noqa: ANN401
    ) -> None:
        """Do nothing: the plan was read by this reader."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Take the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Take the plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: Any) -> Future[None]:  # noqa: ANN401
        """Copy each piece from its file to where it belongs."""
        targets = [planner.resolve_tensor(item).detach() for item in plan.items]
        with ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(self._read, plan.items, targets):
                pass  # an error is raised here
        for item, target in zip(plan.items, targets, strict=True):
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read(self, item: Any, target: Any) -> None:  # noqa: ANN401 - DCP's own types
        """Copy one piece: straight to its place where that is in one piece too."""
        piece, dtype = self._places[item.storage_index]
        with open_regular(self._folder / piece.file) as stream:
            if (
                tuple(item.lengths[1:]) == piece.sizes[1:]  # whole rows, which lie together
                and target.dtype == dtype
                and target.device.type == "cpu"
                and target.is_contiguous()
            ):
                row = math.prod(piece.sizes[1:]) * target.element_size()
                first = item.storage_offsets[0] if piece.sizes else 0
                _fill(stream, piece.start + first * row, target)
            else:
                _copy(stream, piece, item, target, dtype)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:  # noqa: ANN401 - DCP's own types
        """Say that there is none."""
        return checkpoint_id is None


def load_alone(tensors: dict[str, Any], reader: CheckpointReader) -> None:
    """Do what ``dcp.load`` does, which warns where there are no other ranks."""
    planner = LoadPlanner()
    planner.set_up_planner(tensors, reader.read_metadata(), is_coordinator=True)
    plans = planner.create_global_plan([planner.create_local_plan()])
    reader.read_data(planner.finish_plan(plans[0]), planner)


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


def _copy(stream: io.FileIO, piece: Piece, item: Any, target: Any, dtype: Any) -> None:  # noqa: ANN401
    """Copy a part of a piece through memory of our own, some rows at a time.

    Never from a mapping of the file: copying that to a GPU stalls on some kernels.
    """
    shape, offsets, lengths = piece.sizes or (1,), item.storage_offsets, item.lengths
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
