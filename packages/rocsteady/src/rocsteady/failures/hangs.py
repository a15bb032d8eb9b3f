"""Where a run hangs, by the stacks of its threads.

Of several ranks the odd one out is the one that holds the others up: they wait for it in a
collective, and it does something else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from rocsteady.doctor.knowledge.failures import Signature, Where
from rocsteady.doctor.knowledge.waits import WaitKnowledge
from rocsteady.failures.candidates import Candidate
from rocsteady.failures.stacks import Pattern, StackFrame, ThreadPosition
from rocsteady.hangs.frames import place
from rocsteady.hangs.values import Wait
from rocsteady.model import Certainty, FailureKind

BY_PHASE = {
    "data": FailureKind.HANG_IN_LOADER,
    "backward": FailureKind.HANG_IN_BACKWARD,
    "checkpoint": FailureKind.HANG_IN_CHECKPOINT,
    "compile": FailureKind.HANG_IN_COMPILE,
}
FRAMES_NAMED = 4  # frames of a stack
MOST_LINES = 400  # of a text that is no dump
FEW_LINES = 5  # of one in which a line of source is surely about the hang

# What other threads may be in while all is well: theirs, and those of the runtime.
_OF_OTHERS = (FailureKind.HANG_IN_LOADER, FailureKind.HANG_IN_DOWNLOAD, FailureKind.HANG_AT_IMPORT)
_OF_RUNTIME = (FailureKind.HANG_IN_SYNC, FailureKind.HANG_LOST_INTERRUPT, FailureKind.HANG_IN_COPY)

_OF_PYTHON = re.compile(
    r"(?:^|/)(?:python\d[.\d]*|Lib)/(?!site-packages)|^<|^[a-z_]+\.py$"
    r"|^(?:multiprocessing|concurrent|asyncio|importlib|logging|http|urllib|ctypes|json|email)/"
)
_BLOCKS = re.compile(
    r"acquire|sleep|\bwait|join\(|\.get\(|recv|poll|select|input\(|while |with .*lock"
)
_WAITS = (Wait.LOCK, Wait.SLEEP, Wait.CHILD, Wait.WORLD, Wait.TREE, Wait.STOPPED)
_BELOW_TORCH = re.compile(
    r"(?<!\w)(?:at|c10|c10d|torch|hip|hsa|rocr|amd|miopen|rocblas|caffe2)(?:::|[A-Z_])"
)
_SERVES = (  # processes that wait for the others, not the others for them
    Pattern("_invoke_run (server/api.py)"),
    Pattern("_poll (multiprocessing/api.py)"),
    Pattern("(compile_worker/__main__.py)"),
    Pattern("main (multiprocessing/forkserver.py)"),
    Pattern("main (multiprocessing/resource_tracker.py)"),
    Pattern("main (multiprocess/resource_tracker.py)"),
)
_WORKERS = (
    Pattern("_worker_loop (_utils/worker.py)"),
    Pattern("_worker_loop (data/dataloader.py)"),
)
_BACKWARD = Pattern("_engine_run_backward")
_RUN_BACKWARD = Pattern("backward (autograd/__init__.py)")
_IDLE_WORKER = Pattern("get (multiprocessing/queues.py)")


class HangRules:
    def __init__(self, signatures: Iterable[Signature], waits: WaitKnowledge) -> None:
        self._signatures = [
            (it, [Pattern(frame) for frame in it.frames], re.compile(it.pattern or r"(?!)"))
            for it in signatures
            if it.where is Where.STACK
        ]
        self._collectives = [
            pattern
            for it, patterns, _ in self._signatures
            if it.failure == FailureKind.HANG_IN_COLLECTIVE
            for pattern in patterns
        ]
        self._waits = waits

    def name(
        self, stacks: Sequence[ThreadPosition], culprit: int | None = None
    ) -> Candidate | None:
        """Name the hang of these stacks; None if nothing can be read from them.

        ``culprit`` is the process that the verdict blames. Without one, as for a dump that somebody
        else took, the odd one out of all training processes is named.
        """
        by_process: dict[int, list[ThreadPosition]] = {}
        for stack in stacks:
            by_process.setdefault(stack.process, []).append(stack)
        workers = [mine for mine in by_process.values() if _is_worker(mine)]
        trainers = [
            mine
            for mine in by_process.values()
            if mine not in workers and not any(_any(mine, serves) for serves in _SERVES)
        ]
        workers.sort(key=lambda mine: mine[0].process != culprit)  # the one that is blamed first
        blamed = [mine for mine in trainers if mine[0].process == culprit]
        hangs = [hang for mine in blamed or trainers if (hang := self._of_process(mine, workers))]
        if not blamed and self._of_workers(workers):  # what waits for it tells more
            hangs = [hang for hang in hangs if hang.kind == FailureKind.HANG_IN_LOADER] or hangs
        if not hangs and workers:
            return self._of_workers(workers)
        return _odd_one_out(hangs)

    def name_text(self, text: str) -> Candidate | None:
        """Name the hang of a text that speaks of frames without being a dump."""
        lines = [line.strip() for line in text.split("\n") if line.strip()][-MOST_LINES:]
        for signature, patterns, source in self._signatures:
            for line in lines:
                if any(pattern.in_line(line) for pattern in patterns) or (
                    len(lines) <= FEW_LINES and source.search(line)
                ):
                    return _hang(signature.failure, "", (line[:300],), signature)
        return None

    def _of_process(
        self, stacks: Sequence[ThreadPosition], workers: Sequence[list[ThreadPosition]]
    ) -> Candidate | None:
        training = next((stack for stack in stacks if stack.trains), None)
        if training is None or not training.frames:
            return None
        others = [it for it in stacks if not it.trains and not self._only_serves(it)]
        backward = any(_BACKWARD.fits(f) or _RUN_BACKWARD.fits(f) for f in training.frames)
        hang = (
            self._known([*others, training] if backward else [training], training)
            or self._known(others, training)
            or _in_script(training)
            or _hang(
                FailureKind.HANG, place_of_thread(training), _shown(training, training.frames[0])
            )
        )
        return self._with_worker(hang._replace(rank=training.rank), workers)

    def _known(
        self, stacks: Sequence[ThreadPosition], training: ThreadPosition
    ) -> Candidate | None:
        """Return the first signature that one of these stacks has."""
        for signature, patterns, innermost in self._signatures:
            for stack in stacks:
                if not _may_tell(stack, signature.failure):
                    continue
                frame = _found(stack, patterns, innermost)
                if frame is not None:
                    waits = any(_any(stacks, pattern) for pattern in self._collectives)
                    where, seen = place_of_thread(training, frame), _shown(stack, frame)
                    found = _hang(signature.failure, where, seen, signature)
                    return found._replace(waits_for_ranks=waits)
        return None

    def _only_serves(self, stack: ThreadPosition) -> bool:
        python = [str(frame) for frame in stack.frames if frame.file]
        native = [frame.function for frame in stack.frames if not frame.python]
        return self._waits.helper(stack.thread, python, native)

    def _with_worker(self, hang: Candidate, workers: Sequence[list[ThreadPosition]]) -> Candidate:
        """Add to a wait for the loader which worker is stuck, and where."""
        stuck = self._of_workers(workers) if hang.kind == FailureKind.HANG_IN_LOADER else None
        if stuck is None:
            return hang
        return hang._replace(place=stuck.place, seen=(*hang.seen, *stuck.seen))

    @staticmethod
    def _of_workers(workers: Sequence[list[ThreadPosition]]) -> Candidate | None:
        for mine in workers:
            main = next((s for s in mine if s.trains), mine[0])
            if not any(_IDLE_WORKER.fits(frame) for frame in main.frames):
                return _hang(
                    FailureKind.HANG_IN_LOADER, place_of_thread(main), _shown(main, main.frames[0])
                )
        return None


def _hang(
    kind: str, place: str, seen: tuple[str, ...], signature: Signature | None = None
) -> Candidate:
    return Candidate(
        kind=kind,
        certainty=Certainty.LIKELY,
        seen=seen,
        signature=signature.id if signature else "",
        place=place,
    )


def place_of_thread(stack: ThreadPosition, told: StackFrame | None = None) -> str:
    """Name the innermost frame of the script's own code, "data.py load", else what tells."""
    return _spelled(_users_frame(stack) or told or stack.frames[0])


