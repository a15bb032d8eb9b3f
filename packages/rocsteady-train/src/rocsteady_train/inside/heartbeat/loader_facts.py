"""What a supervisor must know of the script's DataLoaders to change them, told as they are used.

Looked at once an iterator, never in a step.
"""

from __future__ import annotations

import re
import sys
import threading
import weakref
from typing import Any

from .. import wire
from .heart import Heart

MARK = "_rocsteady"  # on a loader with other settings: what the script asked for
MAIN = rb"""(?:"__main__"|'__main__')"""
GUARD = re.compile(rb"if\b[\s(]*(?:__name__\s*==\s*" + MAIN + rb"|" + MAIN + rb"\s*==\s*__name__)")


class LoaderRecorder:
    """The facts of this process's loaders."""

    def __init__(self, heart: Heart) -> None:
        self._heart = heart
        self.reset()

    def iterated(self, loader: Any) -> None:
        """Be told that a loader makes an iterator."""
        workers, context = getattr(loader, MARK, None) or (loader.num_workers, "")
        if not self._count:
            self._heart.tell(wire.W_MAP_STYLE, wire.YES)
        if loader not in self._seen:
            self._seen.add(loader)
            self._count += 1
            self._heart.tell(wire.W_LOADERS, self._count)
        if getattr(loader, "persistent_workers", False):  # torch 1.7
            self._heart.tell(wire.W_PERSISTENT, wire.YES)
        if loader._dataset_kind != 0:  # noqa: SLF001 - 0 is "map-style", as it has been for years
            self._heart.tell(wire.W_MAP_STYLE, wire.NO)
        if workers > self._heart.facts.get(wire.W_WORKERS, 0):
            context = context or spelled(loader.multiprocessing_context)
            self._heart.tell(wire.W_WORKERS, min(workers, 1 << 32))
            self._heart.tell(wire.W_CONTEXT, wire.CONTEXTS.index(context))
            self.guarded()

    def guarded(self) -> bool:
        """Return whether what runs now is kept from running when the main module is imported."""
        answer = _is_guarded()
        self._heart.tell(wire.W_GUARDED, wire.YES if answer else wire.NO)
        return answer

    def pickles(self, *, can: bool) -> None:
        """Record whether what one loader would send to its workers can be pickled."""
        if self._heart.facts.get(wire.W_PICKLES) != wire.NO:
            self._heart.tell(wire.W_PICKLES, wire.YES if can else wire.NO)

    def reset(self) -> None:
        """Forget what was another process's."""
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._count = 0


def spelled(context: Any) -> str:
    """Name the way in which a loader starts its workers."""
    if context is None:
        multiprocessing: Any = sys.modules["multiprocessing"]  # torch has imported it
        # Asking without allow_none would settle it, and the script could not any more.
        default = multiprocessing.get_all_start_methods()[0]
        return str(multiprocessing.get_start_method(allow_none=True) or default)
    return context if isinstance(context, str) else str(context.get_start_method())


def _is_guarded() -> bool:
    """Return whether the main module is just now in the block of ``if __name__ == "__main__"``.

    So this is seen and not guessed: a loader that is made or used in that block is not made or used
    again when a worker imports the module.
    """
    main = sys.modules["__main__"]
    if main.__name__ == "__mp_main__":
        return True  # this process was started so itself
    try:
        with open(main.__file__ or "", "rb") as stream:
            lines = stream.read().splitlines()
    except (AttributeError, OSError):
        return False  # no file: nothing that a worker could import
    for line in reversed(lines[: _running_line(main)]):
        if line and line[:1] not in b" \t#)]}":  # where the statement begins
            return GUARD.match(line) is not None
    return False


def _running_line(main: Any) -> int:
    """Return the line of the main module that waits for all that goes on; 0 if none does."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001
    while frame is not None:
        if frame.f_globals is vars(main) and frame.f_code.co_name == "<module>":
            return frame.f_lineno
        frame = frame.f_back
    return 0
