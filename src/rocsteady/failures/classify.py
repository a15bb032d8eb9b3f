"""Names the failure of an attempt: the first root in time, never what only follows from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from rocsteady.failures.candidate import Candidate
from rocsteady.failures.candidate_search import Candidates, Reader, rank_first_seen
from rocsteady.failures.crashes import crash_line
from rocsteady.failures.exit_status import Ends, has_failed, signal_name
from rocsteady.failures.hangs import (
    BY_PHASE,
    HANG,
    IN_COLLECTIVE,
    IN_LOADER,
    Hang,
    Hangs,
    place_of,
)
from rocsteady.failures.signature_search import cleaned
from rocsteady.failures.stack_dumps import is_dump, read_dump
from rocsteady.failures.stacks import from_snapshots
from rocsteady.failures.symptoms import Symptoms
from rocsteady.failures.tracebacks import line_of
from rocsteady.knowledge.failures import (
    SCRIPT_ERROR,
    UNKNOWN,
    FailureKind,
    FailureKnowledge,
    Whose,
)
from rocsteady.knowledge.waits import WaitKnowledge, load_waits
from rocsteady.model import Certainty, Failure, Fingerprint, Role

WENT_DOWN, OUT_OF_MEMORY = "machine-went-down", "oom-host"
INTERRUPTED, PEER_DIED, STOPPED = "interrupted", "peer-died", "stopped-by-rocsteady"
BUS_ERROR, SHARED_MEMORY = "bus-error", "shm-too-small"
CRASHES = ("segfault", "abort", BUS_ERROR)
KILLED_BY = 9
# Lines that end a process whatever Python says besides.
FATAL = ("memory-access-fault", "gpu-hang", "no-code-for-gpu", "gpu-hardware-error")
# How a process notices that its GPU is gone or wedged; the kernel tells more.
TELL_LITTLE = (
    "gpu-hang",
    "gpu-launch-failure",
    "hsa-out-of-resources",
    "hip-invalid-value",
    "blas-error",
    "blas-handle-failed",
    "miopen-failure",
)
# Whose failures leave the rest of a run waiting; others are told by the script, and it goes on.
HANGING = (Whose.DEVICE, Whose.MACHINE, Whose.MEMORY, Whose.RANKS, Whose.LOADER)
DUMP = 1 << 20  # characters at the end of a log in which stacks are looked for
SEEN = 6  # lines that are kept
LONG = 1 << 16  # characters of a text that is searched for names of frames
LAST_WORDS = 600  # characters at the end of a log

_WORKERS = re.compile(r"(?i)DataLoader worker|num_workers\W{1,4}[1-9]|in worker\b|/dev/shm")


class Classifier:
    """Names failures by what is known of them."""

    def __init__(self, knowledge: FailureKnowledge, waits: WaitKnowledge | None = None) -> None:
        self._kinds = knowledge.kinds
        self._order = {kind: index for index, kind in enumerate(knowledge.kinds)}
        self._reader = Reader(knowledge.signatures)
        self._hangs = Hangs(knowledge.signatures, waits or load_waits())
        self._ends = Ends(knowledge.signatures)
        self._sources = {it.id: it.sources for it in knowledge.signatures}

    def name(self, symptoms: Symptoms, *, recovered: bool = False) -> Failure:
        """Name the failure; "unknown" is an honest answer.

        With ``recovered`` it may be one after which work went on: what somebody asks about, not
        what ended a run.
        """
        log = cleaned(symptoms.log)
        kernel = cleaned("\n".join(symptoms.kernel))
        found = self._reader.read(log, kernel, symptoms, recovered=recovered)
        if symptoms.signal == KILLED_BY:  # so the crash that the kernel told of is another's
            found.kernel[:] = [it for it in found.kernel if it.kind not in CRASHES]
        chosen = _stopped(found, symptoms) or self._choose(log, found, symptoms)
        if chosen is None:
            chosen = _unknown(log, found, symptoms)
        elif chosen.kind == BUS_ERROR and _shares_memory(log, symptoms):
            chosen = chosen._replace(kind=SHARED_MEMORY)
        elif chosen.kind in CRASHES and not chosen.place:
            chosen = chosen._replace(place=_crash_place(log))
        failure = self._failure(chosen, found, symptoms)
        line = crash_line(log[-DUMP:]) if chosen.kind in CRASHES else ""
        return replace(failure, line=line) if line else failure

    def _choose(self, log: str, found: Candidates, symptoms: Symptoms) -> Candidate | None:
        failed = has_failed(symptoms)
        kernel = self._first(found.kernel, failed=failed)
        if symptoms.machine_went_down:
            told = kernel and self._whose(kernel) is Whose.MACHINE
            return kernel if told else _plain(WENT_DOWN, "another boot of the machine")
        hang = self._hang(log, symptoms)
        if hang and hang.kind == HANG:
            hang = next(iter(_hints(log, found)), hang)
        root = self._root(log, found, failed=failed)
        if root and hang and not self._ended_by(root, hang):
            root = None
        if kernel and (root is None or self._explains(kernel, root)):
            return kernel
        if root:
            return root
        if symptoms.oom_kills and (failed or found.in_log):
            return _plain(OUT_OF_MEMORY, f"its cgroup counted {symptoms.oom_kills} oom_kill")
        if hang and symptoms.hung:
            return hang
        last = [
            *self._following(found, symptoms, failed=failed),
            *([hang] if hang else ()),
            *found.numbers[-1:],
            *(() if failed else _mere_signs(found)),
        ]
        return last[0] if last else None

    def _following(self, found: Candidates, symptoms: Symptoms, *, failed: bool) -> list[Candidate]:
        """Return what usually follows from another failure, the most telling first."""
        told = (*found.raised, *found.in_log, *found.kernel)
        follows = [it for it in told if it.role is Role.CASCADE and it.kind != UNKNOWN]
        follows = [it for it in (*follows, *self._ends.name(symptoms)) if it.alone or failed]
        return sorted(follows, key=lambda it: (self._order[it.kind], it.at))

    def _root(self, log: str, found: Candidates, *, failed: bool) -> Candidate | None:
        """Return the first root: of what ended a process, of exceptions, of other lines."""
        raised, exceptions, lines = (
            [
                it
                for it in candidates
                if it.role is Role.ROOT and it.kind != UNKNOWN and (it.alone or failed)
            ]
            for candidates in (_uninterrupted(found.raised), found.exceptions, found.lines)
        )
        first = rank_first_seen(log)
        fatal = [it for it in lines if it.kind in FATAL]
        before = min((it.at for it in found.in_log if _came_first(it)), default=float("inf"))
        own = [it for it in (*exceptions, *lines) if it.at < before]
        for roots in (raised, fatal, _special(exceptions), _special(lines), own):
            of_first = [it for it in roots if first is not None and it.rank == first]
            if roots:
                return self._told_before(min(of_first or roots, key=lambda it: it.at), lines)
        return None

    def _told_before(self, root: Candidate, lines: Sequence[Candidate]) -> Candidate:
        """Return the line that told of the same thing before an exception did, if one did."""
        if root.kind == SCRIPT_ERROR:
            return root
        same = [it for it in lines if it.at < root.at and self._whose(it) is self._whose(root)]
        return min([root, *same], key=lambda it: it.at)

    def _first(self, kernel: Sequence[Candidate], *, failed: bool) -> Candidate | None:
        """Return the first root that the kernel told; hardware goes before what it does."""
        roots = [it for it in kernel if it.role is Role.ROOT and (it.alone or failed)]
        hard = [it for it in roots if self._whose(it) is Whose.MACHINE and it.alone]
        return next(iter(hard or [it for it in roots if it.alone] or roots), None)

    def _explains(self, kernel: Candidate, root: Candidate) -> bool:
        """Tell whether what the kernel told is why the process failed."""
        if self._whose(kernel) is Whose.MACHINE:
            return self._whose(root) is Whose.DEVICE
        return self._whose(kernel) is Whose.DEVICE and root.kind in TELL_LITTLE

    def _ended_by(self, root: Candidate, hang: Candidate) -> bool:
        """Tell whether a run that hangs does so because of this error."""
        return self._whose(root) in HANGING or hang.kind in (IN_COLLECTIVE, IN_LOADER)

    def _hang(self, log: str, symptoms: Symptoms) -> Candidate | None:
        """Return where it hangs: by stacks, else by the phase that it told last."""
        end = log[-DUMP:]
        if not symptoms.hung and not is_dump(end):
            return None
        stacks = from_snapshots(symptoms.snapshots, symptoms.heartbeats) or read_dump(end)
        hang = self._hangs.name(stacks)
        if symptoms.hung and not symptoms.phase and (hang is None or hang.kind == HANG):
            hang = self._hangs.name_text(end[-LONG:]) or hang
        if hang is None:
            if not symptoms.hung:
                return None
            kind = BY_PHASE.get(symptoms.phase, HANG)
            told = f"no progress, phase {symptoms.phase}" if symptoms.phase else "no progress"
            return _plain(kind, told)._replace(certainty=Certainty.LIKELY)
        return _from_hang(hang, several=len(symptoms.snapshots) > 1)

    def _whose(self, candidate: Candidate) -> Whose:
        return self._kinds[candidate.kind].whose

    def _failure(self, chosen: Candidate, found: Candidates, symptoms: Symptoms) -> Failure:
        kind = self._kinds[chosen.kind]
        others = [*found.kernel, *found.raised, *found.in_log]
        same = [it.seen[0] for it in others if it.kind == chosen.kind and it.seen]
        return Failure(
            kind=kind.id,
            title=kind.title,
            words=_words(kind, symptoms),
            certainty=Certainty.UNKNOWN if kind.id == UNKNOWN else chosen.certainty,
            fingerprint=Fingerprint(
                kind=kind.id, place=chosen.place, step=symptoms.step, start=symptoms.start
            ),
            seen=tuple(dict.fromkeys(map(_printable, (*chosen.seen, *same))))[:SEEN],
            line=line_of(chosen.traceback) if kind.id == SCRIPT_ERROR else "",
            signature=chosen.signature,
            rank=chosen.rank,
            also=tuple(
                dict.fromkeys(
                    (it.kind, self._role_beside(it, chosen))
                    for it in others
                    if it.kind not in (chosen.kind, UNKNOWN)
                )
            ),
            traceback=chosen.traceback if kind.id in (SCRIPT_ERROR, UNKNOWN) else "",
            sources=tuple(dict.fromkeys((*kind.sources, *self._sources.get(chosen.signature, ())))),
        )

    def _role_beside(self, other: Candidate, chosen: Candidate) -> Role:
        if other.role is not Role.ROOT:
            return other.role
        alike = self._whose(other) is self._whose(chosen)
        return Role.CONFIRMATION if alike else Role.CASCADE


def _stopped(found: Candidates, symptoms: Symptoms) -> Candidate | None:
    """Return the line by which a text says that rocsteady ended it: all after it follows."""
    lines = [it for it in found.lines if it.kind == STOPPED]
    return lines[-1] if lines and not has_failed(symptoms) else None


def _hints(log: str, found: Candidates) -> list[Candidate]:
    """Return what the last lines before a silence say of what was under way."""
    end = len(log.rstrip()) - LAST_WORDS
    return [it for it in reversed(found.lines) if it.kind.startswith("hang-") and it.at >= end]


def _uninterrupted(raised: Sequence[Candidate]) -> Sequence[Candidate]:
    """Leave out what broke because the processes had been asked to end."""
    ends = [index for index, it in enumerate(raised) if it.kind == INTERRUPTED]
    return raised[: ends[0]] if ends else raised


def _came_first(candidate: Candidate) -> bool:
    """Tell what a script's error after it follows from: a rank that is lost is told after all."""
    return candidate.role is Role.CASCADE and candidate.kind not in (UNKNOWN, PEER_DIED)


