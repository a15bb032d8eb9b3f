"""A batch trained in micro-batches: the gradient of the whole, in the memory of one of them.

The loss of each part is weighted so that the gradients add up to that of the whole batch. That is
right only for losses that are a sum, or a mean, over samples (or over tokens, which must then be
counted). Before the first split the losses of a whole and of its micro-batches are compared; where
they differ, nothing is split.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import torch

from rocsteady.errors import MicroBatchError
from rocsteady.training import memory_errors, supervisor_link
from rocsteady.training.batches import Count, Reduction, cut, samples_in, split
from rocsteady.training.loss_comparison import compare
from rocsteady.training.undo import Undo

__all__ = ["Compute", "Count", "MicroBatches", "Reduction", "samples_in"]

Compute = Callable[[Any], Any]

GROW_AFTER = 200  # steps that went well, until a larger part is tried
MOST_TRIES = 5  # at larger micro-batches that did not fit

log = logging.getLogger("rocsteady")


class MicroBatches:
    """How a batch is split, and what is done when memory runs out."""

    def __init__(self, model: Any, micro_batch: int | None = None, *, alone: bool = True) -> None:  # noqa: ANN401
        self.size: int | None = None  # samples in a part; None: the whole batch
        self.trained: tuple[int, int] | None = None  # samples in the last batch, and at a time
        self._most: int | None = None  # samples in a part, as the user says
        self._model = model
        self._alone = alone  # no other ranks
        self._undo = Undo(model)
        self._compared: dict[object, bool] = {}  # losses that may be split; False: not known
        self._refused: dict[object, str] = {}  # those that may not
        self._well = 0  # steps since the size was changed
        self._grown = False  # the size was reached by growing
        self._tries = 0  # at larger micro-batches that did not fit
        self._too_large: int | None = None  # the smallest part that did not fit
        self._said: set[str] = set()
        if micro_batch is not None:
            self.limit(micro_batch)

    def limit(self, part: int) -> None:
        """Train at most so many samples at a time."""
        if part < 1:
            raise MicroBatchError("micro_batch: a micro-batch has at least one sample")
        self._most = part
        self.size = min(part, self.size or part)

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
        self._undo.keep()
        lack: Exception | None = None
        while True:
            places = self._places(batch, compute, reduction, count, lack)
            try:
                if places is None:
                    loss = compute(batch)
                    scale(loss).backward()
                    loss = loss.detach()
                else:
                    loss = self._add_up(batch, compute, scale, places)
            except Exception as error:
                if not memory_errors.is_lack_of_memory(error):
                    raise
                lack = error
            else:
                lack = None  # whose traceback holds this frame
                self._well += 1
                self._undo.learn()
                return loss
            zero()
            self._undo.back()
            memory_errors.release(lack)
            self._smaller(batch, lack)

    def wants_to_grow(self, batch: int) -> bool:
        """Tell whether a larger part should be tried: after a while, and never for ever."""
        return (
            self._alone
            and self.size is not None
            and self._too_large is not None
            and self.size < min(batch, self._most or batch)
            and self._tries < MOST_TRIES
            and self._well >= GROW_AFTER << self._tries
        )

    def grow(self) -> None:
        """Try micro-batches of twice the size."""
        if self.size is not None:
            batch = self.trained[0] if self.trained is not None else 2 * self.size
            self.size = max(self.size, min(2 * self.size, batch, self._most or batch))
            self._well = 0
            self._grown = True

    def state_dict(self) -> dict[str, Any]:
        """Return what the next process on this machine should know.

        If a larger part is about to be tried, this says that it did not fit: should the try take
        the process or the machine down, the next one must not do the same again and again.
        """
        batch = self.trained[0] if self.trained is not None else 0
        trying = self.wants_to_grow(batch)
        return {
            "device": _device_name(),
            "size": self.size,
            "too_large": self._too_large,
            "well": 0 if trying else self._well,
            "tries": self._tries + 1 if trying else self._tries,
            "grown": self._grown and not trying,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what was learned on this machine. A size that the user has said is not that."""
        if state["device"] == _device_name() and state["too_large"] is not None:
            self.size = min(state["size"], self._most or state["size"])
            self._too_large = state["too_large"]
            self._well, self._tries = state["well"], state["tries"]
            self._grown = state["grown"]

    def _places(
        self,
        batch: Any,  # noqa: ANN401
        compute: Compute,
        reduction: Reduction,
        count: Count | None,
        lack: Exception | None,
    ) -> list[tuple[int, int, float]] | None:
        """Return the micro-batches of a batch; None: it is trained whole.

        After a lack of memory there is no other way than to split it.
        """
        told_before = self.trained
        try:
            return self._split(batch, compute, reduction, count)
        except MicroBatchError as error:
            if lack is not None:
                raise MicroBatchError(str(error)) from lack
            self._say(f"rocsteady: {error}. The batch is trained whole.")
            if self.trained is not None:
                self.trained = (self.trained[0], self.trained[0])
            return None
        finally:  # before it is trained: it may be the last that is heard of this process
            if self.trained is not None and self.trained != told_before:
                supervisor_link.micro_batches(*self.trained)

    def _split(
        self,
        batch: Any,  # noqa: ANN401
        compute: Compute,
        reduction: Reduction,
        count: Count | None,
    ) -> list[tuple[int, int, float]] | None:
        if self.size is None:
            if self.trained is None:  # once: it costs a little, and is for those who watch
                with contextlib.suppress(MicroBatchError):
                    self.trained = (samples_in(batch),) * 2
            return None
        self.trained = None
        total = samples_in(batch)
        self.trained = total, min(self.size, total)
        if self.size >= total:
            return None
        places = split(batch, total, self.size, reduction, count)
        if not places:
            raise MicroBatchError("count: there is nothing to take the mean of in this batch")
        self._see_whether(batch, compute, reduction, count, total)
        return places

    def _see_whether(
        self,
        batch: Any,  # noqa: ANN401
        compute: Compute,
        reduction: Reduction,
        count: Count | None,
        total: int,
    ) -> None:
        """Compare once, for each loss of a script, whether it may be split; raise if not.

        A function that is made anew in each step has the same code, and is the same loss.
        """
        loss = (reduction, getattr(compute, "__code__", type(compute)))
        if loss in self._compared:
            return
        if loss in self._refused:
            raise MicroBatchError(self._refused[loss])
        self._warn_of_batch_norm()
        try:
            self._compared[loss] = compare(
                self._model,
                batch,
                compute,
                total=total,
                part=self.size or total,
                reduction=reduction,
                count=count,
            )
        except MicroBatchError as error:
            self._refused[loss] = str(error)
            raise
        if not self._compared[loss]:
            self._say(
                "rocsteady: the loss of a batch and of its micro-batches could not be"
                " compared. That of the micro-batches is right if it is a sum or a mean over"
                " samples, and said so."
            )

    def _add_up(
        self,
        batch: Any,  # noqa: ANN401
        compute: Compute,
        scale: Callable[[Any], Any],
        places: list[tuple[int, int, float]],
    ) -> Any:  # noqa: ANN401
        whole: Any = 0.0
        for number, (start, end, weight) in enumerate(places, 1):
            with self._no_sync(last=number == len(places)):
                loss = compute(cut(batch, start, end)) * weight
                scale(loss).backward()
            whole = whole + loss.detach()
            del loss
        return whole

    def _no_sync(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Let ranks exchange gradients once a batch, not once a part."""
        no_sync = getattr(self._model, "no_sync", None)
        return contextlib.nullcontext() if last or no_sync is None else no_sync()

    def _smaller(self, batch: Any, lack: Exception) -> None:  # noqa: ANN401
        """Choose smaller micro-batches, or say why that is not possible."""
        try:
            total = samples_in(batch)
        except MicroBatchError as error:
            raise MicroBatchError(f"out of memory, and {error}") from lack
        size = self.trained[1] if self.size and self.trained is not None else total
        if size == 1:
            raise MicroBatchError(
                "out of memory with a single sample: the model does not fit"
            ) from lack
        half = min(-(-size // 2), self.size or size)
        if not self._alone:
            raise MicroBatchError(
                f"out of memory with {size} samples at a time on one of several ranks; all of them"
                f" need smaller micro-batches, which takes a restart: micro_batch={half}"
            ) from lack
        self._too_large = min(size, self._too_large or size)
        self.size = half
        self._well = 0
        if self._grown:
            self._grown = False
            self._tries += 1
        self._compared = {loss: known for loss, known in self._compared.items() if known}
        log.warning(
            "rocsteady: out of memory with %d of %d samples at a time; trying micro-batches of %d.",
            size,
            total,
            half,
        )

    def _warn_of_batch_norm(self) -> None:
        normal = torch.nn.modules.batchnorm._BatchNorm  # noqa: SLF001 - there is no public name
        if any(isinstance(module, normal) and module.training for module in self._model.modules()):
            self._say(
                "rocsteady: this model has batch norm, which computes its mean and variance"
                " per micro-batch: the gradient differs from that of the whole batch."
            )

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            log.warning("%s", text)


def _device_name() -> str:
    if not torch.accelerator.is_available():
        return "cpu"
    index = torch.accelerator.current_device_index()
    module = torch.get_device_module(torch.accelerator.current_accelerator())
    properties = module.get_device_properties(index)
    return f"{properties.name}, {properties.total_memory} bytes"
