"""The end of the script: that its own code is done, and the exception that ended it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
from types import TracebackType
from typing import Any

from ..wire import FINISHING, RAISED, RAISED_SUFFIX, RAISED_VERSION
from . import page
from .heart import Heart

# The file that our frames in the script's stack claim to be of. ``warnings`` passes over names
# with these two words in them when it counts to the caller, and so must we.
PASSED_OVER = "<_rocsteady_inside, passed over like importlib._bootstrap>"


def install(heart: Heart) -> None:
    """Be called at the end, by each way that there is."""
    # An import that evaluates text, as a namedtuple does, makes Python forget that it ends by ^C:
    # so what the hook needs is there before. torch, which is about to be imported, has it too.
    import json  # noqa: F401, PLC0415 - not at the start of a Python
    import tokenize  # noqa: F401, PLC0415
    import traceback  # noqa: F401, PLC0415

    be_first(heart)
    atexit.register(_at_end, heart, last=True)
    previous = sys.excepthook

    @functools.wraps(previous)
    def excepthook(
        kind: type[BaseException], value: BaseException, trace: TracebackType | None
    ) -> Any:  # whatever the one before us gives
        try:
            heart.finish(RAISED)
            hide(value)
            _report_exception(kind, value, trace)
        except Exception as error:  # the script's own error is what counts
            page.note("excepthook", error)
        return previous(kind, value, trace)

    sys.excepthook = excepthook


def be_first(heart: Heart) -> None:
    """Be called before the threads are joined, and before thread pools wait for theirs.

    What was registered last is called first, so this is done again when there may be thread pools.
    """
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        with contextlib.suppress(RuntimeError):  # it is already the end
            register(_at_end, heart, last=False)


def hide(value: BaseException) -> None:
    """Take our frames out of a traceback that is about to be printed."""
    exceptions: list[BaseException | None] = [value]
    seen: set[int] = set()
    while exceptions:
        exception = exceptions.pop()
        if exception is None or id(exception) in seen:
            continue
        seen.add(id(exception))
        exceptions += [exception.__cause__, exception.__context__]
        exceptions += getattr(exception, "exceptions", ())
        trace = exception.__traceback__
        while trace is not None:
            inner = trace.tb_next
            if inner is not None and inner.tb_frame.f_code.co_filename == PASSED_OVER:
                trace.tb_next = inner.tb_next
            else:
                trace = inner


def _at_end(heart: Heart, *, last: bool) -> None:
    try:
        if last or not heart.trains_elsewhere():
            heart.finish(FINISHING)
    except Exception as error:  # nothing of ours may spoil the end
        page.note("end", error)


MESSAGE_LIMIT = 4000  # characters
TRACE_LIMIT = 16000
LIBRARIES = ("site-packages", "dist-packages", "<frozen", "<_rocsteady_inside")


def _report_exception(
    kind: type[BaseException], value: BaseException, trace: TracebackType | None
) -> None:
    """Write it down for the supervisor. Only ever called when the script is over anyway."""
    import json  # noqa: PLC0415 - not at the start of a Python
    import traceback  # noqa: PLC0415
    from time import monotonic  # noqa: PLC0415

    content: dict[str, Any] = {
        "version": RAISED_VERSION,
        "at": monotonic(),
        "rank": os.environ.get("RANK", ""),
        "type": _qualified(kind),
        "bases": [_qualified(base) for base in kind.__mro__[1:-1]],
        "message": str(value)[:MESSAGE_LIMIT],
        "place": _place(traceback.extract_tb(trace)),
        "traceback": "".join(traceback.format_exception(kind, value, trace))[-TRACE_LIMIT:],
    }
    page.leave(RAISED_SUFFIX, json.dumps(content).encode())


def _qualified(kind: type[BaseException]) -> str:
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return module + kind.__qualname__


def _place(frames: Any) -> str:
    """Name the innermost frame of the user's own code; any innermost one if there is none."""
    library = os.path.dirname(os.__file__) + os.sep
    installed = tuple(os.path.join(sys.prefix, name) for name in ("lib", "bin" + os.sep))
    own = [
        frame
        for frame in frames
        if not frame.filename.startswith((library, *installed))
        and not any(part in frame.filename for part in LIBRARIES)
    ]
    for frame in reversed(own or list(frames)):
        return f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}"
    return ""
