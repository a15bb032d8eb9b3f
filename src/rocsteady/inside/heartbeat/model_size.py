"""How much a script trains, told by its first steps."""

from __future__ import annotations

import contextlib
from typing import Any

from .. import wire
from . import page
from .heart import Heart

FIRST_STEPS = 8  # that are looked at: a script may have several optimizers, and step them in turn
MOST = 1 << 63


class SizeReport:
    """The size of what this process trains."""

    def __init__(self, heart: Heart) -> None:
        self._heart = heart
        self._parameters: dict[int, int] = {}  # their numbers of elements
        self._loader = 0, 0  # samples in a batch and batches in an epoch, of the last one

    def iterated(self, loader: Any) -> None:
        """Be told that a loader makes an iterator; the last before the first step feeds it."""
        if self._parameters:
            return
        batch = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        batches = 0
        if loader._dataset_kind == 0:  # noqa: SLF001 - map-style
            # To ask any other for its length has torch compare it with what comes.
            with contextlib.suppress(Exception):  # a sampler need not know it
                batches = len(loader)
        self._loader = _whole(batch), _whole(batches)

    def stepped(self, optimizer: Any) -> None:
        """Be told of one of the first steps."""
        try:
            if not self._parameters:
                self._heart.tell(wire.W_LOADER_BATCH, self._loader[0])
                self._heart.tell(wire.W_LOADER_BATCHES, self._loader[1])
            for group in optimizer.param_groups:
                for each in group["params"]:
                    if each.requires_grad:
                        self._parameters[id(each)] = each.numel()
            self._heart.tell(wire.W_PARAMETERS, min(sum(self._parameters.values()), MOST))
        except Exception as error:  # ours, and not the script's business
            page.note("size", error)

    def reset(self) -> None:
        """Forget what was another process's."""
        self._parameters.clear()
        self._loader = 0, 0


def _whole(number: Any) -> int:
    return min(max(number, 0), MOST) if isinstance(number, int) else 0
