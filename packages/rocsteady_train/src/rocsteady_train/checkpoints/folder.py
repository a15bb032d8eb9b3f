"""A checkpoint of ours on disk: what is in its folder, and whether it is whole.

::

    checkpoints/
        latest                      the name of the newest one, for people and for uploads
        step-000001200/
            rank-0.safetensors      the tensors that rank 0 wrote
            rank-0.json             what is not a tensor, and where each tensor goes
            plan.json               which part of which tensor lies where, over all ranks
            manifest.json           size and hash of each of these; written last
        set-aside/                  what was found broken, or was passed over; never deleted by us

A folder is called ``step-N`` only once everything in it is on the disk. It is never written to
again. Nothing here is ever unpickled, and nothing that the manifest does not name is read.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from rocsteady_train.untrusted_file import open_regular, read_regular

VERSION = 1
LATEST, MANIFEST, PLAN = "latest", "manifest.json", "plan.json"
ASIDE = "set-aside"
PATTERN = "step-*"
UNFINISHED = "unfinished-"  # and a name: what is being written or removed
BLOCK = 16 * 1024 * 1024  # bytes of a file that are hashed on their own, so on several cores
CHUNK = 1024 * 1024  # bytes that are read at a time
THREADS = min(8, os.cpu_count() or 1)  # that read and hash
JSON_LIMIT = 1024 * 1024 * 1024  # bytes of a plan, or of the state of a rank
MAX_COUNT = 1 << 60  # of anything that is counted
SIZES = {  # bytes of an element, by the names that safetensors has
    **dict.fromkeys(("F64", "C64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"), 1),
    **dict.fromkeys(("I8", "U8", "BOOL"), 1),
}
MANIFEST_LIMIT = 64 * 1024 * 1024  # bytes; 100,000 ranks need about 30 MB
_NAME = re.compile(r"step-([0-9]{9,18})")
_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,200}")
_DATA = re.compile(r"rank-[0-9]{1,9}\.safetensors")
_HASH = re.compile(r"[0-9a-f]{64}")
_NOT_UNDERSTOOD = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class FileFact:
    name: str
    size: int
    sha256: str  # of the SHA-256 of each of its blocks, one after the other


@dataclass(frozen=True)
class Manifest:
    step: int
    number: int  # of the checkpoints of this training, in the order in which they were made
    files: tuple[FileFact, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @cached_property
    def sizes(self) -> dict[str, int]:
        return {file.name: file.size for file in self.files}


@dataclass(frozen=True)
class Piece:
    """A block of a tensor, and where its bytes lie."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    start: int
    length: int


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]

    @property
    def length(self) -> int:
        return math.prod(self.shape) * SIZES[self.dtype]


@dataclass(frozen=True)
class RankState:
    """What one rank had that is not a tensor."""

    world: int  # ranks that wrote the checkpoint
    state: dict[str, Any]


class CheckpointError(Exception):
    """A checkpoint could not be written, or is not one for this training."""


class BrokenError(Exception):
    """A checkpoint is not whole; the text says why, as the end of a sentence."""


def name_of(step: int) -> str:
    return f"step-{step:09d}"


def step_of(folder: Path) -> int | None:
    """Read the step from a folder's name; None if it is not one of ours."""
    match = _NAME.fullmatch(folder.name)
    return int(match.group(1)) if match else None


def steps(root: Path, of: Callable[[Path], int | None] = step_of) -> list[tuple[int, Path]]:
    """List the checkpoints that are there, whole or not, the newest first; ``of`` reads names."""
    try:
        found = [(of(path), path) for path in root.iterdir() if path.is_dir()]
    except FileNotFoundError:
        return []
    return sorted(((step, path) for step, path in found if step is not None), reverse=True)


def is_ours(folder: Path) -> bool:
    return step_of(folder) is not None and (folder / MANIFEST).exists()


def manifest_text(step: int, number: int, files: Iterable[FileFact]) -> bytes:
    """Write a manifest: a line of JSON, and a line with the hash of that line."""
    content: dict[str, Any] = {
        "version": VERSION,
        "step": step,
        "number": number,
        "files": {file.name: [file.size, file.sha256] for file in files},
    }
    line = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
    return line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"


def read_manifest(folder: Path) -> Manifest:
    """Read what a checkpoint should be, or say what is wrong with it."""
    try:
        text = read_regular(folder / MANIFEST, MANIFEST_LIMIT)
    except FileNotFoundError:
        raise BrokenError("has no manifest: it was not finished") from None
    except OSError as error:
        raise BrokenError(f"cannot be read: {error.strerror}") from None
    line, _, rest = text.partition(b"\n")
    if rest != hashlib.sha256(line).hexdigest().encode() + b"\n":
        raise BrokenError("has a damaged manifest")
    try:
        return _understood(json.loads(line), step_of(folder))
    except _NOT_UNDERSTOOD:
        raise BrokenError("has a manifest that cannot be understood") from None


