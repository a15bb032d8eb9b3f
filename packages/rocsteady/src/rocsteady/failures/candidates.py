"""Everything in an attempt's symptoms that could be its failure, each with its place in time.

Lines are named by patterns; exceptions by their type, by their words, by the files they went
through; ends by signals and exit codes. Numbers decide where words are not enough: three kinds of
running out of device memory say "out of memory", for the device is full, what PyTorch holds is in
pieces, or enough of the device is free and the driver refused all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rocsteady.doctor.knowledge.failures import Signature, Where, words_of
from rocsteady.failures.signature_search import Hit, Scanner
from rocsteady.failures.stacks import Pattern, StackFrame
from rocsteady.failures.symptoms import Symptoms
from rocsteady.failures.tracebacks import (
    Traceback,
    find_bare,
    find_tracebacks,
    is_own,
    place_of_traceback,
    unlabelled,
)
from rocsteady.hangs.frames import forward
from rocsteady.hangs.heartbeat_pages import RaisedException
from rocsteady.model import Certainty, FailureKind, Role
from rocsteady.wording import signal_name

PLENTY_OF_DISK = 1 << 30  # bytes of free disk at which a failed write was not for lack of room
EXIT_CODES = 2**32  # Windows gives codes below this, Python may show them as negative
SHARE_FREE = 0.25  # of the device, from which on it is not full
SPARE_BYTES = 1 << 30  # bytes free beyond what was asked for, from which on it is not full either
SHARE_HELD = 0.10  # of the device, held by PyTorch and not in use, from which on it is in pieces

_UNITS = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = r"(\d[\d.]*) (bytes|B|KiB|MiB|GiB|TiB)"
_ASKED = re.compile(rf"Tried to allocate {_SIZE}")
_CAPACITY = re.compile(rf"total capaci?ty of {_SIZE}|{_SIZE} total capacity")
_FREE = re.compile(rf"of which {_SIZE} is free|{_SIZE} free")
_HELD = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_RESERVED = re.compile(rf"{_SIZE} (?:reserved in total by PyTorch|cached)")
_ALLOCATED = re.compile(rf"{_SIZE} already allocated")
_OTHER = re.compile(r"Process \d+ has (\d+(?:\.\d+)?) (bytes|KiB|MiB|GiB|TiB) memory in use")
# Lines of progress after which an error was not the end: of a run that ended well, of one whose end
# is not known, and of one that failed, whose other ranks go on for a while.
RECOVERED_WELL, RECOVERED_PERHAPS, RECOVERED = 2, 5, 20

_RANK = re.compile(r"\[rank(\d+)\]|\[default(\d+)\]|\[Rank (\d+)\]|local_rank: (\d+)")
_PROGRESS = re.compile(
    r"(?i)\bloss\w*['\"]?\s*[:=]?\s*[\d.]+|\d ?(?:it|ex|samples|tokens)/s|\ds/it|\d%\|"
)
_LOSS = re.compile(r"(?im)^(?!wandb:).*loss\w*['\"]?\s*[:=]?\s*(?:tensor\()?[-+]?\d")
_WARNING = re.compile(r"\bWarning:|\bWARNING\b|^\S{0,40}\[W\d*[ \]]|^W\d{4} |\bwarnings?\.warn\b")

TRACEBACK_LENGTH = 8000  # characters of a traceback that are kept: its end
MATCHED_LENGTH = 4000  # characters of an exception that patterns see

OWN_MISTAKES = frozenset(  # types that are the script's own mistake, whatever their message quotes
    (
        "IndentationError",
        "IndexError",
        "KeyError",
        "NameError",
        "RecursionError",
        "SyntaxError",
        "TypeError",
        "UnboundLocalError",
        "UnicodeDecodeError",
        "ZeroDivisionError",
    )
)

_DEVICE_ERROR = re.compile(
    r"\b(?:HIP|CUDA|NCCL|RCCL|MIOpen|miopen|rocBLAS|HIPBLAS|CUBLAS|HSA|ROCm|cuDNN|CUDNN|cuBLAS)\w*"
    r"[ _]?(?:error|warning|WARN|STATUS)"
)
_VAGUE = ("RuntimeError", "OSError", "SystemError", "Exception", "torch.AcceleratorError")
_TOOLS = re.compile(  # whoever wrote the script, a mistake in here is not theirs
    r"-packages/(?:amdsmi|bitsandbytes|flash_attn|triton|torch/_(?:dynamo|inductor))/"
)
_OF_TENSORS = re.compile(
    r"(?i)shape|\bsizes?\b|dimension|\bdims?\b|dtype|scalar type|same device|on device|\bgrad"
    r"|backward|in-?place|index|out of (?:range|bounds)|must match|mat1|state_dict|channels|view\b"
    r"|element 0|tensors?\b|contiguous|expected (?:input|object|more|a |all|to )|argument|keyword"
    r"|not implemented|weights?\b|batch|leaf variable|forked subprocess|bootstrapping phase"
    r"|not callable|attribute|module"
)
_PLACE = re.compile(r"^(?P<file>.*?):\d+ (?P<function>.*)$")


class Candidate(NamedTuple):
    kind: str
    role: Role = Role.ROOT
    certainty: Certainty = Certainty.CERTAIN
    at: float = 0.0  # later is larger
    seen: tuple[str, ...] = ()
    signature: str = ""
    alone: bool = True
    place: str = ""
    rank: int | None = None
    traceback: str = ""
    bare: bool = False  # an exception without its traceback
    by_end: bool = False  # only how the process ended tells of it
    title: str = ""  # in place of that of its kind
    waits_for_ranks: bool = False  # it hangs in a collective


def kind_by_numbers(kind: str, text: str, symptoms: Symptoms) -> str:
    """Return the kind that it is by the numbers in its text and of the machine."""
    if kind == FailureKind.OOM_DEVICE:
        capacity = _size(_CAPACITY, text)
        if capacity and max(symptoms.gpu_taken, _of_others(text)) >= SHARE_FREE * capacity:
            return FailureKind.GPU_TAKEN
        return kind_of_oom(text)
    if kind == FailureKind.DISK_FULL and symptoms.file_limit:
        return FailureKind.FILE_SIZE_LIMIT
    guessed = not re.search(r"(?i)no space|quota|disk is full|os error 28|\[Errno 28\]", text)
    if kind == FailureKind.DISK_FULL and guessed and (symptoms.disk_free or 0) > PLENTY_OF_DISK:
        return FailureKind.STORAGE_UNAVAILABLE
    return kind


def _of_others(text: str) -> float:
    """Return the bytes that the text says other processes hold.

    Without a word of "this process", the number may be its own: in a container, by another name.
    """
    if "this process has" not in text:
        return 0.0
    return max((float(size) * _UNITS[unit] for size, unit in _OTHER.findall(text)), default=0.0)


def place_in(found: re.Match[str]) -> str:
    """Return what a pattern ties the failure to: a kernel, a library, a device."""
    return (found.groupdict().get("place") or "").strip()


def ends_of(signatures: Iterable[Signature], symptoms: Symptoms) -> list[Candidate]:
    """Name the ways in which a process ended, by signals and exit codes."""
    number, code = symptoms.ended_by, symptoms.exit_code
    seen = f"exit code {code}" if number is None else f"ended by {signal_name(number)}"
    return [
        Candidate(
            kind=it.failure,
            role=it.role,
            certainty=it.certainty,
            at=float("inf"),
            seen=(seen,),
            by_end=number is not None,
            signature=it.id,
        )
        for it in signatures
        if it.where is Where.EXIT
        if number in it.signals or (code is not None and code % EXIT_CODES in it.codes)
    ]


def kind_of_oom(message: str) -> str:
    """Return the kind; a message without numbers says no more than that memory was out."""
    asked, capacity, free = (_size(it, message) for it in (_ASKED, _CAPACITY, _FREE))
    if asked is None or not capacity:
        return FailureKind.OOM_DEVICE
    free = free or 0
    if free > asked and (free >= SHARE_FREE * capacity or free >= 1.25 * asked + SPARE_BYTES):
        return FailureKind.OOM_WHILE_FREE
    held = _size(_HELD, message)
    if held is None:
        reserved, allocated = _size(_RESERVED, message), _size(_ALLOCATED, message)
        held = reserved - allocated if reserved is not None and allocated is not None else 0
    return (
        FailureKind.OOM_FRAGMENTATION
        if held + free >= asked and held >= SHARE_HELD * capacity
        else FailureKind.OOM_DEVICE
    )


def _size(pattern: re.Pattern[str], message: str) -> float | None:
    found = pattern.search(message)
    if not found:
        return None
    number, unit = (group for group in found.groups() if group)
    try:
        return float(number) * _UNITS[unit]
    except ValueError:
        return None


class Candidates(NamedTuple):
    kernel: list[Candidate]
    raised: list[Candidate]
    exceptions: list[Candidate]
    lines: list[Candidate]
    numbers: list[Candidate]  # losses that are no numbers: the last resort

    @property
    def in_log(self) -> list[Candidate]:
        """What the log has, lines and exceptions, in the order of time."""
        return sorted([*self.lines, *self.exceptions], key=lambda it: it.at)


class TextRules:
    def __init__(self, signatures: Iterable[Signature]) -> None:
        signatures = tuple(signatures)
        self._scanner = Scanner(signatures)
        self._exceptions = ExceptionRules(signatures)

    def read(
        self, log: str, kernel: str, symptoms: Symptoms, *, recovered: bool = False
    ) -> Candidates:
        """Find all candidates; with ``recovered`` also those after which work went on."""
        traces = find_tracebacks(log)
        hits = [
            hit
            for hit in self._scanner.scan(log)
            if not any(trace.start <= hit.at < trace.end for trace in traces)
        ]
        places = [*(hit.at for hit in hits), *(trace.start for trace in traces)]
        over = 0 if recovered else _recovered_before(log, places, _patience(symptoms))
        bare = find_bare(log, traces)
        covered = {trace.start for trace in bare}
        lines = [
            hit
            for hit in hits
            if hit.signature.where is Where.LOG and hit.at >= over and hit.at not in covered
        ]
        numbers = [hit for hit in lines if _is_a_mere_number(hit.signature)]
        kernel_hits = [
            *(hit for hit in self._scanner.scan(kernel) if hit.signature.where is Where.KERNEL),
            *(hit for hit in hits if hit.signature.where is Where.KERNEL),
        ]
        ending = [trace for trace in (*traces, *bare) if trace.end >= over]
        return Candidates(
            kernel=[_from_hit(hit, symptoms) for hit in kernel_hits],
            raised=self._exceptions.of_processes(log, symptoms),
            exceptions=self._exceptions.of_log(log, ending, symptoms),
            lines=[_from_hit(hit, symptoms) for hit in lines if hit not in numbers],
            numbers=[_from_hit(hit, symptoms) for hit in numbers if not _finite_after(log, hit)],
        )


def rank_first_seen(log: str) -> int | None:
    """Return the rank that torchrun saw fail first, by the clock."""
    at = log.find("Root Cause (first observed failure)")
    found = re.search(r"rank\s*: (\d+)", log[at : at + 600]) if at >= 0 else None
    return int(found[1]) if found else None


def _is_a_mere_number(signature: Signature) -> bool:
    return (
        signature.failure == FailureKind.NAN_LOSS and signature.certainty is not Certainty.CERTAIN
    )


def _from_hit(hit: Hit, symptoms: Symptoms) -> Candidate:
    rank, line = unlabelled(hit.line)
    label = _RANK.search(hit.line)
    if rank is None and label:
        rank = int(next(group for group in label.groups() if group))
    return Candidate(
        kind=kind_by_numbers(hit.signature.failure, hit.line, symptoms),
        role=_role(hit),
        certainty=hit.signature.certainty,
        at=hit.at,
        seen=(line.strip()[:300],),
        signature=hit.signature.id,
        alone=hit.signature.alone,
        place=place_in(hit.found),
        rank=rank,
    )


def _role(hit: Hit) -> Role:
    """Return what a line is; what calls itself a warning was not the end by itself."""
    role = hit.signature.role
    warns = hit.signature.where is Where.LOG and _WARNING.search(hit.line[:300])
    return Role.CASCADE if role is Role.ROOT and warns else role


def _patience(symptoms: Symptoms) -> int:
    if symptoms.exit_code == 0:
        return RECOVERED_WELL
    failed = symptoms.exit_code or symptoms.signal or symptoms.hung or symptoms.raised
    return RECOVERED if failed else RECOVERED_PERHAPS


def _recovered_before(log: str, places: Sequence[int], patience: int) -> int:
    """Return the place before which whatever went wrong was not the end: work went on after it."""
    if not places:
        return 0
    earliest, end, count = min(places), len(log), 0
    while end > earliest:
        start = log.rfind("\n", 0, end) + 1
        if _PROGRESS.search(log[start : min(end, start + 400)]):
            count += 1
            if count >= patience:
                return start
        end = start - 1
    return 0


def _finite_after(log: str, hit: Hit) -> bool:
    """Return whether a loss was a number again later."""
    after = hit.at + len(hit.line)
    return _LOSS.search(log, after, after + (1 << 16)) is not None


class ExceptionRules:
    def __init__(self, signatures: Iterable[Signature]) -> None:
        order = {Role.ROOT: 0, Role.CASCADE: 1, Role.CONFIRMATION: 2}
        sure = {Certainty.CERTAIN: 0, Certainty.LIKELY: 1, Certainty.UNKNOWN: 2}
        self._exceptions = [
            _ExceptionRule(it)
            for it in sorted(
                (it for it in signatures if it.where in (Where.LOG, Where.EXCEPTION)),
                key=lambda it: (order[it.role], _breadth(it), sure[it.certainty]),
            )
        ]

    def of_processes(self, log: str, symptoms: Symptoms) -> list[Candidate]:
        """Name the exceptions that processes reported to have ended them."""
        found = []
        for index, raised in enumerate(symptoms.raised):
            name = raised.type.removeprefix("builtins.")
            at = log.find(f"{name}: {raised.message}".split("\n", 1)[0][:200])
            found.append(self._of_process(raised, at if at >= 0 else len(log) + index, symptoms))
        return found

    def of_log(self, log: str, traces: Sequence[Traceback], symptoms: Symptoms) -> list[Candidate]:
        chains = _chains(traces)
        found = [it for chain in chains if (it := self._of_chain(log, chain, symptoms))]
        reliable = [it for it in found if it.kind != FailureKind.UNKNOWN and not it.bare]
        if not reliable:
            return found
        # Where there are tracebacks, a line that looks like an exception is something else.
        return [it for it in found if not it.bare or it.kind != FailureKind.SCRIPT_ERROR]

    def _of_process(self, raised: RaisedException, at: float, symptoms: Symptoms) -> Candidate:
        traces = find_tracebacks(raised.traceback)
        trace = Traceback(
            type=raised.type.removeprefix("builtins."),
            message=raised.message,
            frames=traces[-1].frames if traces else (),
        )
        named = self._named(trace, raised.bases, symptoms)
        vague = named.kind in (FailureKind.UNKNOWN, FailureKind.SCRIPT_ERROR)
        if vague and traces:  # it may be because of another
            cause = self._of_chain(raised.traceback, traces, symptoms)
            named = cause if cause and cause.kind != FailureKind.UNKNOWN else named
        found = _PLACE.match(raised.place)
        place = f"{found['file']} {found['function']}" if found else raised.place
        return named._replace(
            at=at,
            place=named.place or place,
            traceback=(raised.traceback or trace.text)[-TRACEBACK_LENGTH:],
            bare=False,
        )

    def _of_chain(
        self, log: str, chain: Sequence[Traceback], symptoms: Symptoms
    ) -> Candidate | None:
        """Name a chain by its first exception that has a name; of the script's own, the last."""
        text = log[chain[0].start : chain[-1].end][-TRACEBACK_LENGTH:]
        named = [self._named(trace, (), symptoms) for trace in chain if not trace.wraps]
        named = named or [self._named(chain[-1], (), symptoms)]
        known = [it for it in named if it.kind != FailureKind.UNKNOWN]
        roots = [it for it in known if it.kind != FailureKind.SCRIPT_ERROR and it.role is Role.ROOT]
        only_own = [it for it in known if it.kind == FailureKind.SCRIPT_ERROR] == known
        chosen = (roots or (known[-1:] if only_own else known) or named)[0]
        if chain[-1].thread and chosen.kind == FailureKind.SCRIPT_ERROR:
            chosen = chosen._replace(role=Role.CASCADE, alone=False)
        places = [place for trace in reversed(chain) if (place := place_of_traceback(trace.frames))]
        if all(trace.ignored for trace in chain):
            if chosen.kind in (FailureKind.SCRIPT_ERROR, FailureKind.UNKNOWN):
                return None
            chosen = chosen._replace(alone=False)
        bare = not any(trace.frames for trace in chain)
        place = chosen.place or next(iter(places), "")
        return chosen._replace(traceback=text, place=place, bare=bare)

    def _named(self, trace: Traceback, bases: Sequence[str], symptoms: Symptoms) -> Candidate:
        text = trace.text[:MATCHED_LENGTH]
        if trace.type == "AssertionError" and not trace.message and trace.frames:
            text = f"{text}: {trace.frames[-1].source}"  # its line is all it says
        words = words_of(text)
        kind, signature, place = FailureKind.SCRIPT_ERROR, None, ""
        for exceptional in () if _raises_interrupt(trace) else self._exceptions:
            found = exceptional.match(trace, (trace.type, *bases), text, words)
            if found is not None:
                signature = exceptional.signature
                kind, place = kind_by_numbers(signature.failure, text, symptoms), found
                break
        else:
            if not _is_the_scripts(trace):
                kind = FailureKind.UNKNOWN
        return Candidate(
            kind=kind,
            role=signature.role if signature else Role.ROOT,
            certainty=signature.certainty if signature else Certainty.CERTAIN,
            at=trace.end,
            seen=(trace.text.split("\n", 1)[0][:300].rstrip(),),
            signature=signature.id if signature else "",
            alone=signature.alone if signature else True,
            place=place or place_of_traceback(trace.frames),
            rank=trace.rank,
        )


