"""A batch trained in micro-batches: the gradient of the whole, in the memory of one of them.

The loss of each micro-batch is weighted so that the gradients add up to that of the whole batch.
That is right for losses that are a sum, or a mean, over samples (or over tokens, which must then be
counted). Only the user knows that: a batch is split only if ``reduction`` says which of the two.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import gc
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Literal

import torch

from rocsteady_train.loop import supervisor_link

Compute = Callable[[Any], Any]
Count = Callable[[Any], float]
Reduction = Literal["mean", "sum"]

UNDECLARED = 'pass reduction="mean" or reduction="sum" to loop.step to allow micro-batches'
OUT_OF_MEMORY = (  # texts of RuntimeError
    "HIP out of memory",
    "CUDA out of memory",
    "XPU out of memory",
    "MPS backend out of memory",
    "HIP error: out of memory",  # of a call, not of torch's allocator
    "CUDA error: out of memory",
    "hipErrorOutOfMemory",
    "hipErrorMemoryAllocation",
    "cudaErrorMemoryAllocation",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",  # the same, on Windows
    "Cannot allocate memory",  # mmap, and the system itself
    "std::bad_alloc",
)
WINDOWS_COMMIT_LIMIT = 1455  # the paging file is too small

log = logging.getLogger("rocsteady")


class MicroBatchError(Exception):
    """A batch could not be trained in micro-batches."""


class MicroBatches:
    """Trains batches in micro-batches, and halves them when memory runs out."""

    def __init__(self, model: Any, micro_batch: int | None = None, *, alone: bool = True) -> None:  # noqa: ANN401
        self.size: int | None = None  # samples in a micro-batch; None: the whole batch
        self.trained: tuple[int, int] | None = None  # samples in the last batch, and at a time
        self._model = model
        self._alone = alone  # no other ranks
        self._warned: set[str] = set()
        if micro_batch is not None:
            self.limit(micro_batch)

    def limit(self, size: int) -> None:
        if size < 1:
            raise MicroBatchError("micro_batch: a micro-batch has at least one sample")
        self.size = min(size, self.size or size)

    def backward(  # noqa: PLR0913 - each is passed by name
        self,
        batch: Any,  # noqa: ANN401 - a batch
        compute: Compute,
        *,
        reduction: Reduction | None = None,
        count: Count | None = None,
        scale: Callable[[Any], Any] = lambda loss: loss,
        zero: Callable[[], None],
    ) -> Any:  # noqa: ANN401 - a tensor
        """Leave the gradients of a batch, and return its loss, detached."""
        while True:
            pieces = self._pieces(batch, reduction, count)
            try:
                if not pieces:
                    loss = compute(batch)
                    scale(loss).backward()
                    return loss.detach()
                return self._add_up(batch, compute, scale, pieces)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if reduction is None:
                    self._warn(f"rocsteady: out of memory; {UNDECLARED}.")
                    raise
                cause = error
            # Outside of the handler, so that nothing holds the frames of the failed computation.
            zero()
            release(cause)
            self._halve(batch, cause)
            del cause

    def _pieces(
        self,
        batch: Any,  # noqa: ANN401
        reduction: Reduction | None,
        count: Count | None,
    ) -> list[tuple[int, int, float]]:
        """Return the micro-batches of a batch with their weights; none: it is trained whole."""
        if reduction is None and self.size is not None:
            self._warn(f"rocsteady: the batch is trained whole; {UNDECLARED}.")
        try:
            total = samples_in(batch)
        except MicroBatchError as error:
            if reduction is not None and self.size is not None:
                self._warn(f"rocsteady: {error}. The batch is trained whole.")
            return []
        pieces = []
        if reduction is not None and self.size is not None and self.size < total:
            pieces = split(batch, total, self.size, reduction, count)
            self._warn_of_batch_norm()
        if reduction is None:
            trained = total, 0  # it cannot be split
        else:
            trained = total, (self.size or total) if pieces else total
        if trained != self.trained:  # reported first: this may be the last that is heard of us
            self.trained = trained
            supervisor_link.micro_batches(*trained)
        return pieces

    def _add_up(
        self,
        batch: Any,  # noqa: ANN401
        compute: Compute,
        scale: Callable[[Any], Any],
        pieces: list[tuple[int, int, float]],
    ) -> Any:  # noqa: ANN401
        whole: Any = 0.0
        for number, (start, end, weight) in enumerate(pieces, 1):
            with self._no_sync(last=number == len(pieces)):
                loss = compute(cut(batch, start, end)) * weight
                scale(loss).backward()
            whole = whole + loss.detach()
            del loss
        return whole

    def _no_sync(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Let ranks exchange gradients once a batch, not once a micro-batch."""
        no_sync = getattr(self._model, "no_sync", None)
        return contextlib.nullcontext() if last or no_sync is None else no_sync()

    def _halve(self, batch: Any, cause: Exception) -> None:  # noqa: ANN401
        """Choose smaller micro-batches, or raise with the reason why that is not possible."""
        try:
            total = samples_in(batch)
        except MicroBatchError as error:
            raise MicroBatchError(f"out of memory, and {error}") from cause
        size = min(self.size or total, total)
        if size == 1:
            raise MicroBatchError(
                "out of memory with a single sample: the model does not fit"
            ) from cause
        half = -(-size // 2)
        if not self._alone:
            raise MicroBatchError(
                f"out of memory with {size} samples at a time on one of several ranks; all of them"
                f" need smaller micro-batches, which takes a restart: micro_batch={half}"
            ) from cause
        self.size = half
        log.warning(
            "rocsteady: out of memory with %d of %d samples at a time; trying micro-batches of %d.",
            size,
            total,
            half,
        )

    def _warn_of_batch_norm(self) -> None:
        normal = torch.nn.modules.batchnorm._BatchNorm  # noqa: SLF001 - there is no public name
        if any(isinstance(module, normal) and module.training for module in self._model.modules()):
            self._warn(
                "rocsteady: this model has batch norm, which computes its mean and variance"
                " per micro-batch: the gradient differs from that of the whole batch."
            )

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)


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
    """Return some samples of a batch. Other values, such as a number, are in every piece."""
    return batch[start:end] if _has_axes(batch) else _cut(batch, start, end, samples_in(batch))


