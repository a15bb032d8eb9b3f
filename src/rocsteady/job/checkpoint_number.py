"""How far a checkpoint is, as it says itself: by its name, or by what is in it.

Nothing is ever unpickled: of a pickle the opcodes are listed, which runs none of it.
"""

from __future__ import annotations

import io
import json
import pickletools
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from rocsteady.model import Value
from rocsteady.untrusted_file import open_regular, read_regular

STEP, EPOCH = "step", "epoch"
LARGEST = 4 << 20  # bytes of a pickle, a header or JSON that are looked at
MOST_OPCODES = 400_000
HIGHEST = 10**15
_DAMAGED = (
    *(OSError, ValueError, KeyError, TypeError, EOFError, OverflowError),
    *(RuntimeError, zipfile.BadZipFile, zlib.error, struct.error),  # an encrypted zip is the first
)
TRAINER_STATE = "trainer_state.json"  # as the Hugging Face Trainer writes
KEYS = {
    "global_step": STEP,
    "step": STEP,
    "steps": STEP,
    "iteration": STEP,
    "iter": STEP,
    "epoch": EPOCH,
    "epochs": EPOCH,
}
_BEFORE = r"(?:^|[^a-z])"
_NAMED = (
    (STEP, re.compile(_BEFORE + r"(?:global[-_]?)?(?:steps?|iter(?:ation)?s?)[-_=]?([0-9]+)")),
    (STEP, re.compile(r"^checkpoint-([0-9]+)$")),  # of the Hugging Face Trainer
    (EPOCH, re.compile(_BEFORE + r"epochs?[-_=]?([0-9]+)")),
)
_TEXT = {"BINUNICODE", "SHORT_BINUNICODE", "UNICODE", "BINUNICODE8"}
_MEMO = {"BINPUT", "LONG_BINPUT", "MEMOIZE", "PUT"}
_GET = {"BINGET", "LONG_BINGET", "GET"}
_NUMBERS = {"BININT", "BININT1", "BININT2", "LONG1", "INT", "LONG"}


class Number(Value, frozen=True, kw_only=True):
    """So many steps, or epochs."""

    value: int
    unit: str = STEP


def number_of(path: Path) -> Number | None:
    """Read it from the name, else from the contents; None if neither says."""
    named = _by_name(path.stem if path.suffix and not path.is_dir() else path.name)
    if named is not None and named.unit == STEP:
        return named
    try:
        inside = _inside(path)
    except _DAMAGED:
        inside = None
    return inside or named


def _by_name(name: str) -> Number | None:
    for unit, pattern in _NAMED:
        if match := pattern.search(name.lower()):
            return _number(unit, int(match.group(1)))
    return None


def _inside(path: Path) -> Number | None:
    if path.is_dir():
        state = path / TRAINER_STATE
        return _chosen(_json(read_regular(state, LARGEST))) if state.is_file() else None
    if path.suffix == ".json":
        return _chosen(_json(read_regular(path, LARGEST)))
    with io.BufferedReader(open_regular(path)) as stream:
        if path.suffix == ".safetensors":
            return _of_safetensors(stream)
        return _of_torch(stream) if zipfile.is_zipfile(stream) else None


def _of_safetensors(stream: BinaryIO) -> Number | None:
    (length,) = struct.unpack("<Q", stream.read(8))
    header = _json(stream.read(length)) if length <= LARGEST else {}
    metadata = header.get("__metadata__")
    return _chosen(metadata) if isinstance(metadata, dict) else None


def _of_torch(stream: BinaryIO) -> Number | None:
    """List what a pickle would set, and take a number only if all that say so agree."""
    with zipfile.ZipFile(stream) as archive:
        for entry in archive.infolist():
            if entry.filename.rpartition("/")[2] == "data.pkl" and entry.file_size <= LARGEST:
                found: dict[str, set[int]] = {}
                for key, value in _pairs(archive.read(entry)):
                    found.setdefault(key, set()).add(value)
                return _chosen({key: min(v) for key, v in found.items() if len(v) == 1})
    return None


def _pairs(pickled: bytes) -> Iterator[tuple[str, int]]:
    """Yield each key of ours that is followed by a whole number."""
    key, memo = "", dict[int, str]()
    for opcode, argument, _ in islice(pickletools.genops(pickled), MOST_OPCODES):
        if opcode.name in _TEXT:
            key = str(argument) if argument in KEYS else ""
        elif opcode.name in _GET:
            key = memo.get(int(argument or 0), "")
        elif opcode.name in _MEMO:
            memo[len(memo) if argument is None else int(argument)] = key
        elif opcode.name in _NUMBERS and key and isinstance(argument, int):
            yield key, argument
            key = ""
        else:
            key = ""


def _json(content: bytes) -> dict[str, object]:
    read = json.loads(content)
    return read if isinstance(read, dict) else {}


def _chosen(found: Mapping[str, object]) -> Number | None:
    for key, unit in KEYS.items():
        value = found.get(key)
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return _number(unit, value)
    return None


def _number(unit: str, value: int) -> Number | None:
    return Number(value=value, unit=unit) if 0 <= value < HIGHEST else None
