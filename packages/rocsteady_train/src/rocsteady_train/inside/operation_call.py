"""One operation that torch is asked for: its inputs, what it writes, and who may look at it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from . import wire
from .heartbeat import page

LISTED = 6  # tensors of a list that are written down; an optimizer passes hundreds
WASTE = 4  # times its size that a view may span, and still be kept with its strides
UNINITIALIZED = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "resize_"))


class Call:
    __slots__ = (
        "args",
        "backward",
        "func",
        "kwargs",
        "name",
        "place",
        "suspect",
        "text",
        "writes",
    )

    def __init__(self, func: Any, args: Any, kwargs: Any) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.name = func._schema.name  # noqa: SLF001
        self.text: dict[str, Any] = {}
        self.place: tuple[str, str] = ("", "")  # the user's line, the module
        self.backward = False
        self.suspect = False  # a watcher saw its numbers go wrong
        self.writes = _writes(func)

    def inputs(self) -> list[Any]:
        return list(tensors_in((self.args, self.kwargs)))

    def written(self) -> list[Any]:
        """Return the tensors that it changes in place."""
        found: list[Any] = []
        for index, name in self.writes:
            value = self.args[index] if index < len(self.args) else self.kwargs.get(name)
            found.extend(tensors_in(value))
        return found


def tensors_in(value: Any) -> Any:
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def transformed(value: Any, change: Any) -> Any:
    """Return the same structure with each tensor changed."""
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        parts = [transformed(each, change) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {name: transformed(each, change) for name, each in value.items()}
    return value


_WRITES: dict[Any, tuple[tuple[int, str], ...]] = {}


def _writes(func: Any) -> tuple[tuple[int, str], ...]:
    known = _WRITES.get(func)
    if known is None:
        known = _WRITES[func] = tuple(
            (index, argument.name)
            for index, argument in enumerate(func._schema.arguments)  # noqa: SLF001
            if argument.alias_info is not None and argument.alias_info.is_write
        )
    return known


def described(value: Any) -> Any:
    """Return a value as JSON has it; whoever builds a reproduction reads it."""
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return {
            "shape": list(value.shape),
            "stride": list(value.stride()) if value.layout is torch.strided else [],
            "dtype": str(value.dtype)[6:],
            "device": value.device.type,
        }
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else repr(value)
    if isinstance(value, (list, tuple)):
        shown = [described(each) for each in value[:LISTED]]
        return shown if len(value) <= LISTED else [*shown, f"and {len(value) - LISTED} more"]
    return str(value)


class Watcher:
    def before(self, call: Call) -> Any:
        """Return what ``after`` is to have."""

    def after(self, call: Call, result: Any, kept: Any) -> None:
        """Look at what came of it."""

    def around_backward(self, original: Any) -> Any:
        return original


def leave_origin(found: dict[str, Any]) -> None:
    page.leave(wire.ORIGIN_SUFFIX, json.dumps({"version": wire.RECORD_VERSION, **found}).encode())


def on_cpu(call: Call) -> Any:
    """Carry an operation out on the processor, as a cure: what it changes is copied back."""
    torch = sys.modules["torch"]
    device = next((each.device for each in call.inputs() if each.device.type != "cpu"), None)
    if device is None:
        return call.func(*call.args, **call.kwargs)
    moved: dict[int, Any] = {}

    def to_cpu(tensor: Any) -> Any:
        return moved.setdefault(id(tensor), tensor.cpu())

    kwargs = transformed(call.kwargs, to_cpu)
    if isinstance(kwargs.get("device"), torch.device):
        kwargs["device"] = torch.device("cpu")
    result = call.func(*transformed(call.args, to_cpu), **kwargs)
    back = {}
    for tensor in call.written():
        tensor.copy_(moved[id(tensor)])
        back[id(moved[id(tensor)])] = tensor
    return transformed(result, lambda it: back[id(it)] if id(it) in back else it.to(device))


def save_inputs(call: Call, path: str) -> None:
    """Keep the inputs of a call, before it is made; what was kept before goes."""
    torch = sys.modules["torch"]

    def kept(tensor: Any) -> Any:
        tensor, stride = tensor.detach(), list(tensor.stride())
        span = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, stride))
        if tensor.numel() == 0 or span > WASTE * tensor.numel():
            tensor = tensor.contiguous()
            stride, span = list(tensor.stride()), tensor.numel()
        return {
            "shape": list(tensor.shape),
            "stride": stride,
            "dtype": str(tensor.dtype)[6:],
            "device": tensor.device.type,
            "flat": tensor.as_strided((span,), (1,)).to("cpu", copy=True),
        }

    content = {
        "name": call.name,
        "overload": call.func._overloadname,  # noqa: SLF001
        "args": spelt(transformed(list(call.args), kept)),
        "kwargs": spelt(transformed(call.kwargs, kept)),
        "writes": [name for _, name in call.writes],
        "text": json.dumps(call.text),
    }
    torch.save(content, path + ".part")
    os.replace(path + ".part", path)


def spelt(value: Any) -> Any:
    """Spell what only torch knows, so that the file can be read without running code."""
    torch = sys.modules["torch"]
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return {"torch": str(value)}
    if isinstance(value, torch.device):
        return {"torch": f"torch.device({value.type!r})"}
    if isinstance(value, dict):
        return {name: spelt(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [spelt(each) for each in value]
    if value is None or isinstance(value, (bool, int, float, str, torch.Tensor)):
        return value
    return {"torch": "None"}  # a generator, say
