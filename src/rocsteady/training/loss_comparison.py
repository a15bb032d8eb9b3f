"""Whether the loss of a batch is that of its parts, put together.

It is for a sum or a mean over samples. It is not for a loss that compares samples with each other,
nor if the reduction or the count is said wrongly. Dropout and batch norm would always make a
difference, so torch's own layers compute as in evaluation. Scripts may draw random numbers of their
own, or have layers that do: if the same samples do not give the same loss twice, all layers compute
as in evaluation. Some models give no loss then; if nothing can be compared, that is the answer.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from rocsteady.errors import MicroBatchError
from rocsteady.training import memory_errors
from rocsteady.training.batches import Count, Reduction, cut, split
from rocsteady.training.undo import Undo

PARTS = 8  # at most, that are compared: without gradients so many fit where one does with them
AGAIN = 3  # times the same samples are computed, to see whether their loss is random
ALMOST = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}
COARSEST = 3e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Of the same samples, whole and in parts."""

    samples: int
    whole: float
    together: float
    almost: float  # a difference that rounding may make
    spread: float  # of the whole, computed again and again

    @property
    def same(self) -> bool:
        """Whether there is no difference but rounding."""
        return abs(self.whole - self.together) <= self.almost

    @property
    def is_random(self) -> bool:
        """Whether the difference may be by chance."""
        return not self.spread <= self.almost / 10


def compare(  # noqa: PLR0913 - what a step is made of
    model: Any,  # noqa: ANN401 - torch's own
    batch: Any,  # noqa: ANN401 - a batch
    compute: Callable[[Any], Any],
    *,
    total: int,
    part: int,
    reduction: Reduction,
    count: Count | None,
) -> bool:
    """Return True if they are the same, False if that cannot be told; raise if they differ."""
    for samples in dict.fromkeys((min(total, PARTS * part), min(total, 2 * part), part)):
        if samples < 2:  # noqa: PLR2004 - a single sample has no parts
            continue
        places = split(
            cut(batch, 0, samples),
            samples,
            part if samples > part else -(-samples // 2),
            reduction,
            count,
        )
        if not places:
            continue
        try:
            seen = _look(model, batch, compute, samples, places)
        except Exception as error:
            if not memory_errors.is_lack_of_memory(error):
                raise
            memory_errors.release(error)
            continue
        if seen is None or not math.isfinite(seen.whole):
            return False
        if seen.same:
            return True
        if seen.is_random:
            return False
        raise MicroBatchError(
            f"a batch cannot be split: the loss of {samples} samples is {seen.whole:.6g}, and"
            f" {seen.together:.6g} from its parts. A loss that compares samples with each other"
            f' cannot be; else see whether reduction="{reduction}" and count are right'
        )
    return False


def _look(
    model: Any,  # noqa: ANN401
    batch: Any,  # noqa: ANN401
    compute: Callable[[Any], Any],
    samples: int,
    places: list[tuple[int, int, float]],
) -> Losses | None:
    """Compute both, as near to training as can be; None: no loss could be had."""
    modules = [module for module in model.modules() if module.training]
    seen: Losses | None = None
    for resting in ([module for module in modules if _is_torchs_own(module)], modules):
        try:
            with _without_a_trace(model, resting):
                seen = _losses(model, batch, compute, samples, places)
        except Exception as error:
            if memory_errors.is_lack_of_memory(error):
                raise
            continue  # not a loss in this mode; if it is an error, the training will meet it
        if seen.same or not seen.is_random:
            return seen
    return seen


def _losses(
    model: Any,  # noqa: ANN401
    batch: Any,  # noqa: ANN401
    compute: Callable[[Any], Any],
    samples: int,
    places: list[tuple[int, int, float]],
) -> Losses:
    kinds = {tensor.dtype for tensor in model.parameters() if tensor.dtype.is_floating_point}
    with _autocast_seen(model, kinds):
        loss = compute(cut(batch, 0, samples))
    kinds.add(loss.dtype)
    whole = float(loss)
    parts = [float(compute(cut(batch, start, end))) * weight for start, end, weight in places]
    together = sum(parts)
    size = sum(abs(part) for part in parts)
    almost = max(ALMOST.get(kind, COARSEST) for kind in kinds) * max(
        abs(whole), size if math.isfinite(size) else 0.0, 1e-6
    )
    spread = 0.0
    if not abs(whole - together) <= almost:
        again = [float(compute(cut(batch, 0, samples))) for _ in range(AGAIN)]
        spread = max(abs(whole - other) for other in again)
    return Losses(samples=samples, whole=whole, together=together, almost=almost, spread=spread)


@contextlib.contextmanager
def _without_a_trace(model: Any, resting: list[Any]) -> Iterator[None]:  # noqa: ANN401
    """Let some layers compute as in evaluation; no gradients, no change of buffers, no numbers."""
    undo = Undo(model)
    undo.keep()
    for module in resting:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in resting:
            module.training = True
        undo.back()


@contextlib.contextmanager
def _autocast_seen(model: Any, kinds: set[Any]) -> Iterator[None]:  # noqa: ANN401
    """Note what the script computes in, which it says only inside its computation."""

    def look(*_: object) -> None:
        accelerator = torch.accelerator.current_accelerator()
        for device in {"cpu", accelerator.type if accelerator is not None else "cpu"}:
            if torch.is_autocast_enabled(device):
                kinds.add(torch.get_autocast_dtype(device))

    hooks = [module.register_forward_pre_hook(look) for module in (model, *model.children())]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _is_torchs_own(module: Any) -> bool:  # noqa: ANN401
    return any(
        kind.__module__.startswith("torch.nn.")
        for kind in type(module).__mro__
        if kind is not torch.nn.Module
    )
