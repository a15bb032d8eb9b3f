"""Everything in an attempt's symptoms that could be its failure, each with its place in time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rocsteady.failures.memory import FULL, kind_of_oom
from rocsteady.failures.stacks import Pattern, Stacked, forward
from rocsteady.failures.symptoms import Raised, Symptoms
from rocsteady.failures.text import Hit, Scanner
from rocsteady.failures.tracebacks import (
    Frame,
    Traceback,
    find_bare,
    find_tracebacks,
    place_of,
    unlabelled,
)
from rocsteady.knowledge.failures import SCRIPT_ERROR, UNKNOWN, Signature, Where, words_of
from rocsteady.vocabulary import Certainty, Role

TOLD = 8000  # characters of a traceback that are kept: its end
MATCHED = 4000  # characters of an exception that patterns see
RECOVERED = 20  # lines of progress after which an error was not the end
PLENTY = 1 << 30  # bytes of free disk at which a failed write was not for lack of room

OWN = frozenset(  # types that are the script's own mistake, whatever their message quotes
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

_RANK = re.compile(r"\[rank(\d+)\]|\[default(\d+)\]|\[Rank (\d+)\]|local_rank: (\d+)")
_PROGRESS = re.compile(
    r"(?i)\bloss\w*['\"]?\s*[:=]?\s*[\d.]+|\d ?(?:it|ex|samples|tokens)/s|\ds/it|\d%\|"
)
_LOSS = re.compile(r"(?i)loss\w*['\"]?\s*[:=]?\s*(?:tensor\()?[-+]?\d")
_DEVICE_ERROR = re.compile(
    r"\b(?:HIP|CUDA|NCCL|RCCL|MIOpen|miopen|rocBLAS|HIPBLAS|CUBLAS|HSA|ROCm|cuDNN|CUDNN|cuBLAS)\w*"
    r"[ _]?(?:error|warning|WARN|STATUS)"
)
_PLACE = re.compile(r"^(?P<file>.*?):\d+ (?P<function>.*)$")


class Candidate(NamedTuple):
    """One thing that could be the failure."""

    kind: str
    role: Role
    certainty: Certainty
    at: float  # later is larger
    seen: tuple[str, ...]
    signature: str = ""
    alone: bool = True
    place: str = ""
    rank: int | None = None
    traceback: str = ""


class Candidates(NamedTuple):
    """All of them, by where they were found."""

    kernel: list[Candidate]
    raised: list[Candidate]
    log: list[Candidate]
    numbers: list[Candidate]  # losses that are no numbers: the last resort


class Reader:
    """Finds candidates by the signatures of texts and exceptions."""

    def __init__(self, signatures: Iterable[Signature]) -> None:
        signatures = tuple(signatures)
        self._scanner = Scanner(signatures)
        order = {Role.ROOT: 0, Role.CASCADE: 1, Role.CONFIRMATION: 2}
        sure = {Certainty.CERTAIN: 0, Certainty.LIKELY: 1, Certainty.UNKNOWN: 2}
        self._exceptions = [
            _Exceptional(it)
            for it in sorted(
                (it for it in signatures if it.where in (Where.LOG, Where.EXCEPTION)),
                key=lambda it: (order[it.role], not it.exceptions, sure[it.certainty]),
            )
        ]

    def read(self, log: str, kernel: str, symptoms: Symptoms) -> Candidates:
        """Find all candidates."""
        traces = find_tracebacks(log)
        hits = [hit for hit in self._scanner.scan(log) if not _within(hit.at, traces)]
        over = _recovered_before(log, [*(hit.at for hit in hits), *(t.start for t in traces)])
        bare = [] if traces else find_bare(log, traces)
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
        chains = _chains([trace for trace in (*traces, *bare) if trace.end >= over])
        return Candidates(
            kernel=[_from_hit(hit, symptoms) for hit in kernel_hits],
            raised=self._raised(log, symptoms),
            log=[
                *(_from_hit(hit, symptoms) for hit in lines if hit not in numbers),
                *(it for chain in chains if (it := self._of_chain(log, chain, symptoms))),
            ],
            numbers=[_from_hit(hit, symptoms) for hit in numbers if not _finite_after(log, hit)],
        )

    def _raised(self, log: str, symptoms: Symptoms) -> list[Candidate]:
        found = []
        for index, raised in enumerate(symptoms.raised):
            trace = _as_traceback(raised)
            named = self._named(trace, raised.bases, symptoms)
            first = trace.text.split("\n", 1)[0][:200]
            at = log.find(first) if first else -1
            found.append(
                named._replace(
                    at=at if at >= 0 else len(log) + index,
                    place=named.place or _without_line(raised.place),
                    traceback=(raised.traceback or trace.text)[-TOLD:],
                )
            )
        return found

    def _of_chain(
        self, log: str, chain: Sequence[Traceback], symptoms: Symptoms
    ) -> Candidate | None:
        """Name a chain by the first of its exceptions that has a name of its own, else the last."""
        if all(trace.ignored for trace in chain):
            return None
        told = log[chain[0].start : chain[-1].end][-TOLD:]
        named = [self._named(trace, (), symptoms) for trace in chain if not trace.wraps]
        named = named or [self._named(chain[-1], (), symptoms)]
        special = [it for it in named if it.kind not in (SCRIPT_ERROR, UNKNOWN)]
        roots = [it for it in special if it.role is Role.ROOT]
        own = [it for it in named if it.kind == SCRIPT_ERROR]
        chosen = (roots or own[-1:] or special or named)[0]
        if chain[-1].thread and chosen.kind == SCRIPT_ERROR:
            chosen = chosen._replace(role=Role.CASCADE, alone=False)
        places = [place for trace in reversed(chain) if (place := place_of(trace.frames))]
        return chosen._replace(traceback=told, place=chosen.place or next(iter(places), ""))

    def _named(self, trace: Traceback, bases: Sequence[str], symptoms: Symptoms) -> Candidate:
        text = trace.text[:MATCHED]
        if trace.type == "AssertionError" and not trace.message and trace.frames:
            text = f"{text}: {trace.frames[-1].source}"  # its line is all it says
        words = words_of(text)
        kind, signature, place = SCRIPT_ERROR, None, ""
        for exceptional in self._exceptions:
            found = exceptional.match(trace, (trace.type, *bases), text, words)
            if found is not None:
                signature = exceptional.signature
                kind, place = _refined(signature.failure, text, symptoms), found
                break
        else:
            if trace.type == "SystemExit" or _DEVICE_ERROR.search(text[:500]):
                kind = UNKNOWN
        return Candidate(
            kind=kind,
            role=signature.role if signature else Role.ROOT,
            certainty=signature.certainty if signature else Certainty.CERTAIN,
            at=trace.end,
            seen=(trace.text.split("\n", 1)[0][:300].rstrip(),),
            signature=signature.id if signature else "",
            alone=signature.alone if signature else True,
            place=place or place_of(trace.frames),
            rank=trace.rank,
        )


class _Exceptional:
    """A signature, ready to be held against exceptions."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self._literals = [words_of(literal) for literal in signature.literals]
        self._pattern = re.compile(signature.pattern) if signature.pattern else None
        self._types = frozenset(signature.exceptions)
        self._frames = [Pattern(frame) for frame in signature.frames]

    def match(
        self, trace: Traceback, types: Sequence[str], text: str, words: frozenset[bytes]
    ) -> str | None:
        """Return the place that the pattern tells, maybe ""; None if this is another exception."""
        if self._types and not any(_is(it, self._types) for it in types):
            return None
        if not self._types and not self._frames and trace.type in OWN:
            return None
        if self._frames and not any(
            pattern.fits(Stacked(frame.function, forward(frame.file)))
            for frame in trace.frames
            for pattern in self._frames
        ):
            return None
        if self._pattern is None:
            return ""
        if not any(literal <= words for literal in self._literals):
            return None
        found = self._pattern.search(text)
        return None if found is None else _told_place(found)


