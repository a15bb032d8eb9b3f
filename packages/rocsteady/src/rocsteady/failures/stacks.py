"""Where threads stand: frames, how knowledge names them, and the stacks of a process tree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rocsteady.hangs.frames import FRAME, forward, is_users_file
from rocsteady.hangs.values import Heartbeat, Snapshot, ThreadSeen, Wait
from rocsteady.model import Value


class StackFrame(NamedTuple):
    """One frame: of Python, with its file, or native, with none or with its library."""

    function: str
    file: str = ""
    source: str = ""
    users: bool = False  # it is the user's own code

    @property
    def python(self) -> bool:
        """Whether it is Python's own code."""
        return self.file.endswith((".py", ">"))

    def __str__(self) -> str:
        return f"{self.function} ({self.file})" if self.file else self.function


class ThreadPosition(Value, frozen=True, kw_only=True):
    """Where one thread stands, innermost first."""

    process: int
    thread: str  # its name
    frames: tuple[StackFrame, ...]
    trains: bool  # the thread that the training runs in
    wait: Wait | None = None  # None: nothing is known but the frames
    stands: bool = True  # it was in the same place at every snapshot
    rank: int | None = None


class Pattern:
    """A frame as knowledge writes it: "function (end/of/file.py)", or either of the two alone.

    "(libnccl)" is any function of that library.
    """

    def __init__(self, text: str) -> None:
        function, _, file = text.partition("(") if text.endswith(")") else (text, "", "")
        self._function, self._file = function.strip(), file.rstrip(")")
        end = "" if self._function.endswith("::") else r"(?!\w)"
        self._name = re.compile(rf"(?<!\w){re.escape(self._function)}{end}")

    def fits(self, frame: StackFrame) -> bool:
        """Return whether this is the frame."""
        if self._file.startswith("lib"):  # a library, of any version
            return f"{self._file}.so" in f"{frame.file} {frame.function}"
        if self._file:
            path = f"/{frame.file}"
            inside = self._file.endswith("/") and f"/{self._file}" in path
            if not inside and not path.endswith(f"/{self._file}"):
                return False
            return not self._function or frame.function.split(".")[-1] == self._function
        return self._name.search(frame.function) is not None

    def in_line(self, line: str) -> bool:
        """Return whether a line of some text speaks of this frame."""
        named = not self._function or self._name.search(line) is not None
        return named and (not self._file or self._file in forward(line))


def from_snapshots(
    snapshots: Sequence[Snapshot], heartbeats: Sequence[Heartbeat]
) -> list[ThreadPosition]:
    """Return the frames of each thread that were there in every snapshot."""
    beats = {beat.pid: beat for beat in heartbeats}
    seen: dict[tuple[int, int], list[ThreadSeen]] = {}
    for snapshot in snapshots:
        for process in snapshot.processes:
            for thread in process.threads:
                if thread.frames is not None:
                    seen.setdefault((process.pid, thread.tid), []).append(thread)
    stacks = []
    for (pid, tid), threads in seen.items():
        beat = beats.get(pid)
        samples = [_frames(thread) for thread in threads]
        stands = len({next((f for f in sample if f.file), None) for sample in samples}) == 1
        stacks.append(
            ThreadPosition(
                process=pid,
                thread=threads[-1].name,
                frames=_common(samples),
                trains=tid == (beat.thread if beat else pid),
                wait=threads[-1].wait,
                stands=stands,
                rank=beat.rank if beat else None,
            )
        )
    return stacks


def _frames(thread: ThreadSeen) -> tuple[StackFrame, ...]:
    native = [StackFrame(function) for function in thread.native or ()]
    found = (FRAME.fullmatch(frame) for frame in thread.frames or ())
    return (*native, *(_python(frame["function"], frame["file"]) for frame in found if frame))


def _python(function: str, file: str) -> StackFrame:
    return StackFrame(function, forward(file), users=is_users_file(file))


def _common(samples: Sequence[tuple[StackFrame, ...]]) -> tuple[StackFrame, ...]:
    """Keep the frames that every sample of Python's own has; native ones may not be in each."""
    sets = [{frame for frame in sample if frame.file} for sample in samples]
    natives = next((s for s in reversed(samples) if s and not s[0].file), ())
    lasting = [f for f in samples[-1] if f.file and all(f in others for others in sets)]
    return (*(frame for frame in natives if not frame.file), *lasting)
