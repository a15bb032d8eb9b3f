"""Is a file whole? Told from its structure; nothing in it is ever run.

A model file is never unpickled: a pickle is a program. So what a truncated or overwritten file
cannot fake is looked at: the directory at the end of a zip and the checksums of its parts, the
lengths in a safetensors header. A byte that was flipped inside a tensor of a safetensors file
cannot be told: that format has no checksum. Of an ONNX file only that it is not empty.

Every function says why a file does not count as whole, as the end of a sentence, or nothing.
"""

from __future__ import annotations

import io
import json
import logging
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from rocsteady_train.loop import supervisor_link
from rocsteady_train.untrusted_file import open_regular, read_head

JSON_LIMIT = 256 * 1024 * 1024  # bytes
CHECKSUM_LIMIT = 1024 * 1024 * 1024  # bytes of a zip that are read; of larger ones the directory is
HEADER_LIMIT = 100 * 1024 * 1024  # bytes; as safetensors itself
ZIP = b"PK\x03\x04"
OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # before 1.6: a row of pickles
MODELS = frozenset({".pt", ".pth", ".ckpt", ".safetensors", ".onnx"})
# So named by others; torch.save wrote them if it is a zip.
TORCH_SAVED = frozenset({".bin", ".pkl"})


def wrong_with_model(path: Path, checksums: int = CHECKSUM_LIMIT) -> str:
    """Judge a model file, or a checkpoint that is a folder.

    Of a zip up to ``checksums`` bytes large everything is read, of a larger one the directory.
    """
    return _wrong(
        path,
        lambda stream, size: _wrong_with_model(stream, path.suffix.lower(), size, checksums),
        _wrong_with_dcp,
    )


def wrong_with_json(path: Path) -> str:
    return _wrong(path, _wrong_with_json, lambda _: "is a folder")


def wrong_with_any(path: Path) -> str:
    """Judge what may be anything: it must not be empty."""
    return _wrong(
        path,
        lambda _stream, _size: "",
        lambda folder: "" if any(folder.iterdir()) else "is an empty folder",
    )


def wrong_with_files_in(folder: Path, checksums: int = CHECKSUM_LIMIT) -> str:
    """Judge every file of a folder whose name tells what it is, and name the first broken one."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_file())
        for path in paths:
            if wrong := _wrong_by_name(path, checksums):
                return f"is not whole: {path.name} {wrong}"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return ""


def _wrong_by_name(path: Path, checksums: int) -> str:
    suffix = path.suffix.lower()
    if suffix in MODELS or (suffix in TORCH_SAVED and read_head(path, len(ZIP)) == ZIP):
        return wrong_with_model(path, checksums)
    if suffix == ".json":
        return wrong_with_json(path)
    return wrong_with_any(path) if suffix in TORCH_SAVED else ""


def _wrong(
    path: Path, in_file: Callable[[BinaryIO, int], str], in_folder: Callable[[Path], str]
) -> str:
    try:
        if path.is_dir():
            return in_folder(path)
        if not path.is_file():
            return "is neither a file nor a folder"
        with io.BufferedReader(open_regular(path)) as stream:
            size = os.fstat(stream.fileno()).st_size
            return in_file(stream, size) if size else "is empty"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"


def _wrong_with_dcp(path: Path) -> str:
    """Judge a checkpoint that is a folder: torch writes its .metadata last."""
    metadata = path / ".metadata"
    whole = metadata.is_file() and metadata.stat().st_size > 0
    return "" if whole else "is a folder without the .metadata of a finished checkpoint"


def _wrong_with_json(stream: BinaryIO, size: int) -> str:
    if size > JSON_LIMIT:
        return f"is larger than {JSON_LIMIT >> 20} MiB, too large to be read as JSON"
    try:
        json.loads(stream.read())
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    return ""


def _wrong_with_model(stream: BinaryIO, suffix: str, size: int, checksums: int) -> str:
    start = stream.read(len(OLD_TORCH))
    stream.seek(0)
    if suffix == ".safetensors":
        return _wrong_with_safetensors(stream, size)
    if suffix == ".onnx":
        return ""  # its format has neither a length nor an end
    if start.startswith(ZIP):
        return _wrong_with_zip(stream, checksums)
    if start == OLD_TORCH and size > len(OLD_TORCH):
        return ""  # no more can be told of it without running it
    return "is not a model file: neither a zip as torch.save writes nor an older one"


def _wrong_with_zip(stream: BinaryIO, checksums: int) -> str:
    try:
        with zipfile.ZipFile(stream) as archive:
            entries = archive.infolist()
            if not entries:
                return "is an empty zip"
            if any(entry.flag_bits & 1 for entry in entries):
                return "is an encrypted zip"
            unpacked = sum(entry.file_size for entry in entries)
            broken = archive.testzip() if unpacked <= checksums else None
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
        end = max((_end(*entry["data_offsets"]) for entry in tensors), default=0)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "is damaged: its header is not that of safetensors"
    missing = length_field.size + length + end - size
    few = "few" if missing > 0 else "many"
    return "" if missing == 0 else f"is damaged: {abs(missing)} bytes too {few}"


def _end(start: object, end: object) -> int:
    """Return where a tensor ends; what is not two places in order is a ValueError."""
    if type(start) is not int or type(end) is not int or not 0 <= start <= end:
        raise ValueError("not a range")
    return end


# All that zipfile raises for a file that is damaged, encrypted or packed in an unknown way.
UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


def pickles_in(path: Path, limit: int) -> Iterator[bytes]:
    """Yield the beginning of each pickle in what torch.save wrote, as far as it can be read."""
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            for name in archive.namelist():
                if name.endswith("data.pkl"):
                    with archive.open(name) as pickled:
                        yield pickled.read(limit)
    except UNREADABLE:
        return


EVERYTHING = sys.maxsize  # bytes whose checksums are read: they are about to be loaded anyway

log = logging.getLogger("rocsteady")
_logged: set[tuple[Path, str]] = set()


def newest_whole(
    root: Path,
    pattern: str,
    found: Sequence[tuple[int, Path]],
    what_is_wrong: Callable[[Path], str],
) -> str | None:
    """Return the one with the highest number that is whole, and log each that is passed over.

    If the supervisor has chosen one of them, those with a higher number are passed over too. It is
    told that this script goes on by itself from what matches the pattern.
    """
    supervisor_link.resumes(root, pattern)
    chosen = supervisor_link.resume_from()
    limit = next(
        ((n, path) for n, path in found if chosen and path.resolve() == chosen.resolve()), None
    )
    for number, path in sorted(found, reverse=True):
        wrong = what_is_wrong(path)
        if not wrong and limit is not None and number > limit[0]:
            wrong = f"is newer than {limit[1].name}, which was asked for"
        if not wrong:
            return str(path)
        if (path, wrong) not in _logged:
            _logged.add((path, wrong))
            log.warning("rocsteady: %s %s; it is skipped.", path, wrong)
    return None
