"""Which precision a script computes in, read once from the graph of a loss."""

from __future__ import annotations

from typing import Any

from ..wire import PRECISIONS, W_PRECISION
from .heart import Heart

MOST = 3000  # nodes of a graph that are looked at, about 20 ms
LOOKS = 2  # the first step may differ from the others


class Precision:
    """Looks at the graph before a backward, and tells the page the lowest precision in it."""

    def __init__(self, heart: Heart) -> None:
        self._heart, self._left, self._told = heart, LOOKS, 0

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
        self._told = max(self._told, PRECISIONS.index(name))
        self._heart.tell(W_PRECISION, self._told)


def _types(top: Any) -> tuple[set[Any], bool]:
    """Return the types of what a graph has computed, and whether all of it could be seen."""
    found: set[Any] = set()
    seen: set[Any] = set()
    whole, pending = True, [top]
    while pending and len(seen) < MOST:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        whole = whole and "Compiled" not in type(node).__name__
        found.update(about.dtype for about in node._input_metadata if about is not None)  # noqa: SLF001
        pending += [following for following, _ in node.next_functions]
    return found, whole and not pending
