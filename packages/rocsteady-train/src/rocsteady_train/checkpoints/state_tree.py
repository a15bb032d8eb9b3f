"""State as a tree: tensors by name, and everything else as JSON. Never a pickle.

A state is what ``state_dict()`` gives: dicts, lists and tuples with tensors and plain values at the
leaves. ``take_apart`` splits it into the tensors, each under a name that is its path, and a
skeleton that JSON can hold. ``put_together`` builds it again. What is neither is not captured: its
path and type are told, and when the state is put together again the value at hand stays.
"""

from __future__ import annotations

import base64
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from rocsteady_train.checkpoints.state import KIND

_PLAIN = (str, int, float, bool, type(None))


class StateParts:
    """A state that was taken apart."""

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self.missed: list[str] = []  # paths that could not be captured, with the type of each

    def take(self, value: Any, path: str) -> Any:  # noqa: ANN401 - state is of any type
        """Return the skeleton of a value, and keep its tensors."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, torch.Tensor):
            return {KIND: "tensor", "name": self._keep(value, path)}
        if isinstance(value, Mapping):
            return self._mapping(value, path)
        if type(value) is list:
            return [self.take(item, f"{path}/{index}") for index, item in enumerate(value)]
        if isinstance(value, (tuple, set, frozenset)) and type(value) in _GROUPS:
            items = [self.take(item, f"{path}/{index}") for index, item in enumerate(value)]
            whole = isinstance(value, tuple) or not any(map(_is_missed, items))
            return {KIND: type(value).__name__ if whole else "missed", "items": items}
        return self._other(value, path)

    def _mapping(self, value: Mapping[Any, Any], path: str) -> Any:  # noqa: ANN401 - JSON
        if all(type(key) is str for key in value) and KIND not in value:
            return {key: self.take(item, f"{path}/{key}") for key, item in value.items()}
        keys = [self.take(key, f"{path}/key") for key in value]
        items = [
            [key, self.take(item, f"{path}/{name}")]
            for key, (name, item) in zip(keys, value.items())
            if not _is_missed(key)
        ]
        return {KIND: "dict", "items": items}

    def _other(self, value: Any, path: str) -> Any:  # noqa: ANN401 - JSON
        if isinstance(value, (bytes, bytearray)):
            return {KIND: "bytes", "base64": base64.b64encode(value).decode()}
        if isinstance(value, (torch.dtype, torch.device)):
            return {KIND: type(value).__name__, "name": str(value).removeprefix("torch.")}
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biufc":
            text = base64.b64encode(value.tobytes()).decode()
            return {KIND: "scalar", "dtype": value.dtype.str, "base64": text}
        if numpy is not None and isinstance(value, numpy.ndarray) and _torch_has(value.dtype):
            array = numpy.array(value)  # a copy, in C order
            return {KIND: "numpy", "name": self._keep(torch.from_numpy(array), path)}
        if isinstance(value, (bool, int, float, str)):  # of a class derived from one of them
            return self.take(_plain(value), path)
        self.missed.append(f"{path} ({type(value).__module__}.{type(value).__qualname__})")
        return {KIND: "missed"}

    def _keep(self, tensor: Any, path: str) -> str:  # noqa: ANN401 - a tensor
        name, number = path, 2
        while name in self.tensors:  # a key had a "/" in it
            name, number = f"{path}#{number}", number + 1
        self.tensors[name] = tensor.detach()
        return name


def tensor_names(skeleton: Any) -> set[str]:  # noqa: ANN401 - JSON
    """Return the names of all tensors of a skeleton."""
    if isinstance(skeleton, list):
        return {name for item in skeleton for name in tensor_names(item)}
    if isinstance(skeleton, dict):
        if skeleton.get(KIND) in ("tensor", "numpy"):
            return {skeleton["name"]}
        return {name for item in skeleton.values() for name in tensor_names(item)}
    return set()


def put_together(skeleton: Any, tensor: Callable[[str, Any], Any], fresh: Any = None) -> Any:  # noqa: ANN401
    """Build a state from its skeleton.

    ``tensor(name, fresh)`` gives each tensor; ``fresh`` is the same state of an object that was
    just made, as far as it has one.
    """
    if isinstance(skeleton, list):
        others = fresh if isinstance(fresh, (list, tuple)) else ()
        return [
            put_together(item, tensor, others[index] if index < len(others) else None)
            for index, item in enumerate(skeleton)
        ]
    if not isinstance(skeleton, dict):
        return skeleton
    kind = skeleton.get(KIND)
    if kind is None:
        known = fresh if isinstance(fresh, Mapping) else {}
        return {
            key: put_together(item, tensor, known.get(key))
            for key, item in skeleton.items()
            if not (_is_missed(item) and key not in known)
        }
    return _build(kind, skeleton, tensor, fresh)


def _build(
    kind: str,
    skeleton: dict[str, Any],
    tensor: Callable[[str, Any], Any],
    fresh: Any,  # noqa: ANN401 - state is of any type
) -> Any:  # noqa: ANN401
    if kind == "tensor":
        return tensor(skeleton["name"], fresh)
    if kind == "numpy":
        return tensor(skeleton["name"], None).numpy()  # it is filled later
    if kind == "dict":
        known = fresh if isinstance(fresh, Mapping) else {}
        pairs = [(put_together(key, tensor), item) for key, item in skeleton["items"]]
        return {
            key: put_together(item, tensor, known.get(key))
            for key, item in pairs
            if not (_is_missed(item) and key not in known)
        }
    if kind == "missed":
        return fresh
    if kind in _GROUPS_BY_NAME:
        return _GROUPS_BY_NAME[kind](put_together(skeleton["items"], tensor, fresh))
    return _WORDS[kind](skeleton)


def _is_missed(item: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(item, dict) and item.get(KIND) == "missed"


def _torch_has(dtype: Any) -> bool:  # noqa: ANN401 - of NumPy
    return dtype.kind in "biuf" and dtype.itemsize <= 8 and bool(dtype.isnative)  # noqa: PLR2004


def _scalar(skeleton: dict[str, Any]) -> Any:  # noqa: ANN401 - of NumPy
    numpy: Any = importlib.import_module("numpy")  # torch may be without it
    return numpy.frombuffer(base64.b64decode(skeleton["base64"]), skeleton["dtype"])[0]


def _plain(value: Any) -> Any:  # noqa: ANN401 - one of the four
    if isinstance(value, str):
        return str.__str__(value)  # also of an enum, whose own str() says something else
    return next(kind(value) for kind in (bool, int, float) if isinstance(value, kind))


_GROUPS = (tuple, set, frozenset, torch.Size)
_GROUPS_BY_NAME: dict[str, Callable[[Any], Any]] = {kind.__name__: kind for kind in _GROUPS}
_WORDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "bytes": lambda skeleton: base64.b64decode(skeleton["base64"]),
    "scalar": _scalar,
    "dtype": lambda skeleton: getattr(torch, skeleton["name"]),
    "device": lambda skeleton: torch.device(skeleton["name"]),
}
