"""Several ranks save together, or not at all: so they must agree on when."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from rocsteady.training.ranks import own_group

EVERY = 1.0  # seconds between two questions, about
MOST = 1000  # steps between them


class Agreement:
    """Asks all ranks now and then; one that says yes is enough."""

    def __init__(self) -> None:
        # A group of its own: a save that is under way speaks in another, from another thread.
        self._group = own_group()
        self._every = 1  # steps between two questions, the same on all ranks
        self._steps = 0
        self._wanted = False
        self._asked = time.monotonic()

    @property
    def alone(self) -> bool:
        """Tell whether there are no other ranks."""
        return self._group is None

    def on(self, wanted: bool) -> bool:  # noqa: FBT001 - it is the question
        """Tell whether all ranks do it now. Called by each of them after each step."""
        if self._group is None:
            return wanted
        self._wanted = self._wanted or wanted
        self._steps += 1
        if self._steps < self._every:
            return False
        now = time.monotonic()
        pace = self._steps / max(now - self._asked, 1e-6)
        following = max(1, min(MOST, int(pace * EVERY)))
        answer = torch.tensor([int(self._wanted), following])
        dist.all_reduce(answer, op=dist.ReduceOp.MAX, group=self._group)
        agreed, self._every = bool(answer[0]), int(answer[1])
        self._steps, self._wanted, self._asked = 0, False, now
        return agreed
