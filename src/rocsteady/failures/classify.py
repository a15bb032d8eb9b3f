"""Names the failure of an attempt: the first root in time, never what only follows from it."""

from __future__ import annotations

import signal as signals
from collections.abc import Iterable, Sequence

from rocsteady.failures.candidates import Candidate, Candidates, Reader, rank_first_seen
from rocsteady.failures.dumps import read_dump
from rocsteady.failures.hangs import (
    BY_PHASE,
    HANG,
    IN_COLLECTIVE,
    IN_LOADER,
    Hang,
    Hangs,
    place_of,
)
from rocsteady.failures.stacks import from_looks
from rocsteady.failures.symptoms import Symptoms
from rocsteady.failures.text import cleaned
from rocsteady.knowledge.failures import (
    SCRIPT_ERROR,
    UNKNOWN,
    FailureKnowledge,
    Signature,
    Where,
    Whose,
)
from rocsteady.knowledge.waits import Waits, load_waits
from rocsteady.vocabulary import Certainty, Failure, Fingerprint, Role

WENT_DOWN, OUT_OF_MEMORY = "machine-went-down", "oom-host"
CRASHES = ("segfault", "abort")
SHELL = 128  # what a shell adds to the signal that ended its child
HIGHEST_SIGNAL = 64
DUMP = 1 << 20  # characters at the end of a log in which stacks are looked for
SEEN = 6  # lines that are kept


class Classifier:
    """Names failures by what is known of them."""

    def __init__(self, knowledge: FailureKnowledge, waits: Waits | None = None) -> None:
        self._kinds = knowledge.kinds
        self._order = {kind: index for index, kind in enumerate(knowledge.kinds)}
        self._reader = Reader(knowledge.signatures)
        self._hangs = Hangs(knowledge.signatures, waits or load_waits())
        self._exits = [it for it in knowledge.signatures if it.where is Where.EXIT]
        self._sources = {it.id: it.sources for it in knowledge.signatures}

    def name(self, symptoms: Symptoms) -> Failure:
        """Name the failure; "unknown" is an honest answer."""
        log = cleaned(symptoms.log)
        found = self._reader.read(log, cleaned("\n".join(symptoms.kernel)), symptoms)
        chosen = self._choose(log, found, symptoms)
        if chosen is None:
            chosen = _unknown(log, symptoms)
        elif chosen.kind in CRASHES and not chosen.place:
            chosen = chosen._replace(place=_crash_place(log))
        return self._failure(chosen, found, symptoms)

    def _choose(self, log: str, found: Candidates, symptoms: Symptoms) -> Candidate | None:
        failed = _failed(symptoms)
        kernel = self._first(found.kernel, failed=failed)
        if symptoms.machine_went_down:
            told = kernel and self._whose(kernel) is Whose.MACHINE
            return kernel if told else _plain(WENT_DOWN, "another boot of the machine")
        hang = self._hang(log, symptoms)
        if hang and hang.kind == HANG:
            hang = next((it for it in reversed(found.log) if it.kind.startswith("hang-")), hang)
        root = self._root(log, found, failed=failed)
        if root and hang and not self._ended_by(root, hang):
            root = None
        if kernel and (root is None or self._explains(kernel, root)):
            return kernel
        if root:
            return root
        if symptoms.oom_kills and (failed or found.log):
            return _plain(OUT_OF_MEMORY, f"its cgroup counted {symptoms.oom_kills} oom_kill")
        others = (*found.raised, *found.log, *found.kernel)
        follows = [it for it in others if it.role is Role.CASCADE]
        follows += self._of_exit(symptoms)
        named = [it for it in follows if it.kind != UNKNOWN and (it.alone or failed)]
        return hang or next(
            iter(
                [
                    *sorted(named, key=self._rank_of),
                    *found.numbers[-1:],
                    *_mere_signs(found, failed=failed),
                ]
            ),
            None,
        )

    def _root(self, log: str, found: Candidates, *, failed: bool) -> Candidate | None:
        """Return the first root: of those that ended a process, else of those in the log."""
        for candidates in (found.raised, found.log):
            roots = [
                it
                for it in candidates
                if it.role is Role.ROOT and it.kind != UNKNOWN and (it.alone or failed)
            ]
            special = [it for it in roots if it.kind != SCRIPT_ERROR]
            if candidates is found.log and special:
                roots = special
            first = rank_first_seen(log)
            of_first = [it for it in roots if first is not None and it.rank == first]
            if roots:
                return min(of_first or roots, key=lambda it: it.at)
        return None

    def _first(self, kernel: Sequence[Candidate], *, failed: bool) -> Candidate | None:
        """Return the first root that the kernel told; hardware goes before what it does."""
        roots = [it for it in kernel if it.role is Role.ROOT and (it.alone or failed)]
        hard = [it for it in roots if self._whose(it) is Whose.MACHINE and it.alone]
        return next(iter(hard or [it for it in roots if it.alone] or roots), None)

    def _explains(self, kernel: Candidate, root: Candidate) -> bool:
        """Tell whether what the kernel told is why the process failed."""
        if kernel.kind == root.kind:
            return False
        domain = {Whose.MACHINE: Whose.DEVICE}.get(self._whose(kernel), self._whose(kernel))
        return domain is self._whose(root)

    @staticmethod
    def _ended_by(root: Candidate, hang: Candidate) -> bool:
        """Tell whether a run that hangs does so because of this error."""
        return root.kind != SCRIPT_ERROR or hang.kind in (IN_COLLECTIVE, IN_LOADER)

    def _hang(self, log: str, symptoms: Symptoms) -> Candidate | None:
        """Return where it hangs: by stacks, else by the phase that it told last."""
        end = log[-DUMP:]
        if not symptoms.hung and not _is_dump(end):
            return None
        stacks = from_looks(symptoms.looks, symptoms.heartbeats) or read_dump(end)
        hang = self._hangs.name(stacks)
        if hang is None:
            if not symptoms.hung:
                return None
            kind = BY_PHASE.get(symptoms.phase, HANG)
            told = f"no progress, phase {symptoms.phase}" if symptoms.phase else "no progress"
            return _plain(kind, told)._replace(certainty=Certainty.LIKELY)
        return _from_hang(hang, several=len(symptoms.looks) > 1)

    def _of_exit(self, symptoms: Symptoms) -> Iterable[Candidate]:
        number, code = _signal(symptoms), symptoms.exit_code
        for it in self._exits:
            if number in it.signals or (code is not None and code % 2**32 in it.codes):
                yield _from_exit(it, number, code)

    def _rank_of(self, candidate: Candidate) -> tuple[int, float]:
        return self._order[candidate.kind], candidate.at

    def _whose(self, candidate: Candidate) -> Whose:
        return self._kinds[candidate.kind].whose

    def _failure(self, chosen: Candidate, found: Candidates, symptoms: Symptoms) -> Failure:
        kind = self._kinds[chosen.kind]
        others = [*found.kernel, *found.raised, *found.log]
        same = [it.seen[0] for it in others if it.kind == chosen.kind and it.seen]
        return Failure(
            kind=kind.id,
            title=kind.title,
            words=" ".join(kind.words.split()),
            certainty=Certainty.UNKNOWN if kind.id == UNKNOWN else chosen.certainty,
            fingerprint=Fingerprint(kind=kind.id, place=chosen.place, step=symptoms.step),
            seen=tuple(dict.fromkeys(map(_printable, (*chosen.seen, *same))))[:SEEN],
            signature=chosen.signature,
            rank=chosen.rank,
            also=tuple(
                dict.fromkeys(
                    (it.kind, self._role_beside(it, chosen))
                    for it in others
                    if it.kind not in (chosen.kind, UNKNOWN)
                )
            ),
            traceback=chosen.traceback if kind.id == SCRIPT_ERROR else "",
            sources=tuple(dict.fromkeys((*kind.sources, *self._sources.get(chosen.signature, ())))),
        )

    def _role_beside(self, other: Candidate, chosen: Candidate) -> Role:
        if other.role is not Role.ROOT:
            return other.role
        alike = self._whose(other) is self._whose(chosen)
        return Role.CONFIRMATION if alike else Role.CASCADE