def split(
    batch: Any,  # noqa: ANN401 - a batch
    total: int,
    size: int,
    reduction: Reduction,
    count: Count | None,
) -> list[tuple[int, int, float]]:
    """Return where each piece begins and ends, and its weight; nothing if there are no terms.

    A piece without terms is left out: its mean would be 0/0, and times 0 still not a number.
    """
    places = [(start, min(start + size, total)) for start in range(0, total, size)]
    if reduction == "sum":
        return [(*place, 1.0) for place in places]
    if count is None:
        terms = [float(end - start) for start, end in places]
    else:
        terms = [float(count(cut(batch, *place))) for place in places]
    in_all = sum(terms)
    return [(*place, n / in_all) for place, n in zip(places, terms) if n]


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
    """Return a mapping of the batch's own kind if possible, for its methods."""
    if type(batch) is dict or not isinstance(batch, MutableMapping):
        return values
    try:
        same = copy.copy(batch)
        same.update(values)
    except (TypeError, ValueError, RuntimeError):  # it cannot be changed
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


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, OSError):
        winerror = getattr(error, "winerror", None)
        return error.errno == errno.ENOMEM or winerror == WINDOWS_COMMIT_LIMIT
    if any(kind.__name__ == "DistError" for kind in type(error).__mro__):  # of a collective
        return False
    return isinstance(error, RuntimeError) and any(text in str(error) for text in OUT_OF_MEMORY)


def release(error: BaseException) -> None:
    """Free what a failed computation still holds: its frames, and the allocator's blocks."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__
    gc.collect()
    if torch.accelerator.is_available():
        torch.accelerator.empty_cache()
