"""The global random generators of torch, numpy and Python: whether somebody drew from them."""

from __future__ import annotations

import contextlib
import sys
from typing import Any


def states() -> dict[str, Any]:
    """Return the state of each global generator that there is."""
    torch: Any = sys.modules["torch"]
    found: dict[str, Any] = {"torch": torch.default_generator.get_state()}
    python: Any = sys.modules.get("random")
    if python is not None:
        found["random"] = python.getstate()
    numpy: Any = sys.modules.get("numpy.random")
    with contextlib.suppress(Exception):  # a generator of another kind, or half imported
        _, keys, *rest = numpy.get_state()
        found["numpy.random"] = keys.tobytes(), *rest
    return found


def drawn_from(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Name the generators that were drawn from; one that was only just imported was not."""
    drawn = [
        name
        for name in before.keys() & after.keys()
        if not _is_same(before[name], after[name], is_tensor=name == "torch")
    ]
    return " and ".join(sorted(drawn))


def _is_same(one: Any, other: Any, *, is_tensor: bool) -> bool:
    return bool(one.equal(other) if is_tensor else one == other)
