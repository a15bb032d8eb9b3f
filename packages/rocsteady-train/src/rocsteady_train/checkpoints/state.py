"""The state in a checkpoint that is not a tensor, as JSON, and whether a restore can build it.

A restore builds dicts, lists and values from it and must never fail halfway with a KeyError or a
TypeError. So what could make it do so is looked for before anything is restored. Whether this
machine's torch knows a dtype is not judged here: such a checkpoint is whole.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

KIND = "!"  # the key that marks what JSON has no word for
DEEPEST = 200  # levels
_NAMED = frozenset({"tensor", "numpy", "dtype", "device"})
_GROUPS = frozenset({"tuple", "set", "frozenset", "Size"})
_SCALAR = re.compile(r"[<>|=]?[biufc]([0-9]{1,2})")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}(:[0-9]{1,4})?")  # of a dtype or a device


def tensors_in(skeleton: Any, depth: int = 0) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Yield the name of each tensor of a skeleton; raises ValueError if it cannot be built."""
    if depth > DEEPEST:
        raise ValueError("it is nested too deeply")
    if isinstance(skeleton, list):
        for item in skeleton:
            yield from tensors_in(item, depth + 1)
    elif isinstance(skeleton, dict) and KIND not in skeleton:
        for item in skeleton.values():
            yield from tensors_in(item, depth + 1)
    elif isinstance(skeleton, dict):
        yield from _special(skeleton[KIND], skeleton, depth)


def is_dict(skeleton: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether a skeleton is that of a dict."""
    return isinstance(skeleton, dict) and skeleton.get(KIND, "dict") == "dict"


def _special(kind: Any, skeleton: dict[str, Any], depth: int) -> Iterator[str]:  # noqa: ANN401
    if not isinstance(kind, str):
        raise ValueError("a kind is not a text")  # noqa: TRY004 - one error for what is wrong
    if kind in _NAMED:
        name = skeleton.get("name")
        if not isinstance(name, str) or not (kind in ("tensor", "numpy") or _NAME.fullmatch(name)):
            raise ValueError(f"a {kind} has no name")
        if kind in ("tensor", "numpy"):
            yield name
    elif kind in _GROUPS or kind == "dict":
        items = skeleton.get("items")
        if not isinstance(items, list) or not all(_is_item(kind, item) for item in items):
            raise ValueError(f"a {kind} does not have the items of one")
        yield from tensors_in(items, depth)
    elif kind in ("bytes", "scalar"):
        _check_bytes(kind, skeleton)
    elif kind != "missed":
        raise ValueError(f"there is no kind {kind[:40]!r}")


def _is_item(kind: str, item: Any) -> bool:  # noqa: ANN401 - JSON
    if kind == "dict":
        return isinstance(item, list) and len(item) == 2 and _is_hashable(item[0])  # noqa: PLR2004
    if kind == "Size":
        return type(item) is int
    return kind == "tuple" or _is_hashable(item)


def _is_hashable(item: Any) -> bool:  # noqa: ANN401 - JSON
    if not isinstance(item, dict):
        return not isinstance(item, list)
    kind, items = item.get(KIND), item.get("items")
    if kind in ("tuple", "frozenset"):
        return isinstance(items, list) and all(map(_is_hashable, items))
    return isinstance(kind, str) and kind not in ("dict", "set", "numpy", "missed")


def _check_bytes(kind: str, skeleton: dict[str, Any]) -> None:
    text, dtype = skeleton.get("base64"), skeleton.get("dtype")
    if not isinstance(text, str):
        raise ValueError(f"{kind} has no content")  # noqa: TRY004 - one error for what is wrong
    content = base64.b64decode(text)
    if kind == "scalar":
        match = _SCALAR.fullmatch(dtype) if isinstance(dtype, str) else None
        if match is None or len(content) != int(match.group(1)):
            raise ValueError("a scalar has no dtype of its size")
