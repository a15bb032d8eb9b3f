"""torch.distributed.checkpoint on our own files: safetensors for data, JSON for the plan.

DCP decides what each rank writes and which pieces each rank reads; this is where they go. Its own
storage and planner unpickle what they read; neither is used here. No file that the manifest does
not list is opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import (
    ChunkStorageMetadata,
    DefaultLoadPlanner,
    DefaultSavePlanner,
    Metadata,
    StorageReader,
    StorageWriter,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.default_planner import create_default_local_save_plan
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import LoadPlan, SavePlan
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from rocsteady_train.checkpoints.folder import (
    PLAN,
    THREADS,
    BrokenError,
    CheckpointError,
    FileFact,
    Piece,
    read_manifest,
    read_plan,
)
from rocsteady_train.checkpoints.tensor_files import (
    DTYPES,
    TensorSlice,
    dtype_name,
    read_piece,
    write_file,
    write_tensors,
)


class SavePlanner(DefaultSavePlanner):
    """Plans from the tensors as they are on the device, and gives out their copies."""

    def __init__(self, tensors: dict[str, Any], copies: dict[str, Any]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._tensors, self._copies = tensors, copies
        self._local = SavePlan([])

    def create_local_plan(self) -> SavePlan:
        """Return what this rank has; DCP takes out what another rank writes."""
        if self._tensors:  # not when it is tried again
            self._local = SavePlan(create_default_local_save_plan(self._tensors, True).items)  # noqa: FBT003
            self._tensors = {}  # the training may free them
        self.plan = self._local
        return self.plan

    def resolve_data(self, write_item: Any) -> Any:  # noqa: ANN401 - DCP's own types
        return self._copies[write_item.index.fqn]


class CheckpointWriter(StorageWriter):
    """Writes one file of tensors a rank."""

    def __init__(
        self,
        folder: Path,
        rank: int,
        skeleton: dict[str, Any],
        commit: Callable[[list[FileFact]], None],
    ) -> None:
        """Write to a folder; ``commit`` is called on the coordinator once all ranks have."""
        self._folder, self._rank, self._skeleton = folder, rank, skeleton
        self._commit = commit

    def reset(self, checkpoint_id: Any = None) -> None:  # noqa: ANN401 - DCP's own types
        """Do nothing: each save has a writer of its own."""

    def set_up_storage_writer(self, is_coordinator: bool, *_: Any, **__: Any) -> None:  # noqa: ANN401, FBT001
        """Make the folder: here, where DCP tells a failure to all ranks."""
        del is_coordinator
        self._folder.mkdir(parents=True, exist_ok=True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: Any) -> Future[list[WriteResult]]:  # noqa: ANN401
        """Write this rank's tensors and the rest of its state, to the disk itself."""
        items = {_label(item.index): item for item in plan.items}
        found = {label: planner.resolve_data(item) for label, item in items.items()}
        tensors, places = write_tensors(self._folder / f"rank-{self._rank}.safetensors", found)
        results = [
            WriteResult(item.index, places[label][-1], places[label])
            for label, item in items.items()
        ]
        rest = json.dumps(self._skeleton).encode()
        facts = [tensors, write_file(self._folder / f"rank-{self._rank}.json", [memoryview(rest)])]
        results += [WriteResult(MetadataIndex(""), 0, fact) for fact in facts]
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the plan over all ranks, and make it count; on the coordinator only."""
        every = [result for rank in results for result in rank]
        facts = [r.storage_data for r in every if isinstance(r.storage_data, FileFact)]
        places = {r.index: r.storage_data for r in every if isinstance(r.storage_data, list)}
        plan = {
            name: {
                "dtype": dtype_name(entry.properties.dtype, name),
                "size": list(entry.size),
                "chunks": [
                    [
                        list(chunk.offsets),
                        list(chunk.sizes),
                        *places[MetadataIndex(name, chunk.offsets)],
                    ]
                    for chunk in entry.chunks
                ],
            }
            for name, entry in metadata.state_dict_metadata.items()
        }
        text = json.dumps(plan, separators=(",", ":")).encode()
        facts.append(write_file(self._folder / PLAN, [memoryview(text)]))
        self._commit(facts)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:  # noqa: ANN401 - DCP's own types
        return checkpoint_id is None


def save(writer: CheckpointWriter, planner: SavePlanner, group: Any) -> None:  # noqa: ANN401
    """Do what ``dcp.save`` does, which warns where there are no other ranks (no ``group``)."""
    if group is not None:
        dcp.save({}, storage_writer=writer, planner=planner, process_group=group)
        return
    planner.set_up_planner({}, None, is_coordinator=True)
    writer.set_up_storage_writer(is_coordinator=True)
    plans, metadata = planner.create_global_plan([planner.create_local_plan()])
    written = writer.write_data(planner.finish_plan(plans[0]), planner)
    writer.finish(metadata, [written.value()])


def _label(index: MetadataIndex) -> str:
    """Name a piece in its file; a piece of a tensor has its place in the name."""
    if index.offset is None or not any(index.offset):
        return str(index.fqn)
    return f"{index.fqn}@{','.join(map(str, index.offset))}"


class LoadPlanner(DefaultLoadPlanner):
    """Loads tensors by name. There is nothing else in our files, so nothing to unpickle."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def load_bytes(self, read_item: Any, value: Any) -> None:  # noqa: ANN401 - DCP's own types
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
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
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
        return checkpoint_id is None


def load_alone(tensors: dict[str, Any], reader: CheckpointReader) -> None:
    """Do what ``dcp.load`` does, which warns where there are no other ranks."""
    planner = LoadPlanner()
    planner.set_up_planner(tensors, reader.read_metadata(), is_coordinator=True)
    plans = planner.create_global_plan([planner.create_local_plan()])
    reader.read_data(planner.finish_plan(plans[0]), planner)