def _understood(content: Any, step: int | None) -> Manifest:  # noqa: ANN401 - JSON
    version, recorded = _count(content["version"]), _count(content["step"])
    if version != VERSION:
        raise BrokenError(f"is of format {version}, and this reads {VERSION}")
    if step is None or recorded != step:
        raise BrokenError(f"says in its manifest that it is of step {recorded}")
    files = tuple(_file(name, size, sha256) for name, (size, sha256) in content["files"].items())
    manifest = Manifest(step=step, number=_count(content["number"]), files=files)
    for name in (PLAN, state_name(0)):
        if name not in manifest.sizes:
            raise BrokenError(f"has a manifest that does not list {name}")
    return manifest


def _file(name: str, size: Any, sha256: Any) -> FileFact:  # noqa: ANN401 - JSON
    if not _FILE.fullmatch(name):
        raise BrokenError(f"names a file that is not in it: {name[:200]!r}")
    if not isinstance(sha256, str) or not _HASH.fullmatch(sha256):
        raise ValueError(name)
    return FileFact(name, _count(size), sha256)


def _count(value: Any) -> int:  # noqa: ANN401 - JSON
    """Accept a number of things, and nothing that only looks like one."""
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise ValueError("not a count")
    return value


def state_name(rank: int) -> str:
    return f"rank-{rank}.json"


def read_plan(folder: Path, manifest: Manifest) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint, or say why its plan cannot be right."""
    try:
        plan = json.loads(_listed(folder, manifest, PLAN))
        found = {name: _tensor(entry) for name, entry in plan.items()}
    except _NOT_UNDERSTOOD:
        raise BrokenError(f"has a {PLAN} that cannot be understood") from None
    for name, tensor in found.items():
        if not _fits(tensor, manifest.sizes):
            raise BrokenError(f"has {name[:200]!r} in places where it cannot be")
    if sum(tensor.length for tensor in found.values()) > manifest.size:
        raise BrokenError(f"has more tensors in {PLAN} than bytes in its files")
    return found


def read_state(folder: Path, manifest: Manifest, rank: int, plan: Collection[str]) -> RankState:
    """Return what a rank had that is not a tensor, or say why it cannot be restored."""
    name = state_name(rank)
    try:
        content = json.loads(_listed(folder, manifest, name))
        state, world = content["state"], _count(content["world"])
        named = set(tensors_in(state))
    except _NOT_UNDERSTOOD:
        raise BrokenError(f"has a {name} that cannot be understood") from None
    if not isinstance(state, dict) or KIND in state or not world:
        raise BrokenError(f"has a {name} that cannot be understood")
    if missing := sorted(named - set(plan)):
        raise BrokenError(f"has no {missing[0][:200]!r} in {PLAN}")
    return RankState(world=world, state=state)


def _listed(folder: Path, manifest: Manifest, name: str) -> bytes:
    """Read a file as large as its manifest says; one that it does not list is not read."""
    if name not in manifest.sizes:
        raise BrokenError(f"has a manifest that does not list {name}")
    try:
        return read_regular(folder / name, min(manifest.sizes[name], JSON_LIMIT))
    except OSError as error:
        raise BrokenError(f"has an unreadable {name}: {error.strerror}") from None


def _tensor(entry: Any) -> Tensor:  # noqa: ANN401 - JSON
    pieces = tuple(
        Piece(
            offsets=tuple(map(_count, offsets)),
            sizes=tuple(map(_count, sizes)),
            file=file,
            start=_count(start),
            length=_count(length),
        )
        for offsets, sizes, file, start, length in entry["chunks"]
    )
    if entry["dtype"] not in SIZES or not all(isinstance(piece.file, str) for piece in pieces):
        raise ValueError(entry["dtype"])
    return Tensor(dtype=entry["dtype"], shape=tuple(map(_count, entry["size"])), pieces=pieces)


def _fits(tensor: Tensor, sizes: Mapping[str, int]) -> bool:
    """Return whether the pieces lie in their files, and make up the tensor."""
    rank, size = len(tensor.shape), SIZES[tensor.dtype]
    for piece in tensor.pieces:
        inside = len(piece.offsets) == len(piece.sizes) == rank and all(
            offset + count <= whole
            for offset, count, whole in zip(piece.offsets, piece.sizes, tensor.shape)
        )
        ends = piece.start + piece.length <= sizes.get(piece.file, -1)
        data = _DATA.fullmatch(piece.file)
        if not (inside and ends and data and piece.length == math.prod(piece.sizes) * size):
            return False
    return sum(piece.length for piece in tensor.pieces) == tensor.length


def hash_of(blocks: Iterable[bytes]) -> str:
    """Return the hash of a file from the SHA-256 of each of its blocks."""
    return hashlib.sha256(b"".join(blocks)).hexdigest()


def check(folder: Path, files: Iterable[FileFact]) -> None:
    """Read the files and compare size and hash, or say which is not as it should be."""
    with ThreadPoolExecutor(THREADS) as pool:
        for file in files:
            path = folder / file.name
            try:
                with open_regular(path) as stream:
                    size = os.fstat(stream.fileno()).st_size
                if size != file.size:
                    raise BrokenError(f"has {size} bytes of {file.size} in {file.name}")
                found = hash_of(pool.map(partial(_block, path), range(0, size, BLOCK)))
            except FileNotFoundError:
                raise BrokenError(f"has no {file.name}") from None
            except OSError as error:
                raise BrokenError(f"has an unreadable {file.name}: {error.strerror}") from None
            if found != file.sha256:
                raise BrokenError(f"has other bytes in {file.name} than were written")


def _block(path: Path, start: int) -> bytes:
    digest, chunk, left = hashlib.sha256(), memoryview(bytearray(CHUNK)), BLOCK
    with open_regular(path) as stream:
        stream.seek(start)
        while count := stream.readinto(chunk[:left]):
            digest.update(chunk[:count])
            left -= count
    return digest.digest()


def what_is_wrong(folder: Path) -> str:
    """Return why a checkpoint is not whole; "" if it is."""
    try:
        manifest = read_manifest(folder)
        check(folder, manifest.files)
        read_state(folder, manifest, 0, read_plan(folder, manifest))
    except BrokenError as error:
        return str(error)
    return ""


# The state that is not a tensor is JSON. A restore must never fail halfway with a KeyError or a
# TypeError, so what could make it do so is looked for before anything is restored. Whether this
# machine's torch knows a dtype is not judged here: such a checkpoint is whole.
KIND = "!"  # the key that marks what JSON has no word for
DEEPEST = 200  # levels
_NAMED = frozenset({"tensor", "numpy", "dtype", "device"})
_GROUPS = frozenset({"tuple", "set", "frozenset", "Size"})
_SCALAR = re.compile(r"[<>|=]?[biufc]([0-9]{1,2})")
_TYPE_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}(:[0-9]{1,4})?")  # of a dtype or a device


def tensors_in(skeleton: Any, depth: int = 0) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Yield the name of each tensor of a skeleton; raises ValueError if it cannot be built."""
    if depth > DEEPEST:
        raise ValueError("it is nested too deeply")
    if isinstance(skeleton, list):
        for item in skeleton:
            yield from tensors_in(item, depth + 1)
    elif isinstance(skeleton, dict) and KIND not in skeleton:
        for item in skeleton.values():
            yield from tensors_in(item, depth + 1)
    elif isinstance(skeleton, dict):
        yield from _special(skeleton[KIND], skeleton, depth)


