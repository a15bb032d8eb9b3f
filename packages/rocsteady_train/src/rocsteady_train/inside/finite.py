"""Find the operation in which the first NaN was made, or the infinity that it was made from.

A NaN accuses nobody before it reaches the loss or a weight: a GradScaler throws many away. Then the
operation counts that made it from numbers without one. A script may look at its loss and end before
the backward: what a NaN of one element was made by is left for that. Infinities that were asked for
(masks), and memory that was never written to, accuse nobody.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from . import wire
from .heartbeat.heart import Heart
from .operation_call import UNINITIALIZED, Call, Watcher, leave_origin, tensors_in

INFINITE, NAN = 1, 2
OUTSIDE: dict[str, Any] = {}  # it came in with the data, or from memory that nothing was written to
KNOWN = 4096  # storages that are followed
WRITERS = ("_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_")


class Origins(Watcher):
    def __init__(self, heart: Heart) -> None:
        self._heart = heart
        self._from: dict[int, tuple[int, dict[str, Any]]] = {}  # by storage: how bad, and whose
        self._found = False
        self._left: dict[str, Any] | None = None  # what made the last NaN of one element

    def before(self, call: Call) -> Any:
        """Return how bad what it changes in place was before."""
        return {id(each): badness(each) for each in call.written() if _is_real(each)}

    def after(self, call: Call, result: Any, kept: Any) -> None:
        if self._found:
            return
        name = call.name.split("::", 1)[1]
        outputs = [each for each in (*tensors_in(result), *call.written()) if _is_real(each)]
        if name in UNINITIALIZED or name in WRITERS:
            for tensor in outputs:
                self._from.pop(_key(tensor), None)
            return
        if call.func.is_view or not outputs:
            return
        for tensor in {id(each): each for each in outputs}.values():
            key, bad = _key(tensor), badness(tensor)
            if bad:
                self._taint(call, key, bad, kept)
                if bad == NAN and tensor.numel() == 1:
                    self._leave(self._from[key][1])
                torch = sys.modules["torch"]
                is_weight = isinstance(tensor, torch.nn.Parameter) and tensor.is_leaf
                if is_weight and self._heart.phase == wire.OPTIMIZER:
                    self._accuse(key)
            elif key in self._from and tensor.is_contiguous():
                self._from.pop(key)

    def _taint(self, call: Call, key: int, bad: int, before: dict[int, int]) -> None:
        """Follow what is not finite back to the operation that made it from what was."""
        if len(self._from) > KNOWN:
            self._from.clear()
        inputs = [each for each in call.inputs() if _is_real(each)]
        if call.name == "aten::copy_":
            inputs = inputs[1:]  # what was there before is overwritten
        known = [self._from[_key(each)] for each in inputs if _key(each) in self._from]
        as_bad = [origin for worse, origin in known if worse >= bad]
        from_infinity = [origin for _, origin in known if origin]
        if as_bad or from_infinity:
            self._from[key] = (bad, (as_bad or from_infinity)[0])
        elif any(before.get(id(each), badness(each)) >= bad for each in inputs):
            self._from[key] = (bad, OUTSIDE)
        elif bad == NAN or not _asks_for_infinity(call):
            self._from[key] = (bad, call.text)
            call.suspect = True

    def _leave(self, origin: dict[str, Any]) -> None:
        if origin is not self._left:
            self._left = origin
            leave_origin({"kind": "read", "operation": origin or None})

    def _accuse(self, key: int) -> None:
        bad, origin = self._from.get(key, (NAN, OUTSIDE))
        self._found = True
        kind = "nan" if bad == NAN else "infinite"
        leave_origin({"kind": kind if origin else "outside", "operation": origin or None})

    def around_backward(self, original: Any) -> Any:
        def backward(*args: Any, **kwargs: Any) -> Any:
            given = args[0] if args else kwargs.get("tensors")
            for each in tensors_in(given):  # what it begins from
                tensor = each.detach()
                if not self._found and _is_real(tensor) and badness(tensor) == NAN:
                    self._accuse(_key(tensor))
            return original(*args, **kwargs)

        return backward


def _key(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _is_real(tensor: Any) -> bool:
    torch = sys.modules["torch"]
    return (
        tensor.is_floating_point()
        and tensor.layout is torch.strided
        and tensor.device.type != "meta"
        and tensor.numel() > 0
        and tensor.element_size() > 1
        and type(tensor) in (torch.Tensor, torch.nn.Parameter)
    )


def badness(tensor: Any) -> int:
    """Return whether there is a NaN in it, or an infinity; by one operation that few models use."""
    torch = sys.modules["torch"]
    low, high = torch.aminmax(tensor.detach())
    least, most = float(low), float(high)
    if math.isnan(least) or math.isnan(most):
        return NAN
    return INFINITE if math.isinf(least) or math.isinf(most) else 0


def _asks_for_infinity(call: Call) -> bool:
    return any(
        isinstance(each, float) and math.isinf(each) for each in (*call.args, *call.kwargs.values())
    )
