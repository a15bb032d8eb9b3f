"""Python's tracebacks, found in what processes printed.

Ranks print into each other, and each launcher puts its own label before a line; a traceback is
followed through the lines that have its label. Frames drawn in boxes (rich) are read as well, and
so is what faulthandler wrote of a crash before the process died.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rocsteady.hangs.frames import forward, is_users_file, place
from rocsteady.model import Value

HEADER = "Traceback (most recent call last)"
MAX_LINES = 600  # that one traceback may have, those of other ranks in between included
MAX_TRACEBACKS = 64  # tracebacks read from the beginning of a text, and as many from its end
MESSAGE_LINES = 10
LINE_LENGTH = 2000  # characters of a line that are looked at
FOREIGN = 30  # lines of others that may stand before the exception
# Characters at the end in which an exception without its traceback is looked for.
BARE_WITHIN = 16_000

CRASH_HEADS = ("Fatal Python error: ", "Windows fatal exception: ")
CRASH_LENGTH = 1 << 16  # characters of a crash that are read

LABEL = re.compile(
    r"\s*(?:\[rank(?P<rank>\d+)\]:? ?|\[default(?P<default>\d+)\]:|\[\d+,(?P<mpi>\d+)\]<std\w+>:"
    r"|(?P<srun>\d{1,5}):(?: |$)|\((?:\w[\w.]* )?pid=\d+[^)]{0,80}\) ?)"
)
_FRAME = re.compile(
    r'\s*File "(?P<file>[^"\n]{1,500})", line (?P<line>\d+)(?:, in (?P<function>.+))?$'
)
_BOXED = re.compile(r"[│|] (?P<file>\S[^│]*?):(?P<line>\d+) in (?P<function>\S+)")
_NOTEBOOK = re.compile(r"(?P<type>[A-Za-z_][\w.]*)\s{2,}$")
_CELL = re.compile(
    r"(?:File )?(?P<file>(?:~|/|[A-Z]:|<ipython|\S+\.py|Cell )\S*?(?: In\s?\[\d+\])?)"
    r"(?::\d+)?(?:, line \d+|,? in (?P<function>[\w.<>]+).*)$"
)
_TYPE = r"[A-Za-z_][\w]*(?:\.[\w<>]+)*"
_EXCEPTION = re.compile(rf"(?=\w*[A-Z.])(?P<type>{_TYPE}(?:\([\w.]+\))?)(?:: ?(?P<message>.*))?$")
EXCEPTION_LINE = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failed|Failure|Exceeded"
    r"|Unsupported|Empty|Timeout|Disconnected|IncompleteRead|BadZipFile|gaierror|NotFound"
    r"|Iteration)|[A-Za-z_]\w*(?:\.\w+)+(?:error|timeout))(?:: ?(?P<message>.*))?$"
)
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_WORKER = re.compile(r"Caught (?P<type>\w+) in (?:DataLoader worker|replica|pin memory thread)")
_END_OF_MESSAGE = re.compile(
    r"\s*$|[WEIF]\d{4} |wandb: |srun: |rocsteady: |slurmstepd: |ERROR\b|Process \S+:|\[\d{4}-"
    r"|\d{4}-\d\d-\d\d|Exception |Original |-- Process |"
    rf"{re.escape(_CHAINED[0])}|{re.escape(_CHAINED[1])}|\[W|\[E|terminate called|Aborted|Killed"
)


_CRASH_THREAD = re.compile(r"\s*(Current t|T)hread 0x[0-9a-f]+ .*\(most recent call first\)")
_CRASH_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')


class Frame(NamedTuple):
    file: str
    line: int
    function: str
    source: str = ""


class Traceback(Value, frozen=True, kw_only=True):
    """One exception and the way it took, outermost frame first."""

    type: str
    message: str  # with the lines that belong to it
    frames: tuple[Frame, ...] = ()
    start: int = 0  # its place in the text
    end: int = 0
    rank: int | None = None
    chained: bool = False  # to the one before it
    wraps: bool = False  # the next one, which is the real one
    thread: str = ""  # not the main one
    ignored: bool = False  # Python says so itself

    @property
    def text(self) -> str:
        """The line that a person looks for."""
        return f"{self.type}: {self.message}" if self.message else self.type


def find_tracebacks(text: str) -> list[Traceback]:
    """Return those of the beginning and those of the end, in the order of the text."""
    found: list[Traceback] = []
    for start in occurrences(text, HEADER, MAX_TRACEBACKS):
        if not found or start >= found[-1].end:
            found += _read(text, start, found[-1].end if found else 0)
    return found


def find_bare(text: str, taken: Iterable[Traceback]) -> list[Traceback]:
    """Return exceptions at the end of a text whose tracebacks are not shown."""
    spans = [(trace.start, trace.end) for trace in taken]
    found = []
    for at, line in _lines(text, max(0, len(text) - BARE_WITHIN)):
        rank, rest = unlabelled(line)
        exception = EXCEPTION_LINE.match(rest.lstrip())
        if exception and not any(start <= at < end for start, end in spans):
            found.append(
                Traceback(
                    type=exception["type"],
                    message=exception["message"] or "",
                    start=at,
                    end=at + len(line),
                    rank=rank,
                )
            )
    return found


def is_own(frame: Frame) -> bool:
    """Return whether a frame is of the user's own code, and not of what is installed."""
    return is_users_file(frame.file)


