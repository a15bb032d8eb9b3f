"""Repeat each operation on the processor in float64 with the same inputs, and compare.

Random operations are not repeated. The tolerance follows the type, and how much the result itself
moves if its inputs are rounded otherwise: that is what a reduction, or a difference of two numbers
that are almost alike, may lose.
"""

from __future__ import annotations

import atexit
import json
import sys
from typing import Any, NamedTuple

from . import wire
from .heartbeat import page
from .heartbeat.heart import Heart
from .operation_call import UNINITIALIZED, Call, Watcher, leave_origin, tensors_in, transformed

FLOORS = {"float64": 1e-9, "float32": 5e-4, "float16": 2e-3, "bfloat16": 1.5e-2}  # of the norm
SINGLE = 32  # times that, for one element
# How much further off it may be than rounding the inputs otherwise moves it. What is summed in a
# type of its own also loses bits on the way; 1 % is far from those of the finer types.
MOVED = {"float64": 1e3, "float32": 1e3, "float16": 16.0, "bfloat16": 8.0}
SKIPPED = {
    "aten::_local_scalar_dense": "a number for Python",
    "aten::_amp_foreach_non_finite_check_and_unscale_": "looks for infinities",
    "aten::_amp_update_scale_": "looks for infinities",
}
JUMPS = ("floor", "ceil", "trunc", "round", "remainder", "fmod", "sign", "frac")
WHOLE, LARGE, MOST = 0.99, 0.1, 0.3  # shares by which a pattern is told
DEVIATIONS = 20  # operations that deviate, after which enough is known


class Comparison(Watcher):
    def __init__(self, order: dict[str, Any], heart: Heart) -> None:
        self._heart = heart
        self._first, self._every = int(order["first"]), int(order["every"])
        self._compared: dict[str, int] = {}
        self._not_compared: dict[str, str] = {}
        self._deviations: list[dict[str, Any]] = []
        atexit.register(self._leave)

    def before(self, call: Call) -> Any:
        """Return the inputs, on the processor and in float64."""
        step = self._heart.steps
        if step >= self._first and step % self._every:
            return None
        if len(self._deviations) >= DEVIATIONS or not self._is_comparable(call):
            return None
        return exact(call.args), exact_options(call.kwargs)

    def after(self, call: Call, result: Any, kept: Any) -> None:
        if kept is None:
            return
        args, kwargs = kept
        try:
            how = self._difference(call, result, args, kwargs)
        except Exception as error:  # there is no such kernel for it, say
            self._not_compared.setdefault(call.name, f"{type(error).__name__}: {error}"[:200])
            return
        self._compared[call.name] = self._compared.get(call.name, 0) + 1
        if how:
            call.suspect = True
            self._deviations.append({"how": how, "operation": call.text})
            if len(self._deviations) == 1:
                leave_origin({"kind": "wrong", "how": how, "operation": call.text})
            self._leave()

    def _is_comparable(self, call: Call) -> bool:
        torch = sys.modules["torch"]
        name = call.name.split("::", 1)[1]
        if call.func.is_view or name in UNINITIALIZED:
            return False
        why = SKIPPED.get(call.name, "")
        if torch.Tag.nondeterministic_seeded in call.func.tags and not _without_dropout(call):
            why = "random"
        elif any(name.startswith(each) for each in JUMPS):
            why = "jumps"
        elif any(type(each) not in (torch.Tensor, torch.nn.Parameter) for each in call.inputs()):
            why = "a tensor of a kind of its own"
        if why:
            self._not_compared.setdefault(call.name, why)
        return not why

    def _difference(self, call: Call, result: Any, args: Any, kwargs: Any) -> str:
        found = [*tensors_in(result), *call.written()]
        if not any(each.is_floating_point() for each in found):
            return ""
        written = len(call.written())
        expected = _computed(call, args, kwargs, written)
        moved: list[Any] | None = None
        for index, (output, should) in enumerate(zip(found, expected)):
            if not output.is_floating_point() or not output.numel() or output.shape != should.shape:
                continue
            has = output.detach().to("cpu", sys.modules["torch"].float64)
            floor, factor = _floor(call, found[index])
            bound = Bound(found[index].dtype, floor, factor)
            if not deviates(has, should, bound, None):
                continue
            if moved is None:
                shaken, options = _shaken((args, kwargs), _unit(call, found[index]))
                moved = _computed(call, shaken, options, written)
            if deviates(has, should, bound, moved[index] - should):
                return how_it_deviates(has, should)
        return ""

    def _leave(self) -> None:
        content = {
            "version": wire.RECORD_VERSION,
            "compared": self._compared,
            "not_compared": self._not_compared,
            "deviations": self._deviations,
        }
        try:
            page.leave(wire.NUMBERS_SUFFIX, json.dumps(content).encode())
        except OSError as error:
            page.note("compared numbers", error)


