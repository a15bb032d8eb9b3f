"""A DataLoader worker sleeps and looks, sleeps and looks, for a file that nobody will write.

A person sees the loss lines stop and a worker in time.sleep. From outside it is the same as a
back-off that will end.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from knobs import STEPS
from ordinary import Samples, find_batch_size, make_model, make_optimizer, train
from torch.utils.data import DataLoader


class Shards(Samples):
    """Samples of which the later half is still to be written by another job."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index == self.count // 2:
            self.wait_for_shard(Path("shard-0002.tar"))
        return super().__getitem__(index)

    def wait_for_shard(self, path: Path) -> None:
        while not path.exists():
            time.sleep(10)


def main() -> None:
    batch = find_batch_size()
    loader = DataLoader(Shards(2 * STEPS * batch), batch_size=batch, num_workers=1)
    model = make_model()
    train(model, make_optimizer(model), loader)


if __name__ == "__main__":
    main()