def place_of_traceback(frames: Iterable[Frame]) -> str:
    """Name the innermost frame of the user's own code: "train.py train_step"."""
    own = [frame for frame in frames if is_own(frame)]
    return place(own[-1].function, own[-1].file) if own else ""


def line_of(text: str) -> str:
    """Return the innermost line of the user's own code in a traceback: "train.py:12 in step"."""
    traces = find_tracebacks(text)
    own = [frame for trace in traces for frame in trace.frames if is_own(frame)]
    if not own:
        return ""
    where = f"{_name(own[-1].file)}:{own[-1].line}"
    return where if own[-1].function in ("", "<module>") else f"{where} in {own[-1].function}"


def crash_line(log: str) -> str:
    """Return where Python was, "train.py:12 in step"; "" if that is not known.

    The thread that crashed counts. One of a library has no Python frames: then the main thread
    does, which is the last that the dump has.
    """
    at = max(log.rfind(head) for head in CRASH_HEADS)
    if at < 0:
        return ""
    stacks: list[list[Frame]] = []
    crashed: list[Frame] = []
    for line in log[at : at + CRASH_LENGTH].splitlines():
        rest = unlabelled(line)[1]
        if thread := _CRASH_THREAD.match(rest):
            stacks.append([])
            crashed = stacks[-1] if thread[1] == "Current t" else crashed
        elif stacks and (found := _CRASH_FRAME.match(rest)):
            stacks[-1].append(Frame(found["file"], int(found["line"]), found["function"]))
    frames = next((stack for stack in (crashed, *reversed(stacks)) if stack), [])
    own = next(filter(is_own, frames), frames[0] if frames else None)
    if own is None:
        return ""
    return f"{_name(own.file)}:{own.line} in {own.function}"


def unlabelled(line: str) -> tuple[int | None, str]:
    """Take the label of a launcher off a line, and return the rank that it tells."""
    label = LABEL.match(line)
    if not label:
        return None, line
    rank = next((value for value in label.groups() if value), None)
    return None if rank is None else int(rank), line[label.end() :]


def _name(path: str) -> str:
    return forward(path).rpartition("/")[2]


def occurrences(text: str, word: str, most: int) -> list[int]:
    """Return where a word stands: so many places from the beginning, and as many from the end."""
    first: list[int] = []
    at = text.find(word)
    while at >= 0 and len(first) < most:
        first.append(at)
        at = text.find(word, at + 1)
    last: list[int] = []
    at = text.rfind(word)
    while at > (first[-1] if first else -1) and len(last) < most:
        last.append(at)
        at = text.rfind(word, 0, at)
    return [*first, *reversed(last)]


def _lines(text: str, start: int) -> Iterator[tuple[int, str]]:
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield start, text[start : min(end, start + LINE_LENGTH)]
        start = end + 1


