"""What ``rocsteady watch`` asks of a run: pause, continue, stacks.

A request is a file in the run's folder. The supervisor takes it up within a tick and removes it.
Only a file of the supervisor's own user counts: that user could also signal the run. A request of
an older or newer version is ignored.
"""

from __future__ import annotations

import contextlib
import os
import time
from enum import Enum
from pathlib import Path

import msgspec
from rocsteady_train.untrusted_file import open_regular, read_exactly

from rocsteady.model import Value
from rocsteady.system.atomic_file import write_whole

FILE = "request.json"
STACKS = "stacks.txt"  # the answer to one for stacks
LIMIT = 4096  # bytes
VALID = 60.0  # seconds; an older one was meant for another attempt
VERSION = 1


class RequestKind(Enum):
    """What may be asked."""

    PAUSE = "pause"
    CONTINUE = "continue"
    STACKS = "stacks"


class UserRequest(Value, frozen=True, kw_only=True):
    """What was asked, and when."""

    version: int = VERSION
    what: RequestKind
    at: float


def put_request(folder: Path, what: RequestKind) -> None:
    """Ask the supervisor of the run with this folder. Raises OSError."""
    request = UserRequest(what=what, at=time.time())
    write_whole(folder / FILE, msgspec.json.encode(request))


def take_request(folder: Path) -> RequestKind | None:
    """Return what was asked since the last time, and remove it."""
    path = folder / FILE
    if not os.path.lexists(path):
        return None
    try:
        with open_regular(path, follow=False) as stream:
            owner = os.fstat(stream.fileno()).st_uid
            text = read_exactly(stream, LIMIT)
    except OSError:
        text, owner = b"", -1
    with contextlib.suppress(OSError):
        path.unlink()
    if hasattr(os, "geteuid") and owner != os.geteuid():
        return None
    try:
        request = msgspec.json.decode(text, type=UserRequest)
    except msgspec.DecodeError:
        return None
    fresh = abs(time.time() - request.at) <= VALID
    return request.what if fresh and request.version == VERSION else None
