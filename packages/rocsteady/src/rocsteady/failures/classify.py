"""Names the failure of an attempt: the first root in time, never what only follows from it.

``Classifier`` asks the rules of ``RULES`` one after the other, and the first answer counts. The
order is what is known of which sign can be trusted more; the comments there say why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from msgspec.structs import replace

from rocsteady.doctor.knowledge.failures import (
    Component,
    FailureKnowledge,
    KnownFailure,
)
from rocsteady.doctor.knowledge.waits import load_waits
from rocsteady.failures.candidates import Candidate, TextRules, ends_of, rank_first_seen
from rocsteady.failures.hangs import (
    BY_PHASE,
    HangRules,
    place_of_thread,
)
from rocsteady.failures.signature_search import cleaned
from rocsteady.failures.stacks import from_snapshots, is_dump, read_dump
from rocsteady.failures.symptoms import Symptoms
from rocsteady.failures.tracebacks import crash_line, line_of
from rocsteady.model import Certainty, Failure, FailureKind, Fingerprint, Role
from rocsteady.wording import inside_a_sentence, signal_name

CRASHES = (FailureKind.SEGFAULT, FailureKind.ABORT, FailureKind.BUS_ERROR)
SEEN_BY_OTHERS = (FailureKind.PEER_DIED, FailureKind.COLLECTIVE_ERROR)  # of a rank that ended
SIGKILL = 9
# Lines that end a process whatever Python says besides.
FATAL = (
    FailureKind.MEMORY_ACCESS_FAULT,
    FailureKind.GPU_HANG,
    FailureKind.NO_CODE_FOR_GPU,
    FailureKind.GPU_HARDWARE_ERROR,
)
# How a process notices that its GPU is gone or wedged; the kernel tells more.
VAGUE_ABOUT_GPU = (
    FailureKind.GPU_HANG,
    FailureKind.GPU_LAUNCH_FAILURE,
    FailureKind.HSA_OUT_OF_RESOURCES,
    FailureKind.HIP_INVALID_VALUE,
    FailureKind.BLAS_ERROR,
    FailureKind.BLAS_HANDLE_FAILED,
    FailureKind.MIOPEN_FAILURE,
)
# Whose failures leave the rest of a run waiting; others are handled by the script, and it goes on.
LEAVE_OTHERS_WAITING = (
    Component.DEVICE,
    Component.MACHINE,
    Component.MEMORY,
    Component.RANKS,
    Component.LOADER,
)
NO_REASON_TO_KILL = (Component.SCRIPT, Component.NETWORK, Component.LOADER, Component.INSTALL)
DUMP_LENGTH = 1 << 20  # characters at the end of a log in which stacks are looked for
UNPARSED_LENGTH = 1 << 16  # characters of a text that is searched for names of frames
LAST_LINES_LENGTH = 600  # characters at the end of a log that say what was under way
EVIDENCE_LINES = 6  # that a failure shows
NAME_A_LINE = (FailureKind.SCRIPT_ERROR, "torch-without-gpu-support")  # the script's own

_ERROR = re.compile(
    r"(?i)\w*error\b|\b(?:fail(?:ed|ure|s)?|fatal|exception|abort(?:ed|ing)?|cannot|can't|could not"
    r"|unable|denied|refused|invalid|not found|no such|missing)\b"
)
_WARNING = re.compile(r"^\[?W\d{4} |\bWarning: ")  # of torch, of Python
_OF_RANK = re.compile(r"\[rank(\d+)\]")  # as torch begins the lines of a traceback
_WORKERS = re.compile(r"(?i)DataLoader worker|num_workers\W{1,4}[1-9]|in worker\b|/dev/shm")


class Classifier:
    def __init__(self, knowledge: FailureKnowledge) -> None:
        self.kinds = knowledge.kinds
        self.reader = TextRules(knowledge.signatures)
        self.hangs = HangRules(knowledge.signatures, load_waits())
        self.signatures = knowledge.signatures
        self._sources = {it.id: it.sources for it in knowledge.signatures}

    def name(self, symptoms: Symptoms, *, recovered: bool = False) -> Failure:
        """Name the failure; "unknown" is an honest answer.

        With ``recovered`` it may be one after which work went on: what somebody asks about, not
        what ended a run.
        """
        evidence = _Evidence(self, symptoms, recovered=recovered)
        chosen = next((found for rule in RULES if (found := rule(evidence))), None)
        if chosen is None:
            chosen = _unknown(evidence)
        elif chosen.kind == FailureKind.BUS_ERROR and _shares_memory(evidence):
            chosen = chosen._replace(kind=FailureKind.SHM_TOO_SMALL)
        elif chosen.kind in CRASHES and not chosen.place:
            chosen = chosen._replace(place=_crash_place(evidence.log))
        failure = self._failure(chosen, evidence)
        line = crash_line(evidence.log[-DUMP_LENGTH:]) if chosen.kind in CRASHES else ""
        return replace(failure, line=line) if line else failure

    def component(self, candidate: Candidate) -> Component:
        return self.kinds[candidate.kind].component

    def _failure(self, chosen: Candidate, evidence: _Evidence) -> Failure:
        kind, found, symptoms = self.kinds[chosen.kind], evidence.found, evidence.symptoms
        others = [*found.kernel, *found.raised, *found.in_log]
        same = [it.seen[0] for it in others if it.kind == chosen.kind and it.seen]
        return Failure(
            kind=kind.id,
            title=chosen.title or kind.title,
            words=_words(kind, symptoms),
            certainty=Certainty.UNKNOWN if kind.id == FailureKind.UNKNOWN else chosen.certainty,
            fingerprint=Fingerprint(
                kind=kind.id, place=chosen.place, step=symptoms.step, start=symptoms.start
            ),
            seen=tuple(dict.fromkeys(map(_printable, (*chosen.seen, *same))))[:EVIDENCE_LINES],
            line=line_of(chosen.traceback) if kind.id in NAME_A_LINE else "",
            signature=chosen.signature,
            by_end=chosen.by_end,
            rank=symptoms.rank if chosen.rank is None else chosen.rank,
            also=tuple(
                dict.fromkeys(
                    (it.kind, self._role_beside(it, chosen))
                    for it in others
                    if it.kind not in (chosen.kind, FailureKind.UNKNOWN)
                )
            ),
            traceback=chosen.traceback
            if kind.id in (FailureKind.SCRIPT_ERROR, FailureKind.UNKNOWN)
            else "",
            sources=tuple(dict.fromkeys((*kind.sources, *self._sources.get(chosen.signature, ())))),
        )

    def _role_beside(self, other: Candidate, chosen: Candidate) -> Role:
        if other.role is not Role.ROOT:
            return other.role
        alike = self.component(other) is self.component(chosen)
        return Role.CONFIRMATION if alike else Role.CASCADE


class _Evidence:
    """Everything that an attempt left behind, read once, and what the rules ask of it."""

    def __init__(self, classifier: Classifier, symptoms: Symptoms, *, recovered: bool) -> None:
        self._classifier = classifier
        self.component = classifier.component
        self.symptoms = symptoms
        self.failed = symptoms.failed
        self.log = cleaned(symptoms.log)
        kernel = cleaned("\n".join(symptoms.kernel))
        self.found = classifier.reader.read(self.log, kernel, symptoms, recovered=recovered)
        if symptoms.signal == SIGKILL:  # so the crash that the kernel reports is another's
            self.found.kernel[:] = [it for it in self.found.kernel if it.kind not in CRASHES]

    @cached_property
    def kernel_root(self) -> Candidate | None:
        """The first root that the kernel reports; hardware goes before what it does."""
        roots = [it for it in self.found.kernel if it.role is Role.ROOT and self._counts(it)]
        hardware = [it for it in roots if self.component(it) is Component.MACHINE and it.alone]
        return next(iter(hardware or [it for it in roots if it.alone] or roots), None)

    @cached_property
    def process_root(self) -> Candidate | None:
        """The first root that the processes report; none if it is not why the run hangs."""
        root = self._first_root()
        if root and self.hang and not self._may_hang_others(root, self.hang):
            return None
        return root

    @cached_property
    def hang(self) -> Candidate | None:
        """Where it hangs; by the last lines before the silence if the stacks do not tell."""
        hang = self._hang()
        if hang is None or hang.kind != FailureKind.HANG:
            return hang
        last = len(self.log.rstrip()) - LAST_LINES_LENGTH
        hints = (it for it in reversed(self.found.lines) if it.at >= last)
        return next((it for it in hints if it.kind.startswith("hang-")), hang)

    @cached_property
    def consequences(self) -> list[Candidate]:
        """What usually follows from another failure; in the order of failures.toml."""
        found = (*self.found.raised, *self.found.in_log, *self.found.kernel)
        follow = [it for it in found if it.role is Role.CASCADE and it.kind != FailureKind.UNKNOWN]
        follow += ends_of(self._classifier.signatures, self.symptoms)
        order = {kind: index for index, kind in enumerate(self._classifier.kinds)}
        if self._was_killed:
            follow = list(filter(self._may_end_in_a_kill, follow))
        if self.symptoms.rank is not None and (self.symptoms.exit_code or 0) > 1:
            # Its own code says more than what the others saw of it; an exception gives 1.
            follow = [it for it in follow if it.kind not in SEEN_BY_OTHERS]
        return sorted(filter(self._counts, follow), key=lambda it: (order[it.kind], it.at))

    def _counts(self, candidate: Candidate) -> bool:
        """Leave out what is no failure without another sign of one, where there is none."""
        return candidate.alone or self.failed

    @property
    def _was_killed(self) -> bool:
        """Whether the process, or the one that its launcher started, was ended by SIGKILL."""
        if self.symptoms.hung:
            return False
        last = max(self.found.exceptions, key=lambda it: it.at, default=None)
        return self.symptoms.signal == SIGKILL or bool(last and last.kind == FailureKind.KILLED)

    def _may_end_in_a_kill(self, candidate: Candidate) -> bool:
        """Leave out what a killed process, or a worker that it left behind, has only printed."""
        return self.component(candidate) not in NO_REASON_TO_KILL

    def _first_root(self) -> Candidate | None:
        found = self.found
        raised, exceptions, lines = (
            [
                it
                for it in each
                if it.role is Role.ROOT and it.kind != FailureKind.UNKNOWN and self._counts(it)
            ]
            for each in (_before_interrupt(found.raised), found.exceptions, found.lines)
        )
        if self._was_killed:
            exceptions = []  # a process that was killed raised none; those that it left did
            raised, lines = (
                [it for it in each if self._may_end_in_a_kill(it)] for each in (raised, lines)
            )
        follows = [it for it in found.in_log if it.role is Role.CASCADE]
        # A lost rank does not count: it is reported last.
        late = (FailureKind.UNKNOWN, FailureKind.PEER_DIED)
        cascade = min((it.at for it in follows if it.kind not in late), default=float("inf"))
        first_rank = rank_first_seen(self.log)
        for roots in (
            # A process that reports its own exception knows best what ended it.
            raised,
            # These lines end the process; a Python exception beside them is of another rank.
            [it for it in lines if it.kind in FATAL],
            # An exception ended something; a line may only have been printed.
            _not_own(exceptions),
            _not_own(lines),
            # The script's own error last: most tracebacks of scripts follow from something else,
            # and one that comes after a consequence of another failure certainly does.
            [it for it in (*exceptions, *lines) if it.at < cascade],
        ):
            of_first = [it for it in roots if first_rank is not None and it.rank == first_rank]
            if roots:
                root = min(of_first or roots, key=lambda it: it.at)
                return self._earliest_report(root, lines)
        return None

    def _earliest_report(self, root: Candidate, lines: Sequence[Candidate]) -> Candidate:
        """Return the line that reported the same thing before an exception did, if one did."""
        if root.kind == FailureKind.SCRIPT_ERROR:
            return root
        same = [
            it for it in lines if it.at < root.at and self.component(it) is self.component(root)
        ]
        return min([root, *same], key=lambda it: it.at)

    def _may_hang_others(self, root: Candidate, hang: Candidate) -> bool:
        """Return whether a run that hangs may do so because of this error."""
        waits_for_others = hang.kind in (FailureKind.HANG_IN_COLLECTIVE, FailureKind.HANG_IN_LOADER)
        return waits_for_others or self.component(root) in LEAVE_OTHERS_WAITING

    def _hang(self) -> Candidate | None:
        """Return where it hangs: by stacks, else by the last phase that it reported."""
        symptoms, hangs, end = self.symptoms, self._classifier.hangs, self.log[-DUMP_LENGTH:]
        if not symptoms.hung and not is_dump(end):
            return None
        stacks = from_snapshots(symptoms.snapshots, symptoms.heartbeats) or read_dump(end)
        hang = hangs.name(stacks, symptoms.culprit)
        if symptoms.hung and not symptoms.phase and (hang is None or hang.kind == FailureKind.HANG):
            hang = hangs.name_text(end[-UNPARSED_LENGTH:]) or hang
        if hang is not None:
            sure = len(symptoms.snapshots) > 1 and hang.signature
            return hang._replace(certainty=Certainty.CERTAIN) if sure else hang
        if not symptoms.hung:
            return None
        kind = BY_PHASE.get(symptoms.phase, FailureKind.HANG)
        seen = f"no progress, phase {symptoms.phase}" if symptoms.phase else "no progress"
        return Candidate(kind, certainty=Certainty.LIKELY, seen=(seen,))


def _stopped_by_rocsteady(evidence: _Evidence) -> Candidate | None:
    lines = [it for it in evidence.found.lines if it.kind == FailureKind.STOPPED_BY_ROCSTEADY]
    return lines[-1] if lines and not evidence.failed else None


def _machine_went_down(evidence: _Evidence) -> Candidate | None:
    if not evidence.symptoms.machine_went_down:
        return None
    kernel = evidence.kernel_root
    if kernel and evidence.component(kernel) is Component.MACHINE:
        return kernel
    return Candidate(FailureKind.MACHINE_WENT_DOWN, seen=("another boot of the machine",))


def _reported_by_kernel(evidence: _Evidence) -> Candidate | None:
    """Take the kernel's word if no process reports a root, or only what follows from the kernel's.

    Broken hardware explains every failure of the device. A failure of the device explains the vague
    errors by which a process notices it, and not, say, that memory ran out.
    """
    kernel, root = evidence.kernel_root, evidence.process_root
    if kernel is None or root is None:
        return kernel
    if evidence.component(kernel) is Component.MACHINE:
        explains = evidence.component(root) is Component.DEVICE
    else:
        explains = evidence.component(kernel) is Component.DEVICE and root.kind in VAGUE_ABOUT_GPU
    return kernel if explains else None


def _killed_for_memory(evidence: _Evidence) -> Candidate | None:
    kills = evidence.symptoms.oom_kills
    if not kills or not (evidence.failed or evidence.found.in_log):
        return None
    return Candidate(FailureKind.OOM_HOST, seen=(f"its cgroup counted {kills} oom_kill",))


def _ended_itself(evidence: _Evidence) -> Candidate | None:
    symptoms = evidence.symptoms
    if not symptoms.exits or not symptoms.exit_code:
        return None
    return _by_its_end(
        FailureKind.SCRIPT_EXIT, f"The script ended itself with code {symptoms.exit_code}", evidence
    )


def _kernel_sign(evidence: _Evidence) -> Candidate | None:
    found = (it for it in evidence.found.kernel if it.alone and it.role is Role.CONFIRMATION)
    return None if evidence.failed else next(found, None)


RULES: tuple[Callable[[_Evidence], Candidate | None], ...] = (
    # A text that says that rocsteady stopped it: all that follows in it follows from that.
    _stopped_by_rocsteady,
    # Nothing that a process printed says why the machine is gone; the kernel of the next boot may.
    _machine_went_down,
    # The kernel sees the device from outside, and before the process does; but much that it logs
    # has nothing to do with the attempt, so it must explain what the process reports.
    _reported_by_kernel,
    # What a process reports names the cause; everything below is only how it showed.
    lambda evidence: evidence.process_root,
    # Behind the process: a script that runs out of device memory may also be near the limit of
    # its cgroup, and its exception says which. Before the hang: ranks hang when one was killed.
    _killed_for_memory,
    # Behind every error: errors make runs hang, and a hang makes no error but those below.
    lambda evidence: evidence.hang if evidence.symptoms.hung else None,
    # Timeouts, lost peers, signals, exit codes: they happen because something else did.
    lambda evidence: next(iter(evidence.consequences), None),
    # An exit code that the script chose, and nothing else that says why.
    _ended_itself,
    # Somebody's dump of stacks in a text, of which nothing else says that it hung.
    lambda evidence: evidence.hang,
    # Losses that are no numbers: many runs print some and recover.
    lambda evidence: next(reversed(evidence.found.numbers), None),
    # Kernel lines that healthy machines have too: only if nothing is known of the run.
    _kernel_sign,
)


def _before_interrupt(raised: Sequence[Candidate]) -> Sequence[Candidate]:
    """Leave out what broke because the processes had been asked to end."""
    ends = [index for index, it in enumerate(raised) if it.kind == FailureKind.INTERRUPTED]
    return raised[: ends[0]] if ends else raised


def _not_own(candidates: Iterable[Candidate]) -> list[Candidate]:
    return [it for it in candidates if it.kind != FailureKind.SCRIPT_ERROR]


def _printable(line: str) -> str:
    return "".join(mark if mark.isprintable() else " " for mark in line).strip()


def _shares_memory(evidence: _Evidence) -> bool:
    """Return whether shared memory may be why: there are loader workers, or /dev/shm is full."""
    symptoms = evidence.symptoms
    workers = symptoms.loader_workers or _WORKERS.search(evidence.log) is not None
    return workers or symptoms.shared_full


def _crash_place(log: str) -> str:
    """Return where Python was when it crashed, if faulthandler reports it."""
    if "(most recent call first)" not in log:
        return ""
    crashed = (stack for stack in read_dump(log[-DUMP_LENGTH:]) if stack.trains)
    return next(map(place_of_thread, crashed), "")


def _unknown(evidence: _Evidence) -> Candidate:
    """Keep what was seen of a failure that has no name: its exception, else its last lines."""
    symptoms = evidence.symptoms
    vague = [it for it in (*evidence.found.raised, *evidence.found.exceptions) if not it.signature]
    if vague:
        return vague[0]._replace(kind=FailureKind.UNKNOWN)
    if not evidence.failed:
        return Candidate(FailureKind.UNKNOWN)
    how = "" if symptoms.exit_code is None else f"Exit code {symptoms.exit_code}"
    if symptoms.signal:
        how = f"Killed by {signal_name(symptoms.signal)}"
    return _by_its_end(FailureKind.UNKNOWN, how, evidence)


def _by_its_end(kind: str, how: str, evidence: _Evidence) -> Candidate:
    """Name a failure by how the process ended, and by its last words if these are of an error."""
    symptoms, end = evidence.symptoms, evidence.log[-DUMP_LENGTH // 64 :].split("\n")
    own = (line for line in end if not _is_of_another_rank(line, symptoms.rank))
    last = [_printable(line)[:300] for line in own if line.strip()][-3:]
    errors = (line for line in reversed(last) if not _WARNING.search(line))
    error = next(filter(_ERROR.search, errors), "")
    title = how and f"{how}: {error[:100]}" if error else f"{how}, no error message"
    if how and symptoms.total is not None and symptoms.total == symptoms.step:
        title = f"All {symptoms.total:,} steps were made, then: {inside_a_sentence(title)}"
    seen = (*last, *filter(None, [how]))
    return Candidate(kind, seen=seen, by_end=True, title=title * bool(how))


def _is_of_another_rank(line: str, rank: int | None) -> bool:
    printed = _OF_RANK.match(line)
    return rank is not None and printed is not None and int(printed[1]) != rank


def _words(kind: KnownFailure, symptoms: Symptoms) -> str:
    """Return what a failure means; of the GPU and of other ranks only where there may be some."""
    parts = (kind.words, kind.gpu_words * symptoms.gpu, kind.rank_words * symptoms.ranks)
    return " ".join(" ".join(parts).split())
