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

import hashlib
import json
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rocsteady.untrusted_file import open_regular, read_regular

VERSION = 1
LATEST, MANIFEST, PLAN = "latest", "manifest.json", "plan.json"
ASIDE = "set-aside"
PATTERN = "step-*"
UNFINISHED = "unfinished-"  # and a name: what is being written, fetched or removed
BLOCK = 16 * 1024 * 1024  # bytes of a file that are hashed on their own, so on several cores
CHUNK = 1024 * 1024  # bytes that are read at a time
THREADS = min(8, os.cpu_count() or 1)  # that read and hash
MANIFEST_LIMIT = 64 * 1024 * 1024  # bytes; 100,000 ranks need about 30 MB
_NAME = re.compile(r"step-([0-9]{9,18})")
_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,200}")


@dataclass(frozen=True)
class FileFact:
    """What a file must be."""

    name: str
    size: int
    sha256: str  # of the SHA-256 of each of its blocks, one after the other


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint consists of."""

    step: int
    number: int  # of the checkpoints of this training, in the order in which they were made
    files: tuple[FileFact, ...]

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(file.size for file in self.files)


class BrokenError(Exception):
    """A checkpoint is not whole; the text says why, as the end of a sentence."""


def name_of(step: int) -> str:
    """Name the folder of a step."""
    return f"step-{step:09d}"


def step_of(folder: Path) -> int | None:
    """Read the step from a folder's name; None if it is not one of ours."""
    match = _NAME.fullmatch(folder.name)
    return int(match.group(1)) if match else None


def steps(root: Path) -> list[tuple[int, Path]]:
    """List the checkpoints that are there, whole or not, the newest first."""
    try:
        found = [(step_of(path), path) for path in root.iterdir() if path.is_dir()]
    except FileNotFoundError:
        return []
    return sorted(((step, path) for step, path in found if step is not None), reverse=True)


def is_ours(folder: Path) -> bool:
    """Tell whether a folder is a checkpoint of ours, whole or not."""
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
    return parsed_manifest(text, step_of(folder))


def parsed_manifest(text: bytes, step: int | None) -> Manifest:
    """Read a manifest of a step, or say what is wrong with it."""
    line, _, rest = text.partition(b"\n")
    if rest != hashlib.sha256(line).hexdigest().encode() + b"\n":
        raise BrokenError("has a damaged manifest")
    try:
        return _understood(json.loads(line), step)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise BrokenError("has a manifest that cannot be understood") from None


def _understood(content: Any, step: int | None) -> Manifest:  # noqa: ANN401 - JSON
    if content["version"] != VERSION:
        raise BrokenError(f"is of format {content['version']}, and this reads {VERSION}")
    if step is None or content["step"] != step:
        raise BrokenError(f"says in its manifest that it is of step {content['step']}")
    files = tuple(
        FileFact(name, int(size), str(sha256)) for name, (size, sha256) in content["files"].items()
    )
    for file in files:
        if not _FILE.fullmatch(file.name):
            raise BrokenError(f"names a file that is not in it: {file.name!r}")
    return Manifest(step=step, number=int(content["number"]), files=files)


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
    """Return the SHA-256 of one block of a file."""
    digest, chunk, left = hashlib.sha256(), memoryview(bytearray(CHUNK)), BLOCK
    with open_regular(path) as stream:
        stream.seek(start)
        while count := stream.readinto(chunk[:left]):
            digest.update(chunk[:count])
            left -= count
    return digest.digest()


def what_is_wrong(folder: Path) -> str:
    """Say why a checkpoint is not whole, or nothing."""
    try:
        check(folder, read_manifest(folder).files)
    except BrokenError as error:
        return str(error)
    return ""
