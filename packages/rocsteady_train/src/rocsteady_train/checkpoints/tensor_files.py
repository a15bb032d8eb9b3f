"""Tensors in host memory and in plain files, and checkpoints of one process.

Training goes on while a copy in host memory is written. One buffer holds all tensors of a save, one
after the other. There are two, used again and again: one may be written to disk while the next save
is copied into the other. Nothing is ever copied on the device.

Files are safetensors, hashed while they are written, and read by piece. Nothing here needs
torch.distributed.checkpoint, whose import takes as long as that of torch; the files of one process
are the same as those that it plans, and either can read what the other wrote.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import json
import math
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch

from rocsteady_train.checkpoints.folder import (
    BLOCK,
    PLAN,
    THREADS,
    CheckpointError,
    FileFact,
    Piece,
    Tensor,
    hash_of,
    state_name,
)
from rocsteady_train.untrusted_file import open_regular

SAVE_PATIENCE = 120.0  # seconds for a save that is still being written
ALIGNED = 64  # bytes: a cache line, and a multiple of every element's size


class Buffer:
    def __init__(self) -> None:
        self.memory: Any = torch.empty(0, dtype=torch.uint8)

    def copy(self, tensors: dict[str, Any]) -> dict[str, Any]:
        places, size = {}, 0
        for name, tensor in tensors.items():
            places[name] = size
            size += -(-tensor.numel() * tensor.element_size() // ALIGNED) * ALIGNED
        on_device = any(tensor.device.type != "cpu" for tensor in tensors.values())
        if self.memory.numel() < size or (on_device and not self.memory.is_pinned()):
            self.memory = torch.empty(0, dtype=torch.uint8)  # the old one goes first
            self.memory = torch.empty(size, dtype=torch.uint8, pin_memory=on_device)
        copies = {}
        moves: list[tuple[int, int, int]] = []
        for name, tensor in tensors.items():
            length = tensor.numel() * tensor.element_size()
            place = self.memory[places[name] : places[name] + length]
            copies[name] = place.view(tensor.dtype).view(tensor.shape)
            if _is_plain(tensor):
                moves += _moves(place.data_ptr(), tensor.data_ptr(), length)
            else:
                copies[name].copy_(tensor, non_blocking=True)
        # torch would share out each tensor among its threads, and wait for all of them each time.
        if size <= BLOCK:  # threads would take longer to start
            for move in moves:
                ctypes.memmove(*move)
        elif moves:
            with ThreadPoolExecutor(THREADS) as pool:
                for _ in pool.map(lambda move: ctypes.memmove(*move), moves):
                    pass  # an error is raised here
        if on_device:
            torch.accelerator.synchronize()
        return copies


def _is_plain(tensor: Any) -> bool:  # noqa: ANN401 - a tensor
    """Return whether a tensor lies in host memory as it will in the file."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def _moves(to: int, start: int, length: int) -> list[tuple[int, int, int]]:
    return [(to + at, start + at, min(BLOCK, length - at)) for at in range(0, length, BLOCK)]


class Buffers:
    def __init__(self) -> None:
        self._free = [Buffer(), Buffer()]
        self._changed = threading.Condition()

    def take(self) -> Buffer:
        """Return a buffer that is free; waits for the older save, but not for a stuck disk."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._free, SAVE_PATIENCE):
                raise CheckpointError("the two before it are still being written")
            return self._free.pop()

    def give_back(self, buffer: Buffer) -> None:
        with self._changed:
            self._free.append(buffer)  # the next save takes this one, whose pages are there
            self._changed.notify()


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


def is_distributed(tensor: Any) -> bool:  # noqa: ANN401 - a tensor
    """Return whether a tensor is a DTensor, without importing what it is made of."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Any) -> Any:  # noqa: ANN401 - a tensor
    return tensor.to_local() if is_distributed(tensor) else tensor


def write_tensors(path: Path, tensors: Mapping[str, Any]) -> tuple[FileFact, dict[str, list[Any]]]:
    """Write a new file of tensors in host memory; return its fact, and the place of each."""
    header: dict[str, Any] = {}
    pieces: list[Any] = []
    end = 0
    # There are no gaps in a safetensors file. The widest elements first: so each is aligned.
    for label, tensor in sorted(tensors.items(), key=lambda pair: -pair[1].element_size()):
        size = tensor.numel() * tensor.element_size()
        header[label] = {
            "dtype": dtype_name(tensor.dtype, label),
            "shape": list(tensor.shape),
            "data_offsets": [end, end + size],
        }
        pieces.append(tensor)
        end += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNED)
    content = [memoryview(len(text).to_bytes(8, "little") + text)]
    content += [view for tensor in pieces for view in bytes_of(tensor)]
    start = len(text) + 8  # from the beginning of the file
    ranges = {label: entry["data_offsets"] for label, entry in header.items()}
    places = {label: [path.name, start + a, b - a] for label, (a, b) in ranges.items()}
    return write_file(path, content), places


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


def dtype_name(dtype: Any, tensor: str) -> str:  # noqa: ANN401 - a torch.dtype
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


def all_plain(tensors: Iterable[Any]) -> bool:
    """Return whether all of these are plain tensors, which lie in this process whole."""
    return all(type(tensor) is torch.Tensor for tensor in tensors)


def save_plain(
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


def load_plain(folder: Path, plan: Mapping[str, Tensor], wanted: Mapping[str, Any]) -> None:
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
