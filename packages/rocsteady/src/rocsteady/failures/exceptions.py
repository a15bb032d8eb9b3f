"""Names Python exceptions: by their type, by their words, by the files they went through."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rocsteady.doctor.knowledge.failures import Signature, Where, words_of
from rocsteady.failures.candidate import Candidate, kind_by_numbers, place_in
from rocsteady.failures.stacks import Pattern, StackFrame
from rocsteady.failures.symptoms import Symptoms
from rocsteady.failures.tracebacks import Traceback, find_tracebacks, is_own, place_of_traceback
from rocsteady.hangs.frames import forward
from rocsteady.hangs.heartbeat_pages import RaisedException
from rocsteady.model import Certainty, FailureKind, Role

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
_OF_TENSORS = re.compile(
    r"(?i)shape|\bsizes?\b|dimension|\bdims?\b|dtype|scalar type|same device|on device|\bgrad"
    r"|backward|in-?place|index|out of (?:range|bounds)|must match|mat1|state_dict|channels|view\b"
    r"|element 0|tensors?\b|contiguous|expected (?:input|object|more|a |all|to )|argument|keyword"
    r"|not implemented|weights?\b|batch|leaf variable|forked subprocess|bootstrapping phase"
    r"|not callable|attribute|module"
)
_PLACE = re.compile(r"^(?P<file>.*?):\d+ (?P<function>.*)$")


class ExceptionRules:
    """Names exceptions by the signatures of exceptions and of lines."""

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
            at = log.find(_first_line(raised))
            found.append(self._of_process(raised, at if at >= 0 else len(log) + index, symptoms))
        return found

    def of_log(self, log: str, traces: Sequence[Traceback], symptoms: Symptoms) -> list[Candidate]:
        """Name the tracebacks that a log has."""
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
        if (
            named.kind in (FailureKind.UNKNOWN, FailureKind.SCRIPT_ERROR) and traces
        ):  # it may be because of another
            cause = self._of_chain(raised.traceback, traces, symptoms)
            named = cause if cause and cause.kind != FailureKind.UNKNOWN else named
        return named._replace(
            at=at,
            place=named.place or _without_line(raised.place),
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
        for exceptional in self._exceptions:
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
    if trace.type not in _VAGUE:
        return True
    if _DEVICE_ERROR.search(trace.message[:500]):
        return False
    raised_there = trace.frames and is_own(trace.frames[-1])
    return bool(raised_there or _OF_TENSORS.search(trace.message[:1000]))


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


def _first_line(raised: RaisedException) -> str:
    name = raised.type.removeprefix("builtins.")
    return f"{name}: {raised.message}".split("\n", 1)[0][:200]


def _without_line(place: str) -> str:
    found = _PLACE.match(place)
    return f"{found['file']} {found['function']}" if found else place
