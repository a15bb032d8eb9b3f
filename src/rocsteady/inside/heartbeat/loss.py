"""Whether the loss is still a number: a sample now and then of what backward is called on.

On a GPU it looks only in a drill, where a fault was asked for: a copy that we queue there could be
what hangs next, and that is unconfirmed on hardware. It never waits: the value is copied beside the
work that is queued, and read at a later backward, once the copy has come.
"""

from __future__ import annotations

import os
import sys
from math import isfinite
from time import monotonic_ns
from typing import Any

from ..wire import FAULTS, W_FINITE, W_NOT_FINITE
from .heart import Heart
from .precision import Precision

EVERY = 1_000_000_000  # nanoseconds between samples
IN_A_ROW = 3  # that must not be finite: a GradScaler meets one or two when it begins


class LossMonitor:
    """Looks at the loss of this process, and tells the page. Beside faults it looks each time."""

    def __init__(self, heart: Heart) -> None:
        self._drilled = drilled = FAULTS in os.environ
        self._every, self._in_a_row = (0, 1) if drilled else (EVERY, IN_A_ROW)
        self._heart = heart
        self._precision = Precision(heart)
        self._since = 0  # the step, plus 1, of the first of those in a row
        self._row = 0
        self._copy: Any = None  # on the way here from a GPU
        self._arrived: Any = None  # an event, until the copy was read
        self._copied = 0  # the step of it

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
                    due = now + 60 * EVERY
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
        elif self._drilled and tensor.device.type == "cuda":  # which HIP is called too
            self._look_at_gpu(torch.cuda, tensor)

    def _look_at_gpu(self, cuda: Any, tensor: Any) -> None:
        if tensor.device.index != cuda.current_device() or cuda.is_current_stream_capturing():
            return
        if self._arrived is not None:
            if not self._arrived.query():
                return
            self._judge(self._copy.item(), self._copied)
        if self._copy is None:
            self._copy = sys.modules["torch"].empty((), pin_memory=True)
        self._copy.copy_(tensor.detach().reshape(()), non_blocking=True)
        self._arrived = cuda.current_stream().record_event()
        self._copied = self._heart.steps + 1

    def _judge(self, value: float, step: int) -> None:
        if isfinite(value):
            if self._row >= self._in_a_row:
                self._heart.tell(W_FINITE, step)
            self._row = 0
            return
        self._row += 1
        if self._row == 1:
            self._since = step
        if self._row == self._in_a_row:
            self._heart.tell(W_NOT_FINITE, self._since)
