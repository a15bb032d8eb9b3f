"""The ranks that save and restore together, what they tell each other, and when they save."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from rocsteady_train.checkpoints.folder import CheckpointError
from rocsteady_train.checkpoints.restore import reason


class Ranks:
    """All ranks of a training, in a group of their own; or one process alone."""

    def __init__(self) -> None:
        self.group = own_group()
        self.rank, self.world = 0, 1
        if self.group is not None:
            self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def as_first(self, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - what is asked for
        """Return what rank 0 finds, or raise on all ranks what it meets."""
        found: list[Any] = [None, ""]
        if self.rank == 0:
            try:
                found[0] = ask()
            except Exception as error:  # noqa: BLE001 - of any file system
                found[1] = reason(error)
        if self.group is not None:
            dist.broadcast_object_list(found, src=0, group=self.group)
        if found[1]:
            raise CheckpointError(found[1])
        return found[0]

    def of_all(self, text: str) -> list[str]:
        """Return what each rank says."""
        found: list[Any] = [text] * self.world
        if self.group is not None:
            dist.all_gather_object(found, text, group=self.group)
        return found

    def meet(self) -> None:
        """Wait until all ranks are here."""
        if self.group is not None:
            dist.barrier(group=self.group)


def own_group() -> Any:  # noqa: ANN401 - a group of torch's
    """Make a group of all ranks that does not meet the training's own; None: there is one rank."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return dist.new_group(backend="gloo")
    return None


ASK_EVERY = 1.0  # seconds between two questions, about
MAX_STEPS = 1000  # steps between them


class Agreement:
    """Asks all ranks now and then whether to save: they save together, or not at all.

    One that says yes is enough.
    """

    def __init__(self) -> None:
        # A group of its own: a save that is under way speaks in another, from another thread.
        self._group = own_group()
        self._every = 1  # steps between two questions, the same on all ranks
        self._steps = 0
        self._wanted = False
        self._asked = time.monotonic()

    @property
    def alone(self) -> bool:
        """Return whether there are no other ranks."""
        return self._group is None

    def on(self, wanted: bool) -> bool:  # noqa: FBT001 - it is the question
        """Return whether all ranks do it now. Called by each of them after each step."""
        if self._group is None:
            return wanted
        self._wanted = self._wanted or wanted
        self._steps += 1
        if self._steps < self._every:
            return False
        now = time.monotonic()
        pace = self._steps / max(now - self._asked, 1e-6)
        following = max(1, min(MAX_STEPS, int(pace * ASK_EVERY)))
        answer = torch.tensor([int(self._wanted), following])
        dist.all_reduce(answer, op=dist.ReduceOp.MAX, group=self._group)
        agreed, self._every = bool(answer[0]), int(answer[1])
        self._steps, self._wanted, self._asked = 0, False, now
        return agreed