def exact(value: Any) -> Any:
    """Return copies on the processor, in float64; one tensor that is given twice stays one."""
    torch = sys.modules["torch"]
    seen: dict[int, Any] = {}

    def copied(tensor: Any) -> Any:
        if id(tensor) not in seen:
            kind = torch.float64 if tensor.is_floating_point() else tensor.dtype
            seen[id(tensor)] = tensor.detach().to("cpu", kind, copy=True)
        return seen[id(tensor)]

    return transformed(value, copied)


def exact_options(kwargs: dict[str, Any]) -> dict[str, Any]:
    torch = sys.modules["torch"]
    found = exact(kwargs)
    if isinstance(found.get("device"), torch.device):
        found["device"] = torch.device("cpu")
    if isinstance(found.get("dtype"), torch.dtype) and found["dtype"].is_floating_point:
        found["dtype"] = torch.float64
    return dict(found)


def _computed(call: Call, args: Any, kwargs: Any, written: int) -> list[Any]:
    """Return what it should be; the inputs are used up where it works in place."""
    named = {each.name: value for each, value in zip(call.func._schema.arguments, args)}  # noqa: SLF001
    named.update(kwargs)
    if call.name.startswith("aten::_scaled_dot_product") and "for_cpu" not in call.name:
        return attention(named, backward=call.name.endswith("_backward"))
    if written:
        args, kwargs = transformed((args, kwargs), lambda tensor: tensor.clone())
    if call.name in ("aten::_softmax", "aten::_log_softmax"):
        args = [*args[:2], False]  # half_to_float is of halves
    if call.name in ("aten::_softmax_backward_data", "aten::_log_softmax_backward_data"):
        args = [*args[:3], args[0].dtype]
    args = [sys.modules["torch"].float64 if _is_real_type(value) else value for value in args]
    repeated = Call(call.func, args, kwargs)
    result = call.func(*args, **kwargs)
    return [*tensors_in(result), *repeated.written()]


def _is_real_type(value: Any) -> bool:
    torch = sys.modules["torch"]
    return isinstance(value, torch.dtype) and value.is_floating_point


def attention(named: dict[str, Any], *, backward: bool) -> list[Any]:
    """Return attention by its formula: the kernels of a GPU are on no processor."""
    torch = sys.modules["torch"]
    q, k, v = named["query"], named["key"], named["value"]
    scale = named.get("scale") or q.shape[-1] ** -0.5
    scores = scale * (q @ k.transpose(-2, -1))
    bias = named.get("attn_bias")
    if bias is not None:
        scores = scores + bias
    if named.get("is_causal"):
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool)
        scores = scores.masked_fill(~ones.tril(), float("-inf"))
    share = torch.softmax(scores, -1)
    if not backward:
        return [share @ v]
    grad = named.get("grad_out", named.get("grad_out_"))
    of_share = grad @ v.transpose(-2, -1)
    of_scores = share * (of_share - (of_share * share).sum(-1, keepdim=True))
    return [
        scale * of_scores @ k,
        scale * of_scores.transpose(-2, -1) @ q,
        share.transpose(-2, -1) @ grad,
    ]