def is_dict(skeleton: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(skeleton, dict) and skeleton.get(KIND, "dict") == "dict"


def _special(kind: Any, skeleton: dict[str, Any], depth: int) -> Iterator[str]:  # noqa: ANN401
    if not isinstance(kind, str):
        raise ValueError("a kind is not a text")  # noqa: TRY004 - one error for what is wrong
    if kind in _NAMED:
        name = skeleton.get("name")
        if not isinstance(name, str) or not (
            kind in ("tensor", "numpy") or _TYPE_NAME.fullmatch(name)
        ):
            raise ValueError(f"a {kind} has no name")
        if kind in ("tensor", "numpy"):
            yield name
    elif kind in _GROUPS or kind == "dict":
        items = skeleton.get("items")
        if not isinstance(items, list) or not all(_is_item(kind, item) for item in items):
            raise ValueError(f"a {kind} does not have the items of one")
        yield from tensors_in(items, depth)
    elif kind in ("bytes", "scalar"):
        _check_bytes(kind, skeleton)
    elif kind != "missed":
        raise ValueError(f"there is no kind {kind[:40]!r}")


def _is_item(kind: str, item: Any) -> bool:  # noqa: ANN401 - JSON
    if kind == "dict":
        return isinstance(item, list) and len(item) == 2 and _is_hashable(item[0])  # noqa: PLR2004
    if kind == "Size":
        return type(item) is int
    return kind == "tuple" or _is_hashable(item)


def _is_hashable(item: Any) -> bool:  # noqa: ANN401 - JSON
    if not isinstance(item, dict):
        return not isinstance(item, list)
    kind, items = item.get(KIND), item.get("items")
    if kind in ("tuple", "frozenset"):
        return isinstance(items, list) and all(map(_is_hashable, items))
    return isinstance(kind, str) and kind not in ("dict", "set", "numpy", "missed")


def _check_bytes(kind: str, skeleton: dict[str, Any]) -> None:
    text, dtype = skeleton.get("base64"), skeleton.get("dtype")
    if not isinstance(text, str):
        raise ValueError(f"{kind} has no content")  # noqa: TRY004 - one error for what is wrong
    content = base64.b64decode(text)
    if kind == "scalar":
        match = _SCALAR.fullmatch(dtype) if isinstance(dtype, str) else None
        if match is None or len(content) != int(match.group(1)):
            raise ValueError("a scalar has no dtype of its size")
