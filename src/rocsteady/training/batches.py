"""What a batch is made of: its samples, some of them, and what each part weighs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Literal

from rocsteady.errors import MicroBatchError

Count = Callable[[Any], float]
Reduction = Literal["mean", "sum"]


def samples_in(batch: Any) -> int:  # noqa: ANN401 - a batch
    """Return how many samples a batch has: the first axis of its tensors and arrays."""
    sizes = {value.shape[0] for value in _leaves(batch) if _has_axes(value)}
    if len(sizes) != 1:
        raise MicroBatchError(
            f"a batch cannot be split by its first axis: its tensors have the sizes {sorted(sizes)}"
            if sizes
            else f"a batch of type {type(batch).__name__} has no tensors that could be split"
        )
    return int(sizes.pop())


def cut(batch: Any, start: int, end: int) -> Any:  # noqa: ANN401 - a batch
    """Return some samples of a batch. What is not one a sample, such as a number, is in each."""
    if _has_axes(batch):
        return batch[start:end]
    return _cut(batch, start, end, samples_in(batch))


def split(
    batch: Any,  # noqa: ANN401 - a batch
    total: int,
    size: int,
    reduction: Reduction,
    count: Count | None,
) -> list[tuple[int, int, float]]:
    """Return where each part begins and ends, and by what its loss is multiplied.

    A part without terms is left out: its mean would be 0/0, and times nothing still not a number.
    """
    places = [(start, min(start + size, total)) for start in range(0, total, size)]
    if reduction == "sum":
        return [(*place, 1.0) for place in places]
    if count is None:
        terms = [float(end - start) for start, end in places]
    else:
        terms = [float(count(cut(batch, *place))) for place in places]
    in_all = sum(terms)
    return [(*place, n / in_all) for place, n in zip(places, terms, strict=True) if n]


def _cut(batch: Any, start: int, end: int, total: int) -> Any:  # noqa: ANN401 - a batch
    if _has_axes(batch):
        return batch[start:end]
    if isinstance(batch, Mapping):
        return _like(batch, {name: _cut(value, start, end, total) for name, value in batch.items()})
    if not isinstance(batch, (list, tuple)):
        return batch
    if not any(_has_axes(value) for value in _leaves(batch)):  # of texts, say: one a sample?
        return batch[start:end] if len(batch) == total else batch
    values = [_cut(value, start, end, total) for value in batch]
    return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)


def _like(batch: Mapping[Any, Any], values: dict[Any, Any]) -> Mapping[Any, Any]:
    """Return a mapping of the batch's own kind, if that can be had, for its methods."""
    if type(batch) is dict or not isinstance(batch, MutableMapping):
        return values
    try:
        same = copy.copy(batch)
        same.update(values)
    except (TypeError, ValueError, RuntimeError):  # it does not let itself be changed
        return values
    return same


def _leaves(batch: Any) -> Iterator[Any]:  # noqa: ANN401 - a batch
    if isinstance(batch, Mapping):
        batch = batch.values()
    elif not isinstance(batch, (list, tuple)):
        yield batch
        return
    for value in batch:
        yield from _leaves(value)


def _has_axes(value: Any) -> bool:  # noqa: ANN401 - of torch, of NumPy, or anything
    return bool(getattr(value, "shape", ())) and not isinstance(value, (list, tuple, Mapping))
