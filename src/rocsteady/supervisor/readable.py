"""Is a file whole? Told from its structure, bounded in time; nothing in it is ever run.

A model file is never unpickled: a pickle is a program. So what a truncated or overwritten file
cannot fake is looked at: the directory at the end of a zip and the checksums of its parts, the
lengths in a safetensors header, the frames of an ONNX file.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from rocsteady import checkpoint_folder
from rocsteady.checkpoint_folder import BrokenError
from rocsteady.supervisor.job import FileKind

JSON_LIMIT = 256 * 1024 * 1024  # bytes
CHECKSUM_LIMIT = 1024 * 1024 * 1024  # bytes of a zip that are read; of larger ones the directory is
HASH_LIMIT = 16 * 1024 * 1024 * 1024  # bytes of a checkpoint of ours; of larger ones the sizes
HEADER_LIMIT = 100 * 1024 * 1024  # bytes; as safetensors itself
FIELD_LIMIT = 10_000_000  # of an ONNX file
ZIP = b"PK\x03\x04"
OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # before 1.6: a row of pickles
VARINT, FIXED_8, BYTES, FIXED_4 = 0, 1, 2, 5  # how a protobuf field is written
MODEL_FIELDS = 64  # of an ONNX ModelProto; far above the highest in use


def what_is_wrong(path: Path, kind: FileKind) -> str:
    """Return why a file does not count as readable, or nothing."""
    try:
        if path.is_dir():
            return _wrong_with_folder(path, kind)
        if not path.is_file():
            return "is neither a file nor a folder"
        size = path.stat().st_size
        if size == 0:
            return "is empty"
        with path.open("rb") as stream:
            if kind is FileKind.JSON:
                return _wrong_with_json(stream, size)
            return _wrong_with_model(stream, path.suffix.lower(), size) if _is_model(kind) else ""
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"


def kind_of(path: Path) -> FileKind:
    """Tell from its name what a file should be."""
    if path.suffix.lower() in (".pt", ".pth", ".ckpt", ".safetensors", ".onnx"):
        return FileKind.MODEL
    return FileKind.JSON if path.suffix.lower() == ".json" else FileKind.ANY


def _is_model(kind: FileKind) -> bool:
    return kind is FileKind.MODEL


def _wrong_with_folder(path: Path, kind: FileKind) -> str:
    """Judge a checkpoint that is a folder: torch writes its .metadata last."""
    if kind is FileKind.JSON:
        return "is a folder"
    if checkpoint_folder.is_ours(path):
        return _wrong_with_ours(path)
    if kind is FileKind.MODEL:
        metadata = path / ".metadata"
        whole = metadata.is_file() and metadata.stat().st_size > 0
        return "" if whole else "is a folder without the .metadata of a finished checkpoint"
    return "" if any(path.iterdir()) else "is an empty folder"


def _wrong_with_ours(path: Path) -> str:
    """Judge a checkpoint that rocsteady.training wrote. Restoring it looks at every byte anyway."""
    try:
        if not (path / checkpoint_folder.MANIFEST).is_file():
            return "has a manifest that is no file"
        manifest = checkpoint_folder.read_manifest(path)
        for file in manifest.files:
            there = path / file.name
            if not there.is_file():
                return f"has no {file.name}"
            if there.stat().st_size != file.size:
                return f"has {there.stat().st_size} bytes of {file.size} in {file.name}"
        return checkpoint_folder.what_is_wrong(path) if manifest.size <= HASH_LIMIT else ""
    except BrokenError as error:
        return str(error)


def _wrong_with_json(stream: BinaryIO, size: int) -> str:
    if size > JSON_LIMIT:
        return f"is larger than {JSON_LIMIT >> 20} MiB, too large to be read as JSON"
    try:
        json.loads(stream.read())
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    return ""


def _wrong_with_model(stream: BinaryIO, suffix: str, size: int) -> str:
    start = stream.read(len(OLD_TORCH))
    stream.seek(0)
    if suffix == ".safetensors":
        return _wrong_with_safetensors(stream, size)
    if suffix == ".onnx":
        return _wrong_with_onnx(stream, size)
    if start.startswith(ZIP):
        return _wrong_with_zip(stream)
    if start == OLD_TORCH and size > len(OLD_TORCH):
        return ""  # no more can be told of it without running it
    return "is not a model file: neither a zip as torch.save writes nor an older one"


def _wrong_with_zip(stream: BinaryIO) -> str:
    try:
        with zipfile.ZipFile(stream) as archive:
            entries = archive.infolist()
            if not entries:
                return "is an empty zip"
            if any(entry.flag_bits & 1 for entry in entries):
                return "is an encrypted zip"
            unpacked = sum(entry.file_size for entry in entries)
            broken = archive.testzip() if unpacked <= CHECKSUM_LIMIT else None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        return f"is cut short or damaged: {error}"
    return f"is damaged: the checksum of {broken} is wrong" if broken else ""


def _wrong_with_safetensors(stream: BinaryIO, size: int) -> str:
    length_field = struct.Struct("<Q")
    if size < length_field.size:
        return "is cut short"
    (length,) = length_field.unpack(stream.read(length_field.size))
    if not 0 < length <= min(HEADER_LIMIT, size - length_field.size):
        return "is cut short or damaged: its header is longer than it"
    try:
        header = json.loads(stream.read(length))
        tensors = [entry for name, entry in header.items() if name != "__metadata__"]
        end = max((int(entry["data_offsets"][1]) for entry in tensors), default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return "is damaged: its header is not that of safetensors"
    missing = length_field.size + length + end - size
    return "" if missing == 0 else f"is damaged: {abs(missing)} bytes too {_few(missing)}"


def _few(missing: int) -> str:
    return "few" if missing > 0 else "many"


def _wrong_with_onnx(stream: BinaryIO, size: int) -> str:
    """Walk over the outermost fields of a protobuf; they must end where the file ends."""
    at = 0
    for _ in range(FIELD_LIMIT):
        if at == size:
            return ""
        tag, at = _varint(stream, at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < MODEL_FIELDS:
            return "is not an ONNX model"
        if wire == VARINT:
            value, at = _varint(stream, at)
        elif wire == BYTES:
            value, at = _varint(stream, at)
            at += value
        elif wire in (FIXED_4, FIXED_8):
            at += 4 if wire == FIXED_4 else 8
        else:
            return "is not an ONNX model"
        if at > size:
            return "is cut short"
    return "is not an ONNX model"


def _varint(stream: BinaryIO, at: int) -> tuple[int, int]:
    """Read a number of up to 64 bits at a place, and return it with the place after it.

    A number that the file's end cuts off is so large that no file holds what it announces.
    """
    stream.seek(at)
    value = 0
    for index, byte in enumerate(stream.read(10)):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:  # noqa: PLR2004 - the top bit says that more follows
            return value, at + index + 1
    return value, at + (1 << 62)
