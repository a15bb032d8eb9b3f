"""What is known of stacks: which functions wait for a device, which threads only serve.

The same stack means different things to different rooms; here it is only recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from rocsteady.doctor.knowledge.reader import DataFolder, Problems
from rocsteady.doctor.knowledge.values import Sources
from rocsteady.model import Value

TABLES = ("device", "helper", "collective", "person")  # of frames and threads
# Below these no code of the user's runs, unless a frame of it is between.
PYTHONS_OWN = re.compile(
    r"[(/]python\d[.\d]*/(?:threading|queue|selectors"
    r"|multiprocessing/(?:connection|queues|synchronize))\.py[:)]"
)


class EndedBy(Enum):
    """Who ends a wait that PyTorch or Python repeats for ever, each time with a short timeout."""

    WORKERS = "workers"  # the loader's worker processes, or its thread that pins memory
    ITERATOR = "iterator"  # the thread that iterates over the loader
    PROCESS = "process"  # any thread of the same process


class FramePattern(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One name by which a wait or a thread is recognised; exactly one of the three is given."""

    sources: Sources
    native: str = ""  # a function
    python: str = ""  # the end of a file's path, or a folder, which ends with /
    function: str = ""  # in that file; without it, any
    thread: str = ""  # the name that the kernel shows
    note: str = ""


class WaitLoop(FramePattern, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A wait that PyTorch or Python repeats for ever, each time with a short timeout."""

    seconds: float  # the longest timeout of its own
    ended_by: EndedBy


class WaitKnowledge:
    """Recognises stacks. Frames are "function (file:line)", innermost first."""

    def __init__(
        self, signs: Mapping[str, tuple[FramePattern, ...]], loops: tuple[WaitLoop, ...]
    ) -> None:
        self.signs, self.loops = signs, loops
        self._names = {table: _Names(found) for table, found in signs.items()}
        self._loops = [(_Names([loop]), loop) for loop in loops]

    def device(self, native: Sequence[str]) -> int | None:
        """Return the place of the innermost function that waits for a device, if there is one."""
        names = self._names["device"]
        return next((i for i, frame in enumerate(native) if names.in_native(frame)), None)

    def helper(self, name: str, frames: Sequence[str], native: Sequence[str]) -> bool:
        """Return whether a thread only serves: it never decides whether the training goes on."""
        return name in self._names["helper"].threads or self._names["helper"].found(frames, native)

    def collective(self, frames: Sequence[str], native: Sequence[str]) -> bool:
        """Return whether a thread waits for the other ranks."""
        return self._names["collective"].found(frames, native)

    def loop(self, frames: Sequence[str], native: Sequence[str]) -> tuple[EndedBy, float] | None:
        """Recognise a wait that its own loop repeats for ever; return who ends it, and its period.

        The period is the longest timeout of the loop itself, in seconds; a longer one was given by
        the user. Only frames of the standard library may be below the loop's own: whatever the
        user's code waits for there, the loop does not repeat it.
        """
        for names, loop in self._loops:
            own = frames[: _innermost_but_for_python(frames)]
            if names.found(own if loop.python else (), native if loop.native else ()):
                return loop.ended_by, loop.seconds
        return None

    def person(self, frames: Sequence[str]) -> bool:
        """Return whether a thread waits for somebody at a debugger."""
        return self._names["person"].found(frames, ())


class _Names:
    """The names of one kind, ready to be searched for."""

    def __init__(self, signs: Iterable[FramePattern]) -> None:
        self.threads = frozenset(sign.thread for sign in signs if sign.thread)
        native = [re.escape(sign.native) for sign in signs if sign.native]
        self._native = re.compile(rf"(?<!\w)(?:{'|'.join(native)})(?!\w)") if native else None
        files = [_file_pattern(sign) for sign in signs if sign.python]
        self._python = re.compile("|".join(files)) if files else None

    def in_native(self, frame: str) -> bool:
        return self._native is not None and self._native.search(frame) is not None

    def found(self, frames: Sequence[str], native: Sequence[str]) -> bool:
        python = self._python
        return any(self.in_native(frame) for frame in native) or (
            python is not None and any(python.search(_forward(frame)) for frame in frames)
        )


def _innermost_but_for_python(frames: Sequence[str]) -> int:
    """Return how many frames from the innermost on are Python's, and the one that called them."""
    own = (i for i, frame in enumerate(frames) if not PYTHONS_OWN.search(_forward(frame)))
    return next(own, len(frames)) + 1


def load_waits(data: DataFolder | None = None) -> WaitKnowledge:
    data = data or DataFolder()
    document = data.document("waits.toml", *TABLES, "loop")
    signs = {
        table: data.listed(data.entries(document, table, FramePattern), _wrong_with)
        for table in TABLES
    }
    loops = data.listed(data.entries(document, "loop", WaitLoop), _wrong_with)
    return WaitKnowledge(signs, loops)


def _wrong_with(sign: FramePattern) -> Problems:
    names = [name for name in (sign.native, sign.python, sign.thread) if name]
    if len(names) != 1:
        yield f"{names}", "native, python or thread, one of them"


def _file_pattern(sign: FramePattern) -> str:
    """Write the pattern of a frame, "function (folders/file:line)"."""
    file = re.escape(sign.python) + ("" if sign.python.endswith("/") else r"[:)]")
    return (
        rf"\b{re.escape(sign.function)} \((?:[^()]*/)?{file}" if sign.function else rf"[(/]{file}"
    )


def _forward(frame: str) -> str:
    return frame.replace("\\", "/")
