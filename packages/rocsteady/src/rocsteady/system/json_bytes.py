"""JSON of values with names of files: those that are not UTF-8 come back as they were."""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec

T = TypeVar("T")


def to_json(value: object) -> bytes:
    return json.dumps(msgspec.to_builtins(value)).encode()


def from_json(content: bytes, kind: type[T]) -> T:
    """Return what was written; a ValueError or MsgspecError says that it is something else."""
    return msgspec.convert(json.loads(content), kind)