def _mere_signs(found: Candidates, *, failed: bool) -> list[Candidate]:
    """Return what is common on healthy machines too: it counts if nothing is known of the run."""
    return (
        [] if failed else [it for it in found.kernel if it.alone and it.role is Role.CONFIRMATION]
    )


def _printable(line: str) -> str:
    return "".join(mark if mark.isprintable() else " " for mark in line).strip()


def _failed(symptoms: Symptoms) -> bool:
    return bool(symptoms.hung or symptoms.signal or symptoms.exit_code or symptoms.raised)


def _signal(symptoms: Symptoms) -> int | None:
    """Return the signal that ended it: as told, as Python says it, or as a shell does."""
    if symptoms.signal:
        return symptoms.signal
    code = symptoms.exit_code or 0
    if -HIGHEST_SIGNAL <= code < 0:
        return -code
    return code - SHELL if SHELL < code <= SHELL + HIGHEST_SIGNAL else None


def _crash_place(log: str) -> str:
    """Return where Python was when it crashed, if faulthandler told."""
    if "(most recent call first)" not in log:
        return ""
    crashed = (stack for stack in read_dump(log[-DUMP:]) if stack.trains)
    return next(map(place_of, crashed), "")


def _is_dump(log: str) -> bool:
    """Tell whether a text is somebody's look at a program that does not end."""
    if "Fatal Python error" in log or "Segmentation fault" in log or "SIGSEGV" in log:
        return False
    return any(
        mark in log for mark in ("(idle", "(active", "(most recent call first)", "\n#0 ", "#1  0x")
    ) and ("Thread " in log or "thread " in log or "#0 " in log)


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


def _from_exit(signature: Signature, number: int | None, code: int | None) -> Candidate:
    told = f"exit code {code}"
    if number is not None:
        try:
            told = f"ended by {signals.Signals(number).name}"
        except ValueError:  # of another system
            told = f"ended by signal {number}"
    return Candidate(
        kind=signature.failure,
        role=signature.role,
        certainty=signature.certainty,
        at=float("inf"),
        seen=(told,),
        signature=signature.id,
    )


def _plain(kind: str, seen: str) -> Candidate:
    return Candidate(kind=kind, role=Role.ROOT, certainty=Certainty.CERTAIN, at=0, seen=(seen,))


def _unknown(log: str, symptoms: Symptoms) -> Candidate:
    last = [line.strip()[:300] for line in log[-DUMP // 64 :].split("\n") if line.strip()][-3:]
    ended = [] if symptoms.exit_code is None else [f"exit code {symptoms.exit_code}"]
    return _plain(UNKNOWN, "")._replace(seen=(*last, *ended) if _failed(symptoms) else ())