class _ExceptionRule:
    """A signature, ready to be held against exceptions."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self._literals = [words_of(literal) for literal in signature.literals]
        self._pattern = re.compile(signature.pattern) if signature.pattern else None
        self._types = frozenset(signature.exceptions)
        self._types |= {name.rpartition(".")[2] for name in signature.exceptions}  # as notebooks do
        self._frames = [Pattern(frame) for frame in signature.frames]

    def match(
        self, trace: Traceback, types: Sequence[str], text: str, words: frozenset[bytes]
    ) -> str | None:
        """Return the place that the pattern tells, maybe ""; None if this is another exception."""
        if self._types and not any(_is(it, self._types) for it in types):
            return None
        if not self._types and (
            trace.type == "KeyboardInterrupt" or (not self._frames and trace.type in OWN_MISTAKES)
        ):
            return None
        if self._frames and not any(
            pattern.fits(StackFrame(frame.function, forward(frame.file)))
            for frame in trace.frames
            for pattern in self._frames
        ):
            return None
        if self._pattern is None:
            return ""
        if not any(literal <= words for literal in self._literals):
            return None
        found = self._pattern.search(text)
        return None if found is None else place_in(found)


def _breadth(signature: Signature) -> int:
    """Order signatures of exceptions: a type and its words, a type, words."""
    if not signature.exceptions:
        return 2
    return 0 if signature.pattern or signature.frames else 1


def _is_the_scripts(trace: Traceback) -> bool:
    """Return whether an exception without a name is the script's own mistake.

    Types such as KeyError are. Those that libraries use for everything are only if the script
    raised them itself, or if they speak of its tensors: to end a run for good, one must be sure.
    """
    if trace.frames and _TOOLS.search(trace.frames[-1].file.replace("\\", "/")):
        return False
    if trace.type not in _VAGUE:
        return True
    if _DEVICE_ERROR.search(trace.message[:500]):
        return False
    raised_there = trace.frames and is_own(trace.frames[-1])
    return bool(raised_there or _OF_TENSORS.search(trace.message[:1000]))


def _raises_interrupt(trace: Traceback) -> bool:
    """Return whether the script raises KeyboardInterrupt; a handler of a signal is not called."""
    own = bool(trace.frames) and is_own(trace.frames[-1])
    if not own or "raise KeyboardInterrupt" not in trace.frames[-1].source:
        return False
    *before, last = trace.frames
    return not before or f"{last.function}(" in before[-1].source


def _is(type_: str, types: frozenset[str]) -> bool:
    short = type_.removeprefix("builtins.")
    return short in types or short.partition("(")[0] in types


def _chains(traces: Sequence[Traceback]) -> Iterator[list[Traceback]]:
    """Put together what was raised while another was handled, or in another process for it."""
    chain: list[Traceback] = []
    for trace in sorted(traces, key=lambda it: it.start):
        if chain and not (trace.chained or chain[-1].wraps):
            yield chain
            chain = []
        chain.append(trace)
    if chain:
        yield chain
