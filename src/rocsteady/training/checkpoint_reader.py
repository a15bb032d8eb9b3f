"""Reading a checkpoint by its plan, into the tensors of a training.

torch.distributed.checkpoint decides which pieces each rank reads. Nothing is unpickled, and no file
that the manifest does not list is opened.
"""

from __future__ import annotations

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

from rocsteady.checkpoint_folder import (
    THREADS,
    BrokenError,
    CheckpointError,
    Piece,
    read_manifest,
    read_plan,
)
from rocsteady.training.tensor_files import DTYPES
from rocsteady.training.tensor_pieces import TensorSlice, read_piece


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
        for item, target in zip(plan.items, targets):
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read(self, item: Any, target: Any) -> None:  # noqa: ANN401 - DCP's own types
        piece, dtype = self._places[item.storage_index]
        section = TensorSlice(item.storage_offsets, item.lengths)
        read_piece(self._folder, piece, section, target, dtype)

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