def _special(candidates: Iterable[Candidate]) -> list[Candidate]:
    return [it for it in candidates if it.kind != SCRIPT_ERROR]


def _mere_signs(found: Candidates) -> list[Candidate]:
    """Return what is common on healthy machines too: it counts if nothing is known of the run."""
    return [it for it in found.kernel if it.alone and it.role is Role.CONFIRMATION]


def _printable(line: str) -> str:
    return "".join(mark if mark.isprintable() else " " for mark in line).strip()


def _shares_memory(log: str, symptoms: Symptoms) -> bool:
    """Tell whether shared memory may be why: there are loader workers, or /dev/shm is full."""
    return symptoms.loader_workers or symptoms.shared_full or _WORKERS.search(log) is not None


def _crash_place(log: str) -> str:
    """Return where Python was when it crashed, if faulthandler told."""
    if "(most recent call first)" not in log:
        return ""
    crashed = (stack for stack in read_dump(log[-DUMP:]) if stack.trains)
    return next(map(place_of, crashed), "")


def _from_hang(hang: Hang, *, several: bool) -> Candidate:
    return Candidate(
        kind=hang.kind,
        role=Role.ROOT,
        certainty=Certainty.CERTAIN if several and hang.signature else Certainty.LIKELY,
        at=0,
        seen=hang.seen,
        signature=hang.signature.id if hang.signature else "",
        place=hang.place,
        rank=hang.rank,
    )