def _users_frame(stack: ThreadPosition) -> StackFrame | None:
    return next((frame for frame in stack.frames if frame.python and frame.users), None)


def _any(stacks: Iterable[ThreadPosition], pattern: Pattern) -> bool:
    return any(pattern.fits(frame) for stack in stacks for frame in stack.frames)


def _may_tell(stack: ThreadPosition, kind: str) -> bool:
    """Return whether this wait of this thread means anything."""
    if stack.trains or kind not in (*_OF_OTHERS, *_OF_RUNTIME):
        return True
    computes = any(frame.python or "torch::autograd" in frame.function for frame in stack.frames)
    return kind in _OF_RUNTIME and computes


def _is_worker(stacks: Sequence[ThreadPosition]) -> bool:
    named = any(stack.thread == "pt_data_worker" for stack in stacks)
    return named or any(_any(stacks, worker) for worker in _WORKERS)


def _found(
    stack: ThreadPosition, patterns: Iterable[Pattern], inner: re.Pattern[str]
) -> StackFrame | None:
    """Return the frame that a signature is recognised by; a pattern is for the innermost only."""
    for frame in stack.frames:
        if any(pattern.fits(frame) for pattern in patterns):
            return frame
    innermost = next((frame for frame in stack.frames if frame.python), None)
    told = f"{innermost}: {innermost.source}" if innermost and stack.stands else ""
    return innermost if inner.search(told) else None


def _in_script(stack: ThreadPosition) -> Candidate | None:
    """Return a wait of the script's own code, with nothing of torch below it."""
    native = [frame.function for frame in stack.frames if not frame.python]
    own = _users_frame(stack)
    if own is None or not stack.stands or any(_BELOW_TORCH.search(name) for name in native):
        return None
    above = [frame for frame in stack.frames[: stack.frames.index(own)] if frame.python]
    if any(not _OF_PYTHON.search(frame.file) for frame in above):
        return None
    if not (native or above or stack.wait in _WAITS or _BLOCKS.search(own.source)):
        return None
    return _hang(FailureKind.HANG_IN_SCRIPT, _spelled(own), _shown(stack, stack.frames[0]))


def _odd_one_out(hangs: Sequence[Candidate]) -> Candidate | None:
    if len(hangs) < 2:  # noqa: PLR2004 - one has nobody to be compared with
        return hangs[0] if hangs else None
    places = Counter((hang.kind, hang.place) for hang in hangs)
    apart = [hang for hang in hangs if not hang.waits_for_ranks]
    return min(apart or hangs, key=lambda hang: places[hang.kind, hang.place])


def _spelled(frame: StackFrame) -> str:
    """Write a frame without its line: "data.py load"."""
    if not frame.file:
        return re.sub(r"\(.*", "", frame.function).strip()
    return place(frame.function, frame.file)


def _shown(stack: ThreadPosition, frame: StackFrame) -> tuple[str, ...]:
    """Return the innermost frames, and the one that tells."""
    frames = stack.frames[:FRAMES_NAMED]
    return tuple(str(it) for it in (frames if frame in frames else (*frames, frame)))
