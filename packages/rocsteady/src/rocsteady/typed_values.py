"""msgspec's reading, one thread at a time.

What msgspec knows of a type it finds out when the type is first read. A second thread that reads it
meanwhile crashes Python (SIGSEGV; with 0.22.0 in 2 of 200 runs whose processes were killed).
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from rocsteady_train.untrusted_file import read_regular

T = TypeVar("T")
_ONE_AT_A_TIME = threading.RLock()


def convert(value: object, type: type[T], **how: Any) -> T:  # noqa: A002, ANN401 - as msgspec has it
    with _ONE_AT_A_TIME:
        found: T = msgspec.convert(value, type, **how)  # noqa: TID251 - here it is locked
    return found


def decode(content: bytes | str, *, type: type[T]) -> T:  # noqa: A002 - as msgspec has it
    """Read JSON."""
    with _ONE_AT_A_TIME:
        return msgspec.json.decode(content, type=type)


def read_json(path: Path, type: type[T], limit: int, *, follow: bool = True) -> T | None:  # noqa: A002 - as above
    """Read a file that anybody may have written; None: there is none, or it is something else."""
    try:
        return decode(read_regular(path, limit, follow=follow), type=type)
    except (OSError, RecursionError, UnicodeDecodeError, msgspec.MsgspecError):
        return None
