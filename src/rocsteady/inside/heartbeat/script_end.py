"""Tell that the script's own code is done, before whatever may still hang at exit."""

from __future__ import annotations

import atexit
import contextlib
import functools
import sys
import threading
from types import TracebackType
from typing import Any

from ..wire import FINISHING, RAISED
from . import exception, page
from .heart import Heart

# The file that our frames in the script's stack claim to be of. ``warnings`` passes over names
# with these two words in them when it counts to the caller, and so must we.
PASSED_OVER = "<_rocsteady_inside, passed over like importlib._bootstrap>"


def install(heart: Heart) -> None:
    """Be called at the end, by each way that there is."""
    be_first(heart)
    atexit.register(_reached, heart, last=True)
    previous = sys.excepthook

    @functools.wraps(previous)
    def excepthook(
        kind: type[BaseException], value: BaseException, trace: TracebackType | None
    ) -> Any:  # whatever the one before us gives
        try:
            heart.finish(RAISED)
            hide(value)
            exception.tell(kind, value, trace)
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
            register(_reached, heart, last=False)


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


def _reached(heart: Heart, *, last: bool) -> None:
    try:
        if last or not heart.trains_elsewhere():
            heart.finish(FINISHING)
    except Exception as error:  # nothing of ours may spoil the end
        page.note("end", error)