def _plain(kind: str, seen: str) -> Candidate:
    return Candidate(kind=kind, role=Role.ROOT, certainty=Certainty.CERTAIN, at=0, seen=(seen,))


def _unknown(log: str, found: Candidates, symptoms: Symptoms) -> Candidate:
    """Keep what was seen of a failure that has no name: its exception, else its last words."""
    vague = [it for it in (*found.raised, *found.exceptions) if not it.signature]
    if vague:
        return vague[0]._replace(kind=UNKNOWN)
    if not has_failed(symptoms):
        return _plain(UNKNOWN, "")._replace(seen=())
    last = [line.strip()[:300] for line in log[-DUMP // 64 :].split("\n") if line.strip()][-3:]
    ended = [] if symptoms.exit_code is None else [f"exit code {symptoms.exit_code}"]
    if symptoms.signal:
        ended = [f"ended by {signal_name(symptoms.signal)}"]
    return _plain(UNKNOWN, "")._replace(seen=(*last, *ended))


def _words(kind: FailureKind, symptoms: Symptoms) -> str:
    """Say what a failure means; of the GPU and of other ranks only where there may be some."""
    told = (kind.words, kind.gpu_words * symptoms.gpu, kind.rank_words * symptoms.ranks)
    return " ".join(" ".join(told).split())