def _read(text: str, header: int, after: int) -> list[Traceback]:
    """Read the traceback below a header; none if its exception cannot be found."""
    start = text.rfind("\n", max(0, header - LINE_LENGTH), header) + 1
    before = text[start:header]
    rank, before = unlabelled(before)
    label = text[start:header].removesuffix(before)
    boxed = "─" in before or "--" in before
    reader = _Reader(label, before, boxed=boxed)
    lines = _lines(text, text.find("\n", header) + 1 or len(text))
    end = header + len(HEADER)
    for count, (at, line) in enumerate(lines):
        if count > MAX_LINES or reader.take(line):
            break
        end = at + len(line)
    if not reader.type:
        return []
    lead = text[max(after, start - 300) : start]
    thread = re.search(r"Exception in thread (\S+)[^\n]*:\s*$", lead)
    return [
        Traceback(
            type=reader.type,
            message="\n".join(reader.message),
            frames=tuple(reader.frames),
            start=start,
            end=end,
            rank=rank,
            chained=any(words in lead for words in _CHAINED),
            wraps=bool(_WORKER.match(reader.message[0])),
            thread=thread[1] if thread else "",
            ignored=bool(
                re.search(r"(?:Exception ignored in[^\n]*|--- Logging error ---)\s*$", lead)
            ),
        )
    ]


class _Reader:
    def __init__(self, label: str, before: str, *, boxed: bool) -> None:
        self._label, self._boxed = label.strip(), boxed
        notebook = _NOTEBOOK.match(before)
        self._awaited = notebook["type"] if notebook else ""
        if notebook:
            before = ""
        stamp = before.strip().removesuffix("Original").removesuffix("traceback :").strip()
        self._stamp = (
            re.compile(re.sub(r"\d+", r"\\d+", re.escape(stamp)) + " ?")
            if stamp and not boxed
            else None
        )
        self._indent = len(before) - len(before.lstrip())
        self._foreign = 0
        self.frames: list[Frame] = []
        self.type = ""
        self.message: list[str] = []

    def take(self, line: str) -> bool:
        """Take one line, and tell whether the traceback ended before it."""
        _, rest = unlabelled(line)
        if line.removesuffix(rest).strip() != self._label:
            return bool(self.type)  # of another rank
        if self._stamp and (stamp := self._stamp.match(rest)):
            rest = rest[stamp.end() :]
        rest = rest[min(self._indent, len(rest) - len(rest.lstrip())) :].rstrip()
        if self.type:
            return self._continue(rest)
        if self._awaited:
            self._take_notebook(rest)
        elif self._boxed:
            self._take_boxed(rest)
        else:
            self._take_plain(rest)
        return self._foreign > FOREIGN

    def _take_boxed(self, rest: str) -> None:
        frame = _BOXED.search(rest)
        if frame:
            self.frames.append(Frame(frame["file"], int(frame["line"]), frame["function"]))
        elif rest.startswith(("╰", "+--")):
            self._boxed = False

    def _take_notebook(self, rest: str) -> None:
        """Read the frames of IPython, until the exception that its head has named."""
        frame = _CELL.match(rest)
        if frame:
            self.frames.append(Frame(frame["file"], 0, frame["function"] or ""))
        elif rest.startswith("-") and self.frames and "> " in rest:
            source = rest.partition("> ")[2].lstrip("0123456789 ")
            self.frames[-1] = self.frames[-1]._replace(source=source[:300])
        elif rest == self._awaited or rest.startswith(f"{self._awaited}: "):
            self.type, self.message = self._awaited, [rest[len(self._awaited) + 2 :]]

    def _take_plain(self, rest: str) -> None:
        frame = _FRAME.match(rest)
        if frame:
            self.frames.append(Frame(frame["file"], int(frame["line"]), frame["function"] or ""))
        elif rest[:1].isspace() or not rest:
            self._take_source(rest.strip())
        elif exception := (_EXCEPTION if not self._foreign else EXCEPTION_LINE).match(rest):
            self.type, self.message = exception["type"], [exception["message"] or ""]
        else:
            self._foreign += 1

    def _take_source(self, source: str) -> None:
        if self.frames and source and not self.frames[-1].source:
            self.frames[-1] = self.frames[-1]._replace(source=source[:300])

    def _continue(self, rest: str) -> bool:
        """Add a line to the message, unless it is over."""
        if len(self.message) > MESSAGE_LINES or HEADER in rest or _END_OF_MESSAGE.match(rest):
            return True
        self.message.append(rest)
        return False