def _without_dropout(call: Call) -> bool:
    """Whether it is attention that only draws numbers if it is to drop some."""
    names = [each.name for each in call.func._schema.arguments]  # noqa: SLF001
    if "attention" not in call.name or "dropout_p" not in names:
        return False
    index = names.index("dropout_p")
    value = call.args[index] if index < len(call.args) else call.kwargs.get("dropout_p", 0.0)
    return not value


def _types(call: Call, output: Any) -> list[str]:
    tensors = [each for each in (*call.inputs(), output) if each.is_floating_point()]
    return [str(each.dtype)[6:] for each in tensors]


def _floor(call: Call, output: Any) -> tuple[float, float]:
    """Return both tolerances of the coarsest type."""
    coarsest = max(_types(call, output), key=lambda name: FLOORS.get(name, 1.0))
    return FLOORS.get(coarsest, 1.0), MOVED.get(coarsest, 1.0)


def _unit(call: Call, output: Any) -> float:
    """Return the rounding unit of the coarsest type."""
    torch = sys.modules["torch"]
    return max(float(torch.finfo(getattr(torch, name)).eps) / 2 for name in _types(call, output))


def _shaken(value: Any, unit: float) -> Any:
    torch = sys.modules["torch"]
    generator = torch.Generator().manual_seed(0)

    def shaken(tensor: Any) -> Any:
        if tensor.dtype is not torch.float64:
            return tensor
        noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * 2 - 1
        return tensor * (1 + unit * noise)

    return transformed(value, shaken)


class Bound(NamedTuple):
    kind: Any  # of the result
    floor: float
    moved: float


def deviates(has: Any, should: Any, bound: Bound, moved: Any) -> bool:
    """Whether a result is further off than rounding explains, as a whole or in one element."""
    torch = sys.modules["torch"]
    about, floor = torch.finfo(bound.kind), bound.floor
    counts = should.isfinite() & (should.abs() < float(about.max))
    if bool((~has.isfinite() & counts).any()):
        return True
    error = torch.where(counts, has - should, 0.0)
    size = torch.where(counts, should, 0.0)
    shift = torch.where(counts, moved, 0.0).nan_to_num() if moved is not None else error * 0
    count = float(max(1, int(counts.sum())))
    tiny = float(about.smallest_normal * about.eps)
    whole = floor * float(size.norm()) + bound.moved * float(shift.norm()) + tiny * count**0.5
    if float(error.norm()) > whole:
        return True
    typical = float(size.norm()) / count**0.5
    single = SINGLE * floor * (size.abs() + typical) + bound.moved * float(shift.abs().max()) + tiny
    return bool((error.abs() > single).any())


def how_it_deviates(has: Any, should: Any) -> str:
    """Describe the whole: NaN, zeros, a factor, an offset, or how much of it is off."""
    bad = ~has.isfinite() & should.isfinite()
    if bool(bad.any()):
        return f"{_share(bad)} NaN or infinite"
    zeros = (has == 0) & (should != 0)
    if bool(zeros.any()) and int(zeros.sum()) * 2 > int((has != should).sum()):
        if has.dim() > 1 and not bool(zeros.all()):
            rows = zeros.flatten(1).float().mean(1) > WHOLE
            if bool(rows.any()) and bool(rows[int(rows.int().argmax()) :].all()):
                return f"all zeros from row {int(rows.int().argmax())} on"
        return f"{_share(zeros)} zeros"
    error = has - should
    scale = float((has * should).sum() / (should * should).sum().clamp(min=1e-300))
    if float((has - scale * should).norm()) < MOST * float(error.norm()):
        return f"{scale:.4g} times what it should be"
    mean = float(error.mean())
    if float((error - mean).norm()) < MOST * float(error.norm()):
        return f"off by {mean:.4g} throughout"
    off = error.abs() > LARGE * float(error.abs().max())
    largest, most = float(error.abs().max()), float(should.abs().max())
    return f"off by up to {largest:.4g} in {_share(off)}; the largest is {most:.4g}"


def _share(mask: Any) -> str:
    share = float(mask.double().mean())
    return "all" if share == 1 else f"{share:.2g} of it"
