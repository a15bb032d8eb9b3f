"""torch.distributed.checkpoint on our own files: safetensors for data, JSON for the plan.

DCP decides what each rank writes and which pieces each rank reads; this is where they go. Its own
storage and planner unpickle what they read; neither is used here.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch
from torch.distributed.checkpoint import (
    DefaultSavePlanner,
    Metadata,
    StorageWriter,
)
from torch.distributed.checkpoint.default_planner import create_default_local_save_plan
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from rocsteady.checkpoint_folder import (
    BLOCK,
    PLAN,
    FileFact,
    hash_of,
)
from rocsteady.errors import CheckpointError
from rocsteady.training.staging import ALIGNED

HASHERS = 2  # threads, beside the one that writes: SHA-256 on one core is slower than a good disk
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float8_e8m0fnu: "F8_E8M0",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def local(tensor: Any) -> Any:  # noqa: ANN401 - a tensor
    """Return the part of a tensor that lies on this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


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
        """Return the copy."""
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
        """Take the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Take the plans as they are."""
        return plans

    def write_data(self, plan: SavePlan, planner: Any) -> Future[list[WriteResult]]:  # noqa: ANN401
        """Write this rank's tensors and the rest of its state, to the disk itself."""
        name = f"rank-{self._rank}.safetensors"
        header: dict[str, Any] = {}
        pieces: list[Any] = []
        results: list[WriteResult] = []
        end = 0
        found = [(item, planner.resolve_data(item)) for item in plan.items]
        # There are no gaps in a safetensors file. The widest elements first: so each is aligned.
        for item, tensor in sorted(found, key=lambda pair: -pair[1].element_size()):
            size = tensor.numel() * tensor.element_size()
            header[_label(item.index)] = {
                "dtype": _name_of(tensor.dtype, item.index.fqn),
                "shape": list(tensor.shape),
                "data_offsets": [end, end + size],
            }
            pieces.append(tensor)
            results.append(WriteResult(item.index, size, [name, end, size]))
            end += size
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 8) % ALIGNED)
        start = len(text) + 8
        for result in results:
            result.storage_data[1] += start  # from the beginning of the file
        content = [memoryview(len(text).to_bytes(8, "little") + text)]
        content += [view for tensor in pieces for view in bytes_of(tensor)]
        rest = json.dumps(self._skeleton).encode()
        facts = [
            write_file(self._folder / name, content),
            write_file(self._folder / f"rank-{self._rank}.json", [memoryview(rest)]),
        ]
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
                "dtype": _name_of(entry.properties.dtype, name),
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
        """Say that there is none."""
        return checkpoint_id is None


def save_alone(writer: CheckpointWriter, planner: SavePlanner) -> None:
    """Do what ``dcp.save`` does, which warns where there are no other ranks."""
    planner.set_up_planner({}, None, is_coordinator=True)
    writer.set_up_storage_writer(is_coordinator=True)
    plans, metadata = planner.create_global_plan([planner.create_local_plan()])
    written = writer.write_data(planner.finish_plan(plans[0]), planner)
    writer.finish(metadata, [written.value()])


def write_file(path: Path, content: list[memoryview]) -> FileFact:
    """Write a new file to the disk itself, and hash it meanwhile."""
    queue: SimpleQueue[tuple[int, list[memoryview]] | None] = SimpleQueue()
    digests: dict[int, bytes] = {}

    def hash_all() -> None:
        while (found := queue.get()) is not None:
            digest = hashlib.sha256()
            for piece in found[1]:
                digest.update(piece)
            digests[found[0]] = digest.digest()

    size = sum(map(len, content))
    hashing = [
        threading.Thread(target=hash_all, name="rocsteady-hash", daemon=True)
        for _ in range(HASHERS if size > BLOCK else 1)
    ]
    for thread in hashing:
        thread.start()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        descriptor = os.open(path, flags, 0o666)
        try:
            for number, block in enumerate(_in_blocks(content)):
                queue.put((number, block))
                for piece in block:
                    written = 0
                    while written < len(piece):  # a full disk, or a signal, may take less at a time
                        written += os.write(descriptor, piece[written:])
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    finally:
        for _ in hashing:
            queue.put(None)
        for thread in hashing:
            thread.join()
    return FileFact(path.name, size, hash_of(digests[number] for number in sorted(digests)))


def sync_folder(folder: Path) -> None:
    """See to it that the names in a folder are on the disk. Windows has no way to do so."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _in_blocks(content: list[memoryview]) -> Iterator[list[memoryview]]:
    block: list[memoryview] = []
    room = BLOCK
    for view in content:
        start = 0
        while start < len(view):
            piece = view[start : start + room]
            block.append(piece)
            start, room = start + len(piece), room - len(piece)
            if not room:
                yield block
                block, room = [], BLOCK
    if block:
        yield block


def _label(index: MetadataIndex) -> str:
    """Name a piece in its file; a piece of a tensor has its place in the name."""
    if index.offset is None or not any(index.offset):
        return str(index.fqn)
    return f"{index.fqn}@{','.join(map(str, index.offset))}"


def _name_of(dtype: Any, tensor: str) -> str:  # noqa: ANN401 - a torch.dtype
    try:
        return DTYPES[dtype]
    except KeyError:
        raise CheckpointError(f"{tensor} is of {dtype}, which safetensors cannot hold") from None


def bytes_of(tensor: Any) -> Iterator[memoryview]:  # noqa: ANN401 - a tensor in host memory
    """Look at the memory of a tensor; without NumPy, which torch may lack."""
    size = tensor.numel() * tensor.element_size()
    if size:
        memory = (ctypes.c_char * size).from_address(tensor.data_ptr())
        yield memoryview(memory).cast("B")