def _is_a_mere_number(signature: Signature) -> bool:
    return signature.failure == "nan-loss" and signature.certainty is not Certainty.CERTAIN


def rank_first_seen(log: str) -> int | None:
    """Return the rank that torchrun saw fail first, by the clock."""
    at = log.find("Root Cause (first observed failure)")
    found = re.search(r"rank\s*: (\d+)", log[at : at + 600]) if at >= 0 else None
    return int(found[1]) if found else None


def _is(type_: str, types: frozenset[str]) -> bool:
    short = type_.removeprefix("builtins.")
    return short in types or short.partition("(")[0] in types


def _from_hit(hit: Hit, symptoms: Symptoms) -> Candidate:
    rank, line = unlabelled(hit.line)
    told = _RANK.search(hit.line)
    if rank is None and told:
        rank = int(next(group for group in told.groups() if group))
    return Candidate(
        kind=_refined(hit.signature.failure, hit.line, symptoms),
        role=hit.signature.role,
        certainty=hit.signature.certainty,
        at=hit.at,
        seen=(line.strip()[:300],),
        signature=hit.signature.id,
        alone=hit.signature.alone,
        place=_told_place(hit.found),
        rank=rank,
    )


def _refined(kind: str, text: str, symptoms: Symptoms) -> str:
    """Tell kinds apart that only numbers tell apart."""
    if kind == FULL:
        return kind_of_oom(text)
    if kind == "disk-full" and "StreamWriter" in text and (symptoms.disk_free or 0) > PLENTY:
        return "disk-error"
    return kind


def _told_place(found: re.Match[str]) -> str:
    return (found.groupdict().get("place") or "").strip()


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


def _within(at: int, traces: Iterable[Traceback]) -> bool:
    return any(trace.start <= at < trace.end for trace in traces)


def _recovered_before(log: str, places: Sequence[int]) -> int:
    """Return the place before which whatever went wrong was not the end: work went on after it."""
    if not places:
        return 0
    earliest, end, count = min(places), len(log), 0
    while end > earliest:
        start = log.rfind("\n", 0, end) + 1
        if _PROGRESS.search(log[start : min(end, start + 400)]):
            count += 1
            if count >= RECOVERED:
                return start
        end = start - 1
    return 0


def _finite_after(log: str, hit: Hit) -> bool:
    """Tell whether a loss was a number again later."""
    after = hit.at + len(hit.line)
    return _LOSS.search(log, after, after + (1 << 16)) is not None


def _as_traceback(raised: Raised) -> Traceback:
    frames = []
    for trace in find_tracebacks(raised.traceback)[-1:]:
        frames = list(trace.frames)
    place = _PLACE.match(raised.place)
    if not frames and place:
        frames = [Frame(place["file"], 0, place["function"])]
    return Traceback(
        type=raised.type.removeprefix("builtins."), message=raised.message, frames=tuple(frames)
    )


def _without_line(place: str) -> str:
    found = _PLACE.match(place)
    return f"{found['file']} {found['function']}" if found else place
