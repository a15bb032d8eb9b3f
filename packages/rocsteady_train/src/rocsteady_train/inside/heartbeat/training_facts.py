"""What is trained and what feeds it: size, precision, the loss, and the script's DataLoaders.

Looked at in the first steps, once an iterator, and now and then before a backward.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import weakref
from math import isfinite
from time import monotonic_ns
from typing import Any

from .. import wire
from . import page
from .heart import Heart

FIRST_STEPS = 8  # that are looked at: a script may have several optimizers, and step them in turn
LARGEST_COUNT = 1 << 63


class SizeReport:
    def __init__(self, heart: Heart) -> None:
        self._heart = heart
        self._parameters: dict[int, int] = {}  # their numbers of elements
        self._loader = 0, 0  # samples in a batch and batches in an epoch, of the last one

    def iterated(self, loader: Any) -> None:
        """Be told that a loader makes an iterator; the last before the first step feeds it."""
        if self._parameters:
            return
        batch = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        batches = 0
        if loader._dataset_kind == 0:  # noqa: SLF001 - map-style
            # To ask any other for its length has torch compare it with what comes.
            with contextlib.suppress(Exception):  # a sampler need not know it
                batches = len(loader)
        self._loader = _whole(batch), _whole(batches)

    def stepped(self, optimizer: Any) -> None:
        try:
            if not self._parameters:
                self._heart.tell(wire.W_LOADER_BATCH, self._loader[0])
                self._heart.tell(wire.W_LOADER_BATCHES, self._loader[1])
            for group in optimizer.param_groups:
                for each in group["params"]:
                    if each.requires_grad:
                        self._parameters[id(each)] = each.numel()
            self._heart.tell(wire.W_PARAMETERS, min(sum(self._parameters.values()), LARGEST_COUNT))
        except Exception as error:  # ours, and not the script's business
            page.note("size", error)

    def reset(self) -> None:
        self._parameters.clear()
        self._loader = 0, 0


def _whole(number: Any) -> int:
    return min(max(number, 0), LARGEST_COUNT) if isinstance(number, int) else 0


MAX_NODES = 3000  # nodes of a graph that are looked at, about 20 ms
STEPS_EXAMINED = 2  # the first step may differ from the others


class Precision:
    """Looks at the graph before a backward, and tells the page the lowest precision in it."""

    def __init__(self, heart: Heart) -> None:
        self._heart, self._left, self._lowest = heart, STEPS_EXAMINED, 0

    def look(self, torch: Any, loss: Any) -> None:
        """Look at the graph of a loss. No tensor is touched."""
        if self._left <= 0 or loss.grad_fn is None:
            return
        self._left -= 1
        found, whole = _types(loss.grad_fn)
        kinds = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
        name = next((name for name, kind in kinds.items() if kind in found), "")
        if name == "fp32" and not whole:
            name = ""  # what is compiled, or not looked at, may be in another
        self._lowest = max(self._lowest, wire.PRECISIONS.index(name))
        self._heart.tell(wire.W_PRECISION, self._lowest)


def _types(top: Any) -> tuple[set[Any], bool]:
    """Return the types of what a graph has computed, and whether all of it could be seen."""
    found: set[Any] = set()
    seen: set[Any] = set()
    whole, pending = True, [top]
    while pending and len(seen) < MAX_NODES:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        whole = whole and "Compiled" not in type(node).__name__
        found.update(about.dtype for about in node._input_metadata if about is not None)  # noqa: SLF001
        pending += [following for following, _ in node.next_functions]
    return found, whole and not pending


SAMPLE_EVERY = 1_000_000_000  # nanoseconds between samples
IN_A_ROW = 3  # that must not be finite: a GradScaler meets one or two when it begins


class LossMonitor:
    """Looks at the loss of this process now and then, and tells the page.

    Not on a GPU: a copy that we queue there could be what hangs next. Beside faults it looks each
    time.
    """

    def __init__(self, heart: Heart) -> None:
        drilled = wire.FAULTS in os.environ
        self._every, self._in_a_row = (0, 1) if drilled else (SAMPLE_EVERY, IN_A_ROW)
        self._heart = heart
        self._precision = Precision(heart)
        self._since = 0  # the step, plus 1, of the first of those in a row
        self._row = 0

    def around(self, original: Any) -> Any:
        """Make a backward that looks before it begins."""
        clock, every, due = monotonic_ns, self._every, 0

        def backward(*args: Any, **kwargs: Any) -> Any:
            nonlocal due
            now = clock()
            if now > due:
                due = now + every
                try:
                    self._look(args[0] if args else kwargs["tensors"])
                except Exception:  # of a kind that cannot be looked at; nobody has to know
                    due = now + 60 * SAMPLE_EVERY
            return original(*args, **kwargs)

        return backward

    def _look(self, given: Any) -> None:
        torch: Any = sys.modules["torch"]
        tensor = given[0] if isinstance(given, (tuple, list)) else given
        if type(tensor) is not torch.Tensor or tensor.numel() != 1:
            return
        self._precision.look(torch, tensor)
        if tensor.device.type == "cpu":
            self._judge(tensor.item(), self._heart.steps + 1)

    def _judge(self, value: float, step: int) -> None:
        if isfinite(value):
            if self._row >= self._in_a_row:
                self._heart.tell(wire.W_FINITE, step)
            self._row = 0
            return
        self._row += 1
        if self._row == 1:
            self._since = step
        if self._row == self._in_a_row:
            self._heart.tell(wire.W_NOT_FINITE, self._since)


MARK = "_rocsteady"  # on a loader with other settings: what the script asked for
MAIN = rb"""(?:"__main__"|'__main__')"""
GUARD = re.compile(rb"if\b[\s(]*(?:__name__\s*==\s*" + MAIN + rb"|" + MAIN + rb"\s*==\s*__name__)")


class LoaderRecorder:
    def __init__(self, heart: Heart) -> None:
        self._heart = heart
        self.reset()

    def iterated(self, loader: Any) -> None:
        workers, context = getattr(loader, MARK, None) or (loader.num_workers, "")
        if loader not in self._seen:
            self._seen.add(loader)
            self._count += 1
            self._heart.tell(wire.W_LOADERS, self._count)
        if getattr(loader, "persistent_workers", False):  # torch 1.7
            self._heart.tell(wire.W_PERSISTENT, wire.YES)
        if workers > self._heart.facts.get(wire.W_WORKERS, 0):
            context = context or spelled(loader.multiprocessing_context)
            self._heart.tell(wire.W_WORKERS, min(workers, 1 << 32))
            self._heart.tell(wire.W_CONTEXT, wire.CONTEXTS.index(context))
            self.guarded()

    def guarded(self) -> bool:
        """Return whether what runs now is kept from running when the main module is imported."""
        answer = _is_guarded()
        self._heart.tell(wire.W_GUARDED, wire.YES if answer else wire.NO)
        return answer

    def pickles(self, *, can: bool) -> None:
        if self._heart.facts.get(wire.W_PICKLES) != wire.NO:
            self._heart.tell(wire.W_PICKLES, wire.YES if can else wire.NO)

    def reset(self) -> None:
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._count = 0


def spelled(context: Any) -> str:
    if context is None:
        multiprocessing: Any = sys.modules["multiprocessing"]  # torch has imported it
        # Asking without allow_none would settle it, and the script could not any more.
        default = multiprocessing.get_all_start_methods()[0]
        return str(multiprocessing.get_start_method(allow_none=True) or default)
    return context if isinstance(context, str) else str(context.get_start_method())


def _is_guarded() -> bool:
    """Return whether the main module is just now in the block of ``if __name__ == "__main__"``.

    So this is seen and not guessed: a loader that is made or used in that block is not made or used
    again when a worker imports the module.
    """
    main = sys.modules["__main__"]
    if main.__name__ == "__mp_main__":
        return True  # this process was started so itself
    try:
        with open(main.__file__ or "", "rb") as stream:
            lines = stream.read().splitlines()
    except (AttributeError, OSError):
        return False  # no file: nothing that a worker could import
    for line in reversed(lines[: _running_line(main)]):
        if line and line[:1] not in b" \t#)]}":  # where the statement begins
            return GUARD.match(line) is not None
    return False


def _running_line(main: Any) -> int:
    """Return the line of the main module that waits for all that goes on; 0 if none does."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001
    while frame is not None:
        if frame.f_globals is vars(main) and frame.f_code.co_name == "<module>":
            return frame.f_lineno
        frame = frame.f_back
    return 0
