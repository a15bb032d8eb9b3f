"""Everything in an attempt's symptoms that could be its failure, each with its place in time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rocsteady.doctor.knowledge.failures import Signature, Where
from rocsteady.failures.candidate import Candidate, kind_by_numbers, place_in
from rocsteady.failures.exceptions import ExceptionRules
from rocsteady.failures.signature_search import Hit, Scanner
from rocsteady.failures.symptoms import Symptoms
from rocsteady.failures.tracebacks import Traceback, find_bare, find_tracebacks, unlabelled
from rocsteady.model import Certainty, FailureKind, Role

# Lines of progress after which an error was not the end: of a run that ended well, of one whose end
# is not known, and of one that failed, whose other ranks go on for a while.
RECOVERED_WELL, RECOVERED_PERHAPS, RECOVERED = 2, 5, 20

_RANK = re.compile(r"\[rank(\d+)\]|\[default(\d+)\]|\[Rank (\d+)\]|local_rank: (\d+)")
_PROGRESS = re.compile(
    r"(?i)\bloss\w*['\"]?\s*[:=]?\s*[\d.]+|\d ?(?:it|ex|samples|tokens)/s|\ds/it|\d%\|"
)
_LOSS = re.compile(r"(?im)^(?!wandb:).*loss\w*['\"]?\s*[:=]?\s*(?:tensor\()?[-+]?\d")
_WARNING = re.compile(r"\bWarning:|\bWARNING\b|^\S{0,40}\[W\d*[ \]]|^W\d{4} |\bwarnings?\.warn\b")


class Candidates(NamedTuple):
    """All of them, by where they were found."""

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
    """Finds candidates by the signatures of texts and exceptions."""

    def __init__(self, signatures: Iterable[Signature]) -> None:
        signatures = tuple(signatures)
        self._scanner = Scanner(signatures)
        self._exceptions = ExceptionRules(signatures)

    def read(
        self, log: str, kernel: str, symptoms: Symptoms, *, recovered: bool = False
    ) -> Candidates:
        """Find all candidates; with ``recovered`` also those after which work went on."""
        traces = find_tracebacks(log)
        hits = [hit for hit in self._scanner.scan(log) if not _within(hit.at, traces)]
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


def _within(at: int, traces: Iterable[Traceback]) -> bool:
    return any(trace.start <= at < trace.end for trace in traces)


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
