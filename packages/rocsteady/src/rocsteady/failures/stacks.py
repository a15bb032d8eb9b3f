"""Where threads stand: frames, how knowledge names them, and the stacks of a process tree.

They are taken from snapshots, or read in a text: what py-spy, gdb, faulthandler or rocsteady
printed of a program that hung. The traceback of one that was interrupted is such a stack, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rocsteady.failures.tracebacks import EXCEPTION_LINE, unlabelled
from rocsteady.hangs.frames import FRAME, forward, is_users_file
from rocsteady.hangs.values import Heartbeat, Snapshot, ThreadSeen, Wait
from rocsteady.model import Value

LINE_LENGTH = 1000  # characters of a line
MAX_FRAMES = 20_000

_PROCESS = re.compile(r"[Pp]rocess (?P<pid>\d+)(?::| \S+ \(child of \d+\))")
_THREAD = re.compile(
    r"Thread (?:0x)?[0-9a-fA-F]+ \((?:idle|active)[^)]*\)(?:: \"(?P<spy>[^\"]*)\")?"
    r"|(?P<current>Current thread|Thread) 0x[0-9a-f]+ (?:\[(?P<fault>[^\]]*)\] )?\(most recent"
    r"|Thread (?P<gdb>\d+) \([^\"]*(?:\"(?P<command>[^\"]*)\")?.*:$|TID \d+:$"
    r"|thread \d+ (?P<ours>.*?): state (?P<state>\w), .*? waits for (?P<wait>.*)"
    r"|(?P<bt>Traceback) \(most recent call first\)"
)
_TRACEBACK = re.compile(r"(?:\^C|Original )?Traceback \(most recent call last\)")
_FILE = re.compile(r'File:? "(?P<file>[^"]+)", line \d+,? in (?P<function>[^\s(]+)')
_GDB = re.compile(r"#\d+\s+(?:0x[0-9a-f]+ (?:in )?)?(?P<function>\S.*)")
_GDB_PYTHON = re.compile(
    r"#\d+ Frame 0x[0-9a-f]+, for file (?P<file>.+?), line \d+, in (?P<function>\S+)"
)
_RECORDED = re.compile(r"#\d+ (?P<function>\S+) from (?P<file>\S+\.py):\d+")  # by c10d
_PY_SPY = re.compile(r"(?P<function>\S.*?) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)$")
_SHORT = re.compile(r"(?P<function>[\w.<>]+) \((?P<file>[\w./\\<> -]+(?:\.py|>)):\d+\)")
_LIBRARY = re.compile(r"(?P<function>[\w:~<>*&, ()]+?)\s+\((?P<file>lib[\w.+-]*\.so[\d.]*)\)")
_NATIVE = re.compile(r"\[native\] (?P<function>.+)")


class StackFrame(NamedTuple):
    """One frame: of Python, with its file, or native, with none or with its library."""

    function: str
    file: str = ""
    source: str = ""
    users: bool = False  # it is the user's own code

    @property
    def python(self) -> bool:
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


def read_dump(text: str) -> list[ThreadPosition]:
    """Return the stacks of a dump; none if the text has none."""
    dump = _DumpReader()
    for line in filter(None, text.split("\n")):
        rank, rest = unlabelled(line[:LINE_LENGTH])
        dump.take(rest.strip(), rank, indented=rest[:1].isspace())
    return dump.stacks()


def is_dump(text: str) -> bool:
    """Return whether a text is somebody's look at a program that does not end."""
    if "Fatal Python error" in text or "Segmentation fault" in text or "SIGSEGV" in text:
        return False
    return any(
        mark in text for mark in ("(idle", "(active", "(most recent call first)", "\n#0 ", "#1  0x")
    ) and ("Thread " in text or "thread " in text or "#0 " in text)


class _DumpedThread:
    """One stack as it is read; of a traceback the innermost frame comes last."""

    def __init__(self, process: int, name: str = "", *, rank: int | None = None) -> None:
        self.process, self.name, self.rank = process, name, rank
        self.main = self.outermost_first = False
        self.wait: Wait | None = None
        self.frames: list[StackFrame] = []

    def stack(self, *, trains: bool) -> ThreadPosition:
        frames = reversed(self.frames) if self.outermost_first else self.frames
        return ThreadPosition(
            process=self.process,
            thread=self.name,
            frames=tuple(frames),
            trains=trains,
            wait=self.wait,
            rank=self.rank,
        )


