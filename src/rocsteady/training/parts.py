"""A batch trained in parts: the gradient of the whole, in the memory of a part.

The loss of each part is weighted so that the gradients add up to that of the whole batch. That is
right only for losses that are a sum, or a mean, over samples (or over tokens, which must then be
counted). Before the first split the losses of a whole and of its parts are compared; where they
differ, nothing is split.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch

from rocsteady.errors import PartError
from rocsteady.training import memory_errors, randomness

Compute = Callable[[Any], Any]
Count = Callable[[Any], float]
Reduction = Literal["mean", "sum"]

GROW_AFTER = 200  # steps that went well, until a larger part is tried
MOST_TRIES = 5  # at larger parts that did not fit
ALMOST = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}

log = logging.getLogger("rocsteady")


def samples_in(batch: Any) -> int:  # noqa: ANN401 - a batch
    """Return how many samples a batch has: the first axis of its tensors."""
    sizes = set(_sizes(batch))
    if len(sizes) != 1:
        raise PartError(
            f"a batch cannot be split by its first axis: its tensors have the sizes {sorted(sizes)}"
            if sizes
            else f"a batch of {type(batch).__name__} has no tensors that could be split"
        )
    return sizes.pop()


def cut(batch: Any, start: int, end: int) -> Any:  # noqa: ANN401 - a batch
    """Return some samples of a batch. What has no samples, such as a number, is in each part."""
    if isinstance(batch, torch.Tensor):
        return batch[start:end] if batch.dim() else batch
    if isinstance(batch, Mapping):
        return {key: cut(value, start, end) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(cut(value, start, end) for value in batch))
    if isinstance(batch, (list, tuple)):
        if any(isinstance(value, torch.Tensor) for value in _leaves(batch)):
            return type(batch)(cut(value, start, end) for value in batch)
        return batch[start:end]  # a list of texts, say: one a sample
    return batch


class Parts:
    """How a batch is split, and what is done when memory runs out."""

    def __init__(self, model: Any, part: int | None = None, *, alone: bool = True) -> None:  # noqa: ANN401
        if part is not None and part < 1:
            raise PartError("part: a part has at least one sample")
        self.size = part  # samples in a part; None: the whole batch
        self._model = model
        self._alone = alone  # no other ranks
        self._checked: set[Reduction] = set()
        self._well = 0  # steps since the size was changed
        self._tries = 0  # at larger parts that did not fit
        self._too_large: int | None = None  # the smallest part that did not fit
        self._moving: list[Any] | None = None  # buffers that a step changes; None: not known
        self._warned = False

    def backward(  # noqa: PLR0913 - each is said by name
        self,
        batch: Any,  # noqa: ANN401 - a batch
        compute: Compute,
        *,
        reduction: Reduction = "mean",
        count: Count | None = None,
        scale: Callable[[Any], Any] = lambda loss: loss,
        zero: Callable[[], None],
    ) -> Any:  # noqa: ANN401 - a tensor
        """Leave the gradients of a batch, and return its loss, detached."""
        total = samples_in(batch) if self.size is not None else None
        while True:
            before = self._snapshot()
            try:
                loss = self._all_parts(batch, compute, reduction, count, scale, total)
            except Exception as error:
                if not memory_errors.is_lack_of_memory(error):
                    raise
                memory_errors.release(error)
                total = self._smaller(batch, error)
            else:
                self._well += 1
                self._learn(before)
                return loss
            zero()
            self._go_back(before)
            memory_errors.release(MemoryError())

    def wants_to_grow(self, batch: int) -> bool:
        """Tell whether a larger part should be tried: after a while, and never for ever."""
        return (
            self.size is not None
            and self._too_large is not None
            and self.size < batch
            and self._tries < MOST_TRIES
            and self._well >= GROW_AFTER << self._tries
        )

    def grow(self) -> None:
        """Try parts of twice the size."""
        if self.size is not None:
            self.size *= 2
            self._well = 0
            self._tries += 1

    def state_dict(self) -> dict[str, Any]:
        """Return what the next process on this machine should know."""
        return {
            "device": _device_name(),
            "size": self.size,
            "too_large": self._too_large,
            "well": self._well,
            "tries": self._tries,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it up, if it is of this machine."""
        if state["device"] == _device_name():
            self.size, self._too_large = state["size"], state["too_large"]
            self._well, self._tries = state["well"], state["tries"]

    def _all_parts(  # noqa: PLR0913, PLR0917 - what a step is made of
        self,
        batch: Any,  # noqa: ANN401
        compute: Compute,
        reduction: Reduction,
        count: Count | None,
        scale: Callable[[Any], Any],
        total: int | None,
    ) -> Any:  # noqa: ANN401
        if total is None or self.size is None or self.size >= total:
            loss = compute(batch)
            scale(loss).backward()
            return loss.detach()
        if reduction not in self._checked:
            self._check(batch, compute, reduction, count, total)
        places = [(start, min(start + self.size, total)) for start in range(0, total, self.size)]
        weights = _weights(batch, places, reduction, count)
        whole: Any = 0.0
        for number, ((start, end), weight) in enumerate(zip(places, weights, strict=True)):
            with self._no_sync(last=number == len(places) - 1):
                loss = compute(cut(batch, start, end)) * weight
                scale(loss).backward()
            whole = whole + loss.detach()
        return whole

    def _no_sync(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Let ranks exchange gradients once a batch, not once a part."""
        no_sync = getattr(self._model, "no_sync", None)
        return contextlib.nullcontext() if last or no_sync is None else no_sync()

    def _smaller(self, batch: Any, error: Exception) -> int:  # noqa: ANN401
        """Choose smaller parts, or say why that is not possible."""
        total = samples_in(batch)
        size = min(self.size or total, total)
        if not self._alone:
            raise PartError(
                f"out of memory with {size} samples at a time on one of several ranks; all of them"
                " need smaller parts, which takes a restart"
            ) from error
        if size == 1:
            raise PartError("out of memory with a single sample: the model does not fit") from error
        self._too_large = min(size, self._too_large or size)
        self.size = -(-size // 2)
        self._well = 0
        log.warning(
            "rocsteady: out of memory with %d samples at a time; the batch of %d goes on in parts"
            " of %d.",
            size,
            total,
            self.size,
        )
        return total

    def _check(
        self,
        batch: Any,  # noqa: ANN401
        compute: Compute,
        reduction: Reduction,
        count: Count | None,
        total: int,
    ) -> None:
        """Compare the loss of some samples with that of their parts, without dropout."""
        self._warn_of_batch_norm()
        part = self.size or total
        for size in (total, 2 * part, part):
            if not 1 < size <= total:
                continue
            half = part if size > part else -(-size // 2)
            places = [(start, min(start + half, size)) for start in range(0, size, half)]
            weights = _weights(batch, places, reduction, count)
            try:
                with self._evaluating():
                    whole = compute(cut(batch, 0, size))
                    losses = [compute(cut(batch, *place)) for place in places]
            except Exception as error:
                if not memory_errors.is_lack_of_memory(error):
                    raise
                memory_errors.release(error)
                continue
            together = sum(float(one) * weight for one, weight in zip(losses, weights, strict=True))
            almost = ALMOST.get(whole.dtype, 1e-4) * max(abs(float(whole)), abs(together), 1e-6)
            if abs(float(whole) - together) > almost:
                raise PartError(
                    f"a batch cannot be split: the loss of {size} samples is {float(whole):.6g},"
                    f" and {together:.6g} from its parts. A loss that compares samples with each"
                    f' other cannot be; else see whether reduction="{reduction}" and count are'
                    " right"
                )
            break
        self._checked.add(reduction)

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Look without leaving a trace: no gradients, no dropout, no change of buffers."""
        modules = [module for module in self._model.modules() if module.training]
        before = randomness.states()
        for module in modules:
            module.training = False
        try:
            with torch.no_grad():
                yield
        finally:
            for module in modules:
                module.training = True
            randomness.set_to(before)

    def _warn_of_batch_norm(self) -> None:
        normal = torch.nn.modules.batchnorm._BatchNorm  # noqa: SLF001 - there is no public name
        if not self._warned and any(
            isinstance(module, normal) and module.training for module in self._model.modules()
        ):
            self._warned = True
            log.warning(
                "rocsteady: this model has batch norm, whose mean and variance are those of each"
                " part: the gradient is not that of the whole batch."
            )

    def _snapshot(self) -> tuple[dict[str, Any], list[tuple[Any, int, Any]]]:
        """Keep what a computation that runs out of memory would leave changed.

        NumPy's generator is left out: its state takes 50 microseconds to read.
        """
        buffers = self._moving if self._moving is not None else list(self._model.buffers())
        kept = [(buffer, buffer._version, buffer.clone()) for buffer in buffers]  # noqa: SLF001
        return randomness.states(numpy=False), kept

    def _learn(self, before: tuple[dict[str, Any], list[tuple[Any, int, Any]]]) -> None:
        """Find out in the first step which buffers move; those that do not are not copied again."""
        if self._moving is None:
            self._moving = [
                buffer
                for buffer, version, _ in before[1]
                if buffer._version != version  # noqa: SLF001 - counts changes in place
            ]

    def _go_back(self, before: tuple[dict[str, Any], list[tuple[Any, int, Any]]]) -> None:
        states, kept = before
        randomness.set_to(states)
        with torch.no_grad():
            for buffer, _, copy in kept:
                buffer.copy_(copy)


def _weights(
    batch: Any,  # noqa: ANN401
    places: list[tuple[int, int]],
    reduction: Reduction,
    count: Count | None,
) -> list[float]:
    if reduction == "sum":
        return [1.0] * len(places)
    if count is None:
        counts = [float(end - start) for start, end in places]
    else:
        counts = [float(count(cut(batch, *place))) for place in places]
    total = sum(counts)
    if total <= 0:
        raise PartError("count: there is nothing to take the mean of in this batch")
    return [one / total for one in counts]


def _leaves(batch: Any) -> Iterator[Any]:  # noqa: ANN401 - a batch
    if isinstance(batch, Mapping):
        batch = batch.values()
    elif not isinstance(batch, (list, tuple)):
        yield batch
        return
    for value in batch:
        yield from _leaves(value)


def _sizes(batch: Any) -> Iterator[int]:  # noqa: ANN401 - a batch
    for value in _leaves(batch):
        if isinstance(value, torch.Tensor) and value.dim():
            yield value.shape[0]


def _device_name() -> str:
    if not torch.accelerator.is_available():
        return "cpu"
    index = torch.accelerator.current_device_index()
    module = torch.get_device_module(torch.accelerator.current_accelerator())
    properties = module.get_device_properties(index)
    return f"{properties.name}, {properties.total_memory} bytes"
