"""What ``Loop`` does about a loss that is not finite, or leaps: back to the last good checkpoint.

Opt-in, since it changes what is trained: the batch is left out from then on, and the learning rate
may be lowered. What was seen is kept beside the checkpoints.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from rocsteady_train.checkpoints.checkpointer import log
from rocsteady_train.checkpoints.tensor_files import write_tensors

EVIDENCE = "bad-losses"  # a folder beside the checkpoints
LOSSES_COMPARED = 50  # losses that a leap is compared with
FEWEST_LOSSES = 20  # losses, below which nothing is called a leap
MAX_BATCH = 64 * 1024 * 1024  # bytes of a batch that is kept


@dataclass(frozen=True)
class RollBack:
    """When to go back, and what to change then.

    ``leap``: a loss of more than so many times the median of the last 50 counts too, not only one
    that is not finite. ``learning_rate``: what it is multiplied by each time. ``at_most``: times,
    after which the training ends with FloatingPointError.
    """

    leap: float | None = None
    learning_rate: float = 1.0
    at_most: int = 3

    def __post_init__(self) -> None:
        if self.leap is not None and self.leap <= 1:
            raise ValueError("leap: a factor above 1, such as 10")
        if not 0 < self.learning_rate <= 1:
            raise ValueError("learning_rate: a factor above 0 and at most 1")


class LossGuard:
    """Judges the loss of each step, and knows which batches are left out."""

    def __init__(self, settings: RollBack, model: Any, folder: Path) -> None:  # noqa: ANN401 - a module
        self.settings = settings
        self.left_out: set[int] = set()  # steps
        self.why = ""  # the last step was bad, and why
        self._model, self._folder = model, folder / EVIDENCE
        self._losses: deque[float] = deque(maxlen=LOSSES_COMPARED)
        self._times = 0

    def judge(self, loss: float) -> str:
        """Return what is wrong with a loss; "" if nothing is."""
        if not isfinite(loss):
            return f"the loss is {loss}"
        usual = statistics.median(self._losses) if len(self._losses) >= FEWEST_LOSSES else 0.0
        if self.settings.leap is not None and 0 < usual * self.settings.leap < loss:
            return f"the loss is {loss:.4g}, and {usual:.4g} in the median of the last ones"
        self._losses.append(loss)
        return ""

    def keep(self, step: int, batch: Any, forward: Callable[[], Any] | None) -> None:  # noqa: ANN401
        """Keep what a person needs to find the reason: the batch, and where it first went wrong."""
        try:
            place = self._first_bad(forward)
            self._folder.mkdir(parents=True, exist_ok=True)
            tensors = dict(_tensors(batch))
            kept = ""
            if 0 < sum(each.numel() * each.element_size() for each in tensors.values()) < MAX_BATCH:
                kept = f"step-{step}.safetensors"
                write_tensors(self._folder / kept, {k: v.cpu() for k, v in tensors.items()})
            record = {
                "at": time.time(),
                "step": step,
                "why": self.why,
                "first_not_finite": place,
                "batch": kept,
            }
            with (self._folder / "steps.jsonl").open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(record) + "\n")
            where = f" First in {place}." if place else ""
            log.warning(
                "rocsteady: step %d: %s.%s Kept in %s.", step, self.why, where, self._folder
            )
        except Exception as error:  # noqa: BLE001 - the evidence must not end the training
            text = "rocsteady: step %d: %s. What was seen could not be kept: %s."
            log.warning(text, step, self.why, error)

    def count(self, step: int) -> None:
        """Be told that the training goes back. Raises FloatingPointError if it did too often."""
        self._times += 1
        if self._times > self.settings.at_most:
            raise FloatingPointError(
                f"step {step}: {self.why}, after {self.settings.at_most} times back to a checkpoint"
            )
        self.left_out.add(step)
        self.why = ""

    def has_finite_weights(self) -> bool:
        return all(bool(torch.isfinite(each).all()) for each in self._model.parameters())

    def _first_bad(self, forward: Callable[[], Any] | None) -> str:
        """Name the parameter, or the layer's output, that is the first not to be finite."""
        for name, weights in self._model.named_parameters():
            if not bool(torch.isfinite(weights).all()):
                return f"{name} (its weights)"
        found: list[str] = []

        def look(name: str) -> Callable[..., None]:
            def hook(_module: object, _inputs: object, output: object) -> None:
                if not found and any(
                    not bool(torch.isfinite(v).all()) for _, v in _tensors(output)
                ):
                    found.append(f"{name} (its output)")

            return hook

        hooks = [
            module.register_forward_hook(look(name or type(module).__name__))
            for name, module in self._model.named_modules()
        ]
        try:
            if forward is not None:
                with torch.no_grad():
                    forward()
        finally:
            for hook in hooks:
                hook.remove()
        return found[0] if found else ""


def _tensors(value: Any, name: str = "batch") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - a batch
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _tensors(each, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for key, each in enumerate(value):
            yield from _tensors(each, f"{name}.{key}")