class _DumpReader:
    def __init__(self) -> None:
        self._process = 0
        self._threads: list[_DumpedThread] = []
        self._count = 0

    def take(self, line: str, rank: int | None, *, indented: bool) -> None:
        if process := _PROCESS.match(line):
            self._process = int(process["pid"])
        elif _TRACEBACK.match(line):
            self._begin_traceback(rank)
        elif thread := _THREAD.match(line):
            self._begin(thread, rank)
        elif frame := _GDB_PYTHON.match(line) or _RECORDED.match(line):
            self._add(frame["function"], frame["file"])
        elif frame := _GDB.match(line):
            if line.startswith("#0 ") and self._threads and self._threads[-1].frames:
                self._threads.append(_DumpedThread(self._process, rank=rank))
            self._open(rank)
            self._add(frame["function"])
        elif frame := _FILE.match(line) or _SHORT.fullmatch(line) or _LIBRARY.fullmatch(line):
            self._open(rank)
            self._add(frame["function"], frame["file"])
        elif self._threads and not self._take_frame(line, indented=indented):
            self._take_other(line)

    def stacks(self) -> list[ThreadPosition]:
        threads = [thread for thread in self._threads if thread.frames]
        by_process: dict[int, list[_DumpedThread]] = {}
        for thread in threads:
            by_process.setdefault(thread.process, []).append(thread)
        trains = {_main(mine) for mine in by_process.values()}
        return [thread.stack(trains=thread in trains) for thread in threads]

    def _take_frame(self, line: str, *, indented: bool) -> bool:
        """Take a frame that is one only inside of a stack."""
        if frame := _NATIVE.match(line):
            self._add(frame["function"])
            return True
        frame = _PY_SPY.fullmatch(line) if indented else None
        if frame is None or self._threads[-1].outermost_first:
            return False
        self._add(frame["function"], frame["file"])
        return True

    def _take_other(self, line: str) -> None:
        """Take the source of the last frame, or the exception that a traceback ended by."""
        last = self._threads[-1]
        ended = EXCEPTION_LINE.match(line) if last.outermost_first else None
        if ended:
            if ended["type"] != "KeyboardInterrupt":  # it does not tell where the program stands
                self._threads.pop()
        elif last.frames and last.frames[-1].python and not last.frames[-1].source:
            last.frames[-1] = last.frames[-1]._replace(source=line)

    def _open(self, rank: int | None) -> None:
        """Begin a stack that has no head."""
        if not self._threads:
            self._threads.append(_DumpedThread(self._process, rank=rank))

    def _begin_traceback(self, rank: int | None) -> None:
        """Begin the traceback of a process; each process has its own."""
        self._process -= 1
        thread = _DumpedThread(self._process, rank=rank)
        thread.main = thread.outermost_first = True
        self._threads.append(thread)

    def _begin(self, found: re.Match[str], rank: int | None) -> None:
        name = found["spy"] or found["fault"] or found["command"] or found["ours"] or ""
        if found["current"] == "Current thread":  # that faulthandler was called in
            name = "MainThread"
        mine = [thread for thread in self._threads if thread.process == self._process]
        if name == "MainThread" and any(thread.name == name for thread in mine):
            self._process -= 1  # of another process, which the text does not name
        thread = _DumpedThread(self._process, name, rank=rank)
        thread.main = bool(found["gdb"] == "1" or found["current"] or found["bt"])
        reported = found["wait"] or ""
        thread.wait = next((wait for wait in Wait if reported.startswith(wait.value)), None)
        self._threads.append(thread)

    def _add(self, function: str, file: str = "") -> None:
        self._count += 1
        if self._threads and self._count < MAX_FRAMES:
            users = bool(file) and is_users_file(file, shortened=True)
            self._threads[-1].frames.append(StackFrame(function, forward(file), users=users))


def _main(threads: Sequence[_DumpedThread]) -> _DumpedThread:
    """Return the thread that trains: the one called so, else gdb's first, faulthandler's last."""
    named = [thread for thread in threads if thread.name == "MainThread"]
    main = [thread for thread in threads if thread.main]
    return (named or main[-1:] or list(threads))[0]
