"""The ranks that save and restore together, and what they tell each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from rocsteady.checkpoint_folder import CheckpointError
from rocsteady.training.restore import reason


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
