"""Tell which exception ended the script: its type and its bases, which a printed text hides."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any

from ..wire import RAISED_SUFFIX, RAISED_VERSION
from . import page

MESSAGE_LIMIT = 4000  # characters
TRACE_LIMIT = 16000
LIBRARIES = ("site-packages", "dist-packages", "<frozen", "<_rocsteady_inside")


def tell(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    """Write it down for the supervisor. Only ever called when the script is over anyway."""
    import json  # noqa: PLC0415 - not at the start of a Python
    import traceback  # noqa: PLC0415
    from time import monotonic  # noqa: PLC0415

    told: dict[str, Any] = {
        "version": RAISED_VERSION,
        "at": monotonic(),
        "rank": os.environ.get("RANK", ""),
        "type": _qualified(kind),
        "bases": [_qualified(base) for base in kind.__mro__[1:-1]],
        "message": str(value)[:MESSAGE_LIMIT],
        "place": _place(traceback.extract_tb(trace)),
        "traceback": "".join(traceback.format_exception(kind, value, trace))[-TRACE_LIMIT:],
    }
    page.leave(RAISED_SUFFIX, json.dumps(told).encode())


def _qualified(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else _in(kind.__module__, kind)


def _in(module: str, kind: type[BaseException]) -> str:
    return f"{module}.{kind.__qualname__}"


def _place(frames: Any) -> str:
    """Name the innermost frame of the user's own code; any innermost one if there is none."""
    library = os.path.dirname(os.__file__) + os.sep
    own = [
        frame
        for frame in frames
        if not frame.filename.startswith((library, sys.prefix + os.sep + "lib"))
        and not any(part in frame.filename for part in LIBRARIES)
    ]
    for frame in reversed(own or list(frames)):
        return f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}"
    return ""
